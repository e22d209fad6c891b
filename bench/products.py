"""What limits the MLP's step: its matrix products alone, one after the other, in warm caches.

    python bench/products.py fma|headrace|numpy|torch [SECONDS]

No biases, activations, updates or feeds, and no graph: the eight products of a training step of
784-256-256-10 with 128 examples, by our own kernels in one native call, NumPy's BLAS (OpenBLAS) or
PyTorch's (MKL, oneDNN). `fma`: as many multiply-adds in registers, what the processor can do at
most. Printed are the best, the 10th percentile and the median of many runs.
"""

import sys
import time
from itertools import pairwise

from training_worker import THREADS, limit_threads

BATCH, SIZES = 128, (784, 256, 256, 10)


def products():
    """(a, b, c, transpose_a, transpose_b) of each product in order, matrices by name."""
    layers = range(1, len(SIZES))
    for i in layers:
        yield f"x{i}", f"w{i}", f"x{i + 1}", False, False
    for i in reversed(layers):
        if i > 1:
            yield f"g{i + 1}", f"w{i}", f"g{i}", False, True
        yield f"x{i}", f"g{i + 1}", f"w{i}", True, False


def matrices(make):
    """All matrices, of zeros, so that weights can be written again and again: x1 is the input, xi
    and gi what goes into a layer and its gradient.
    """
    found = {f"w{i}": make(pair) for i, pair in enumerate(pairwise(SIZES), 1)}
    for i, size in enumerate(SIZES, 1):
        found |= {f"x{i}": make((BATCH, size)), f"g{i}": make((BATCH, size))}
    return found


def shapes():
    """(m, n, k, transpose_a, transpose_b) of each product."""
    sizes = matrices(lambda shape: shape)
    for a, _, c, ta, tb in products():
        yield *sizes[c], sizes[a][0 if ta else 1], ta, tb


def flops():
    return sum(2 * m * n * k for m, n, k, *_ in shapes())


def each(multiply, make):
    """A function that multiplies all: multiply(a, b, c), with transposed views."""
    found = matrices(make)
    calls = [
        (found[a].T if ta else found[a], found[b].T if tb else found[b], found[c])
        for a, b, c, ta, tb in products()
    ]

    def run():
        for a, b, c in calls:
            multiply(a, b, c)

    return run


def with_numpy():
    import numpy as np

    return each(np.matmul, lambda shape: np.zeros(shape, np.float32))


def with_torch():
    import torch

    torch.set_num_threads(THREADS)
    return each(lambda a, b, c: torch.mm(a, b, out=c), torch.zeros)


def with_headrace():
    from headrace._src.compile.kernels.gemm.gemm_choice import candidates
    from headrace._src.compile.run.choose import trial_plan
    from headrace._src.compile.run.driver import NativeCluster

    sizes = matrices(lambda shape: 4 * shape[0] * shape[1])
    kernels = [candidates(*shape, threads=THREADS)[0] for shape in shapes()]
    calls = tuple((k, (a, b, c)) for k, (a, b, c, *_) in zip(kernels, products()))
    cluster = NativeCluster(trial_plan(calls, sizes), THREADS)
    return lambda: cluster.run((), (), ())


def with_fma():
    import numpy as np

    from headrace._src.compile.native import machine_code
    from headrace._src.compile.native.roofs import MultiplyAdd
    from headrace._src.devices.target import host

    lanes = host().lanes()
    rounds = flops() // (2 * 12 * lanes * THREADS)
    y = machine_code.aligned(4 * lanes * (THREADS + 1), np.float32)
    return machine_code.prepared_kernel(MultiplyAdd(rounds, 12, lanes), [y], THREADS)


def main():
    limit_threads()
    run = globals()[f"with_{sys.argv[1]}"]()
    times = []
    end = time.perf_counter() + float(sys.argv[2] if len(sys.argv) > 2 else 5)
    while (start := time.perf_counter()) < end:
        run()
        times.append(time.perf_counter() - start)
    times.sort()
    for name, share in (("best", 0), ("10%", 0.1), ("median", 0.5)):
        seconds = times[int(share * len(times))]
        print(f"{name} {1e3 * seconds:.3f} ms, {flops() / seconds / 1e9:.0f} GF/s", end="; ")
    print()


if __name__ == "__main__":
    main()
