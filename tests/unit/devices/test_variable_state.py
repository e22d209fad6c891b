"""A variable's memory is its own: what readers hold never changes, and nothing else is copied."""

import threading

import numpy as np
import pytest

from headrace._src.core import dtypes
from headrace._src.core.errors import FailedPreconditionError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.allocator import Allocator
from headrace._src.devices.buffers import address
from headrace._src.devices.variable_state import VariableState, new_memory, shared

# Small arrays, mapped ones, and what holds Python objects lie in memory of different kinds.
VALUES = {
    "small": np.arange(12, dtype=np.float32).reshape(3, 4),
    "large": np.arange(2**19, dtype=np.float32).reshape(2, -1),
    "scalar": np.array(3.0, np.float32),
    "empty": np.zeros((0, 4), np.float32),
    "strings": np.array([[b"a", b"b"], [b"c", b"d"]], object),
}


def variable(value):
    found = VariableState("v", dtypes.of_array(value), TensorShape.of(value.shape))
    found.assign(value)
    return found


def change(state, value):
    state.assign(np.zeros_like(value) if value.dtype != object else np.full_like(value, b"z"))


# What a kernel, or whoever is given its result, may make of an array without copying.
DERIVED = {
    "itself": lambda a: a,
    "slice": lambda a: a[1:],
    "slice of a slice": lambda a: a[1:][:, 1:],
    "row": lambda a: a[0],
    "reshaped": lambda a: a.reshape(-1),
    "transposed": lambda a: a.T,
    "transposed and cut": lambda a: a.T[1:].T,
    "swapped": lambda a: np.swapaxes(a, 0, 1)[..., None][1:],
    "asarray": np.asarray,
    "ascontiguousarray": np.ascontiguousarray,
    "atleast_3d": np.atleast_3d,
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "squeezed": lambda a: np.squeeze(a[None]),
    "other type": lambda a: a.view(np.int32),
    "real": lambda a: a.real,
    "diagonal": lambda a: np.diagonal(a),
    "split": lambda a: np.split(a, [1])[1],
    "strided": lambda a: np.lib.stride_tricks.as_strided(a, (2, 2)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=1),
    "memoryview": memoryview,
    "memoryview of a slice": lambda a: memoryview(a[1:])[1:],
    "frombuffer": lambda a: np.frombuffer(a, np.uint8),
    "ndarray": lambda a: np.ndarray(a.shape, a.dtype, a),
    "subclass": lambda a: a.view(np.recarray),
    "ctypes": lambda a: a.ctypes.data_as(np.ctypeslib.ctypes.c_void_p),
    "iterator": lambda a: a.flat,
    "interface": lambda a: np.asarray(_Interface(a)),
}


class _Interface:
    def __init__(self, array):
        self._array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_whatever_is_made_of_a_value_that_was_read_keeps_it(derive, size):
    value = VALUES[size]
    state = variable(value)
    before = address(state.look())
    held = derive(state.read())
    change(state, value)
    assert address(state.look()) != before
    assert not state.read().any()
    del held
    change(state, value)
    change(state, value)


@pytest.mark.parametrize("size", ["small", "large"])
def test_what_dlpack_exports_keeps_the_value(size):
    state = variable(VALUES[size])
    try:
        held = state.read().__dlpack__()
    except BufferError:  # a NumPy that exports no read-only arrays
        return
    before = address(state.look())
    change(state, VALUES[size])
    assert address(state.look()) != before
    del held


@pytest.mark.parametrize("size", ["small", "large", "scalar", "strings"])
def test_updates_are_in_place_while_nothing_is_held(size):
    value = VALUES[size]
    state = variable(value)
    before = address(state.look())
    for _ in range(3):
        state.read()
        derived = state.read()[...].reshape(-1)[:1]
        copied = np.array(derived)
        del derived
        change(state, value)
        assert address(state.look()) == before
        with state.lock:
            state.writable()[...] = value
        assert address(state.look()) == before
    assert copied.shape == (1,)


@pytest.mark.parametrize("name", VALUES)
def test_a_reader_keeps_what_was_read_through_every_kind_of_update(name):
    value = VALUES[name]
    state = variable(value)
    readings = []

    def read():
        readings.append((state.read(), np.array(state.read())))

    read()
    change(state, value)
    read()
    with state.lock:
        state.writable()[...] = value
    read()
    if value.dtype != object:
        state.update(np.add, np.ones_like(value))
        read()
        state.update(np.add, np.ones_like(value))
    state.assign(value[:0] if value.ndim else np.ones(3, np.float32))
    for found, then in readings:
        np.testing.assert_array_equal(found, then)


def test_a_value_that_is_read_again_is_lent_once():
    state = variable(VALUES["small"])
    assert state.read() is state.read()


def test_what_is_read_cannot_be_written():
    found = variable(VALUES["small"]).read()
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_a_variable_does_not_keep_what_it_was_assigned():
    given = VALUES["small"].copy()
    state = variable(given)
    given[:] = 9
    np.testing.assert_array_equal(state.read(), VALUES["small"])
    state.assign(state.read())
    state.assign(state.read()[::-1])
    np.testing.assert_array_equal(state.read(), VALUES["small"][::-1])


