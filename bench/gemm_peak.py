"""The machine's measured peak: GF/s of a large float32 matrix product on two threads.

    python bench/gemm_peak.py headrace|numpy|torch

Run by bench/training.py in its own process; the best of the libraries counts, since NumPy and
PyTorch do not use all that some processors have.
"""

import os
import sys
import time

from training_worker import limit_threads

SIZE, TIMES = 2048, 10


def product(library):
    """A function that multiplies two square matrices."""
    if library == "headrace":
        import headrace as tf

        a, b = (tf.Variable(tf.random_normal([SIZE, SIZE])) for _ in range(2))
        session = tf.Session()
        session.run(tf.global_variables_initializer())
        return session.make_callable(tf.matmul(a, b))
    if library == "torch":
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        a, b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    else:
        import numpy as np

        a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), np.float32)
    return lambda: a @ b


def main():
    limit_threads()
    call = product(sys.argv[1])
    best = float("inf")
    for _ in range(TIMES):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    print(2 * SIZE**3 / best / 1e9)


if __name__ == "__main__":
    main()
