"""Accumulators without sessions: which gradients are checked, and when."""

import threading

import numpy as np
import pytest

from headrace._src.core import dtypes, errors
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.accumulators import DenseAccumulator, SparseAccumulator

KINDS = [
    (DenseAccumulator, [None], lambda n: np.ones(n, np.float32)),
    (SparseAccumulator, [None, None], lambda n: (np.zeros(1, int), np.ones((1, n), "f"), None)),
]


def make(kind, shape):
    return kind("a", dtypes.float32, TensorShape(shape), "MEAN")


@pytest.mark.parametrize(("kind", "shape", "gradient"), KINDS)
def test_a_check_sees_the_sum_that_its_gradient_is_added_to(kind, shape, gradient):
    """Another thread can't take the sum between the check and the addition."""
    free = []

    class Probed(kind):
        def check(self, gradient):
            probe = threading.Thread(target=self.probe)
            probe.start()
            probe.join()
            super().check(gradient)

        def probe(self):
            free.append(self._lock.acquire(blocking=False))
            if free[-1]:
                self._lock.release()

    accumulator = make(Probed, shape)
    for _ in range(2):
        accumulator.add(0, gradient(2))
    assert free == [False, False]
    assert accumulator.count == 2


@pytest.mark.parametrize(("kind", "shape", "gradient"), KINDS)
def test_only_gradients_that_count_are_checked(kind, shape, gradient):
    accumulator = make(kind, shape)
    accumulator.set_step(5)
    accumulator.add(5, gradient(2))
    accumulator.add(4, gradient(3))  # stale
    with pytest.raises(errors.InvalidArgumentError, match="Shape mismatch"):
        accumulator.add(5, gradient(3))
    accumulator.add(6, gradient(2))
    assert (accumulator.count, accumulator.dropped) == (2, 1)
    accumulator.take(2)
    accumulator.add(6, gradient(3))  # the first of its sum
    assert accumulator.count == 1