def test_only_memory_for_variables_is_adopted():
    state = VariableState("v", dtypes.float32, TensorShape([2]))
    for foreign in (np.ones(2, np.float32), np.ones(4, np.float32)[:2]):
        with pytest.raises(TypeError, match="adopts"):
            state.adopt(foreign)
    assert not state.is_initialized
    memory = new_memory((2,), np.dtype(np.float32))
    memory[:] = 5
    state.adopt(memory)
    assert state.is_initialized and state.sizes == (2,)
    assert address(state.look()) == address(memory)
    held = state.read()
    change(state, held)
    np.testing.assert_array_equal(held, [5, 5])


@pytest.mark.parametrize("name", VALUES)
def test_an_array_that_is_taken_over_is_lent_as_any_other(name):
    state = variable(VALUES[name])
    state.replace(VALUES[name].copy())
    np.testing.assert_array_equal(state.read(), VALUES[name])
    held = state.read()[...].reshape(-1)[:1]
    then = held.copy()
    change(state, VALUES[name])
    np.testing.assert_array_equal(held, then)
    del held
    before = address(state.look())
    with state.lock:
        state.writable()[...] = VALUES[name]
    assert address(state.look()) == before
    np.testing.assert_array_equal(state.read(), VALUES[name])


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_whatever_is_made_of_a_value_that_was_taken_over_keeps_it(derive):
    state = variable(VALUES["large"])
    state.replace(VALUES["large"].copy())
    before = address(state.look())
    held = derive(state.read())
    change(state, VALUES["large"])
    assert address(state.look()) != before
    del held


def test_what_belongs_to_another_array_is_not_taken_over():
    state = variable(VALUES["large"])
    whole = np.stack([VALUES["large"]] * 2)
    for given in (whole[0], VALUES["large"].T, np.broadcast_to(np.float32(1), (2, 2**18))):
        state.replace(given)
        assert not np.shares_memory(state.look(), given)
        np.testing.assert_array_equal(state.read(), given)


def test_what_has_no_value_says_so():
    state = VariableState("v", dtypes.float32, TensorShape([2]))
    for use in (
        state.read,
        state.look,
        state.writable,
        lambda: state.update(np.add, np.ones(2, np.float32)),
    ):
        with pytest.raises(FailedPreconditionError, match="uninitialized value v"):
            use()
    assert state.saved() == {}


def test_readers_beside_a_writer_see_whole_values():
    state = variable(np.zeros(1000, np.int64))
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            found = state.read()
            if found.min() != found.max():
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    try:
        for i in range(2000):
            with state.lock:
                array = state.writable()
                array[:500] = i
                array[500:] = i
            state.update(np.add, np.ones(1000, np.int64))
            state.assign(np.full(1000, i))
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert not wrong


class Shared:
    """Memory that another process reads as long as it is among `read`."""

    def __init__(self):
        self.given = []
        self.read = False
        self.full = False

    def allocate(self, nbytes):
        if self.full:
            raise MemoryError
        self.given.append(np.zeros(nbytes, np.uint8))
        return self.given[-1]

    def leased(self, array):
        return self.read and any(np.shares_memory(array, each) for each in self.given)

    def holds(self, array):
        return any(np.shares_memory(array, each) for each in self.given)


def on_a_server(value):
    allocator = Allocator()
    memory = allocator.shared = Shared()
    found = VariableState("v", dtypes.of_array(value), TensorShape.of(value.shape), allocator)
    found.assign(value)
    return found, memory


def test_a_variable_that_is_sent_moves_to_shared_memory_and_stays_there():
    value = VALUES["large"]
    state, memory = on_a_server(value)
    assert not memory.given  # others have no use for it yet
    first = state.read()
    sent = shared(first)
    assert memory.holds(sent) and not memory.holds(first)
    np.testing.assert_array_equal(sent, value)
    again = shared(state.read())
    assert again is state.read() and len(memory.given) == 1
    del first, sent, again
    place = address(state.look())
    state.update(np.add, np.float32(1))
    assert address(state.look()) == place and memory.holds(state.look())


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state.update(np.add, np.float32(1)),
        lambda state: state.assign(VALUES["large"] + 1),
        lambda state: np.add(state.writable(), np.float32(1), out=state.look()),
    ],
)
def test_what_another_process_reads_does_not_change(write):
    state, memory = on_a_server(VALUES["large"])
    shared(state.read())
    memory.read = True
    with state.lock:
        write(state)
    before, now = memory.given[0].view(np.float32), state.look()
    np.testing.assert_array_equal(before, VALUES["large"].reshape(-1))
    np.testing.assert_array_equal(now, VALUES["large"] + 1)
    assert memory.holds(now) and not np.shares_memory(before, now)


def test_values_that_cannot_or_need_not_move_are_sent_as_they_are():
    state, memory = on_a_server(VALUES["small"])
    lent = state.read()
    assert shared(lent) is lent  # small
    state, memory = on_a_server(VALUES["large"])
    lent = state.read()
    memory.full = True
    assert shared(lent) is lent
    memory.full = False
    state.assign(VALUES["large"] * 2)
    assert shared(lent) is lent and not memory.given  # the variable has changed since
    alone = variable(VALUES["large"]).read()
    assert shared(alone) is alone
    plain = np.zeros(2**20, np.float32)
    assert shared(plain) is plain
