"""Memory that is touched while a step is compiled: of the size that the same step needed before."""

import pytest

import headrace as tf
from headrace._src.compile.native import code_cache
from headrace._src.compile.run import memory_ahead
from headrace._src.compile.run.memory_ahead import TouchedMemory, claim, touching
from headrace._src.graph.dataflow import Dataflow
from tests.unit.compile.steps import session

SIZE = 3 * memory_ahead._STRETCH + 5
NOTHING = Dataflow((), (), (), ())


@pytest.fixture(autouse=True)
def two_cores_and_an_empty_cache(monkeypatch, tmp_path):
    target = memory_ahead.host()
    monkeypatch.setattr(memory_ahead, "host", lambda: type(target)("", "", "", 16, 16, cores=2))
    monkeypatch.setattr(memory_ahead, "has_near_memory_only", lambda: True)
    monkeypatch.setattr(memory_ahead, "_LEAST", 1)
    store = code_cache.CacheDirectory(tmp_path, 2**20)
    monkeypatch.setattr(code_cache, "store", lambda: store)


@pytest.fixture
def touched(monkeypatch):
    """The blocks that were touched, in order."""
    found = []

    class Noted(TouchedMemory):
        def __init__(self, size):
            super().__init__(size)
            found.append(self)

    monkeypatch.setattr(memory_ahead, "TouchedMemory", Noted)
    return found


def test_nobody_writes_to_memory_that_was_taken():
    memory = TouchedMemory(SIZE)
    taken = memory.take()
    assert taken.nbytes == SIZE
    assert not memory._thread.is_alive()


def test_all_pages_are_touched():
    memory = TouchedMemory(SIZE)
    memory._memory[:] = 1
    memory._touch()
    taken = memory.take()
    assert not taken[:: memory_ahead._PAGE].any()


def test_the_next_time_memory_of_the_size_that_was_wanted_is_touched(touched):
    with touching(NOTHING):
        assert claim(SIZE) is None  # nothing is known yet
        assert claim(SIZE - 1) is None
    with touching(NOTHING):
        assert claim(SIZE - 1) is None  # the size of a smaller cluster
        assert claim(SIZE) is touched[0]
        assert claim(SIZE) is None  # it can be taken once
    assert [memory.size for memory in touched] == [SIZE]
    assert not touched[0]._taken


def test_memory_that_nobody_wants_is_not_touched_any_longer(touched):
    with touching(NOTHING):
        claim(SIZE)
    with touching(NOTHING):
        claim(SIZE + 1)
    assert touched[0]._taken
    assert not touched[0]._thread.is_alive()
    with touching(NOTHING):  # as much as was wanted the last time
        assert claim(SIZE + 1) is touched[1]


def test_memory_belongs_to_the_step_that_is_being_compiled(touched):
    with touching(NOTHING):
        claim(SIZE)
    assert claim(SIZE) is None
    assert touched == []


def test_a_step_works_in_the_memory_that_was_touched_for_it(touched):
    x = tf.placeholder("float32", [32, 32])
    y = tf.matmul(tf.tanh(tf.matmul(x, x)), x)
    value = [[0.01 * (i - j) for i in range(32)] for j in range(32)]
    results = []
    for _ in range(2):
        with session(True) as run:
            results.append(run.run(y, {x: value}))
    (memory,) = touched
    assert memory._taken
    assert (results[0] == results[1]).all()
