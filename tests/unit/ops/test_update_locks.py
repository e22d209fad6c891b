"""Updates of several variables take their locks in one global order."""

import threading

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.variable_state import VariableState, in_order
from headrace._src.graph.definition import definitions


class Noted:
    """A lock that notes when it's taken for the first time."""

    def __init__(self, taken):
        self._lock = threading.RLock()
        self._taken = taken

    def __enter__(self):
        self._lock.acquire()
        if self not in self._taken:
            self._taken.append(self)

    def __exit__(self, *_):
        self._lock.release()


def test_whatever_the_order_of_the_variables():
    taken = []
    states = [VariableState("v", dtypes.float32, TensorShape([2])) for _ in range(3)]
    locks = in_order(Noted(taken) for _ in states)
    # The order of the variables is the other way round.
    for state, lock in zip(sorted(states, key=id), reversed(locks), strict=True):
        state.lock = lock
        state.assign(np.ones(2, np.float32))
    taken.clear()
    numbers = [np.float32(0.5)] * 6
    kernel = definitions()["ApplyAdam"].kernel
    kernel(*states, *numbers, np.ones(2, np.float32), use_nesterov=False)
    assert taken == locks
