"""One framework's optimizers as a worker process, for bench/optimizers.py:

    python bench/optimizer_worker.py FRAMEWORK MODE PARAMETERS

Answers one line of JSON for each line that it reads: `use NAME` makes an optimizer and its
variables, `run COUNT` takes so many steps and answers with the seconds of each. The gradients stay
the same: a step is nothing but the update.
"""

import json
import os
import sys
import time
from pathlib import Path

from training_worker import HERE, limit_threads

PIECES = 10  # variables that the parameters are in


class InTF1:
    """Headrace's and TensorFlow's: the operations of a tf.train optimizer, in a session."""

    def __init__(self, tf, size):
        self._tf, self._size = tf, size
        self._session = None

    def use(self, name):
        tf = self._tf
        if self._session is not None:
            self._session.close()
        rate = 1e-3
        make = {
            "SGD": lambda: tf.train.GradientDescentOptimizer(rate),
            "Momentum": lambda: tf.train.MomentumOptimizer(rate, 0.9),
            "Adagrad": lambda: tf.train.AdagradOptimizer(rate),
            "RMSProp": lambda: tf.train.RMSPropOptimizer(rate, momentum=0.9),
            "Adam": lambda: tf.train.AdamOptimizer(rate),
        }
        with tf.Graph().as_default():
            shape = [self._size // PIECES]
            pairs = [
                tuple(
                    tf.get_variable(f"{kind}{i}", shape, initializer=tf.ones_initializer())
                    for kind in ("gradient", "weight")
                )
                for i in range(PIECES)
            ]
            pairs = [(tf.identity(gradient), weight) for gradient, weight in pairs]
            train = make[name]().apply_gradients(pairs)
            self._session = tf.Session()
            self._session.run(tf.global_variables_initializer())
            self.step = self._session.make_callable(train)


class InTorch:
    """PyTorch's, `fused` or `foreach`."""

    def __init__(self, torch, size, mode):
        torch.set_num_threads(2)
        self._torch, self._size, self._how = torch, size, {mode: True}
        self.step = None

    def use(self, name):
        optim = self._torch.optim
        make = {
            "SGD": lambda p: optim.SGD(p, 1e-3, **self._how),
            "Momentum": lambda p: optim.SGD(p, 1e-3, momentum=0.9, **self._how),
            "Adagrad": lambda p: optim.Adagrad(p, 1e-3, **self._how),
            "RMSProp": lambda p: optim.RMSprop(p, 1e-3, momentum=0.9, **self._how),
            "Adam": lambda p: optim.Adam(p, 1e-3, **self._how),
        }
        self.step = None  # frees the variables of the one before
        weights = [self._torch.ones(self._size // PIECES) for _ in range(PIECES)]
        for weight in weights:
            weight.requires_grad_()
            weight.grad = self._torch.ones_like(weight)
        self.step = make[name](weights).step


def make(framework, mode, size):
    if framework == "torch":
        import torch

        return InTorch(torch, size, mode), f"torch {torch.__version__}"
    if framework == "headrace":
        import headrace as tf

        return InTF1(tf, size), f"headrace {tf.HEADRACE_VERSION}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(2)
    tensorflow.compat.v1.disable_eager_execution()
    return InTF1(tensorflow.compat.v1, size), f"tensorflow {tensorflow.__version__}"


def main():
    framework, mode, size = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")  # what the framework prints must not mix with the answers
    os.dup2(2, 1)

    def answer(**facts):
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    limit_threads()
    sys.path[:0] = [str(HERE), str(Path(HERE).parent / "src")]
    contender, version = make(framework, mode, int(size))
    answer(version=version)
    for line in sys.stdin:
        command, what = line.split()
        seconds = []
        try:
            if command == "use":
                contender.use(what)
            for _ in range(int(what) if command == "run" else 3):  # the first ones compile
                start = time.perf_counter()
                contender.step()
                seconds.append(time.perf_counter() - start)
            answer(seconds=seconds)
        except Exception as error:
            answer(error=f"{type(error).__name__}: {str(error).strip()[:200]}")


if __name__ == "__main__":
    main()
