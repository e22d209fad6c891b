"""Collectives among ranks: over shared memory, over rings, and both."""

import gc
import queue
import random
import socket
import threading
import time
import weakref
from concurrent.futures import Future

import ml_dtypes
import numpy as np
import pytest

from headrace._src.collectives import messages, operations, page_pipe, shared_reduce
from headrace._src.collectives.membership import Begin, Member
from headrace._src.core.errors import FailedPreconditionError, InvalidArgumentError
from headrace._src.devices.collectives import RankLostError
from headrace._src.devices.pending import Pending
from headrace._src.horovod.process import wait
from headrace._src.transport.connect import Connection
from headrace._src.transport.handshake import Hello

# Two ranks with shared memory, two without, hosts of equal and of different sizes.
PLACES = {
    "shared": ["a", "a"],
    "shared by 4": ["a"] * 4,
    "ring": None,
    "hierarchical": ["a", "a", "b", "b"],
    "uneven": ["a", "b", "a"],
}


@pytest.fixture(params=PLACES)
def placed(request, ranks):
    hosts = PLACES[request.param]
    return ranks(3 if hosts is None else len(hosts), hosts)


def arrays(rank, dtype="float32"):
    """Several tensors of a rank: small, large, empty and without dimensions."""
    numbers = np.random.default_rng(rank)
    shapes = [(3, 5), (300, 301), (0, 2), (), (70_000,)]
    return [numbers.integers(-9, 9, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "bfloat16"])
def test_sum(placed, dtype):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    wanted = [sum(each) for each in zip(*(arrays(c.rank, dtype) for c in placed.all), strict=True)]
    for found in placed.run(lambda c: c.all_reduce("x", arrays(c.rank, dtype))):
        for made, right in zip(found, wanted, strict=True):
            assert made.dtype == dtype
            assert made.shape == right.shape
            np.testing.assert_array_equal(made, right.astype(dtype))


@pytest.mark.parametrize("merge", ["Mul", "Min", "Max"])
def test_other_merges(placed, merge):
    combine = {"Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}[merge]
    wanted = arrays(0)[1]
    for c in placed.all[1:]:
        wanted = combine(wanted, arrays(c.rank)[1])
    for (found,) in placed.run(lambda c: c.all_reduce("x", [arrays(c.rank)[1]], merge)):
        np.testing.assert_array_equal(found, wanted)


def test_average_is_the_same_everywhere(placed):
    count = len(placed.all)
    given = [np.random.default_rng(i).standard_normal(99_999).astype("f") for i in range(count)]
    found = placed.run(lambda c: c.all_reduce("x", [given[c.rank]], average=True))
    np.testing.assert_allclose(found[0][0], np.mean(given, 0), rtol=1e-5, atol=1e-6)
    for (other,) in found[1:]:
        assert other.tobytes() == found[0][0].tobytes()
    (whole,) = placed.run(lambda c: c.all_reduce("i", [np.int32([7, -7])], average=True))[0]
    assert whole.tolist() == [7, -7]


def test_integers_are_divided_towards_zero(ranks):
    placed = ranks(2, ["a", "a"])
    given = [np.int32([-3, 3, 5]), np.int32([0, 0, -8])]
    for (found,) in placed.run(lambda c: c.all_reduce("x", [given[c.rank]], average=True)):
        assert found.tolist() == [-1, 1, -1]


def test_numpy_gives_the_same(ranks, monkeypatch):
    """Without generated code, as on a machine without llvmlite."""
    monkeypatch.setattr(shared_reduce, "reduction", lambda spec: None)
    monkeypatch.setattr(shared_reduce, "waiter", lambda: None)
    placed = ranks(2, ["a", "a"])
    wanted = [a + b for a, b in zip(arrays(0), arrays(1), strict=True)]
    for found in placed.run(lambda c: c.all_reduce("x", arrays(c.rank))):
        for made, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(made, right)


@pytest.mark.parametrize("share", [True, False])
def test_two_ranks_divide_the_work_where_cores_share_a_cache(ranks, monkeypatch, share):
    """Elsewhere each computes all of a small result, and writes to no memory of the other."""
    monkeypatch.setattr(shared_reduce, "cores_share_a_cache", lambda: share)
    placed = ranks(2, ["a", "a"])
    wanted = [a + b for a, b in zip(arrays(0), arrays(1), strict=True)]
    for _ in range(3):
        for found in placed.run(lambda c: c.all_reduce("x", arrays(c.rank))):
            for made, right in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(made, right)
    assert shared_reduce.ReducePlan(arrays(0), "Add", 1).alone is not share


def test_results_take_the_place_of_inputs(ranks):
    """On one host; also where another rank keeps its inputs. Nothing but the inputs changes."""
    placed = ranks(3, ["a", "a", "a"])
    spare = {0, 2}
    wanted = [np.sum(each, 0) for each in zip(*(arrays(r) for r in range(3)), strict=True)]
    kept = []

    def start(c):
        given = arrays(c.rank)
        for i, each in enumerate(given):
            if each.nbytes > 1000:  # the others are not in shared memory, so they are copied
                given[i] = np.ndarray(each.shape, each.dtype, c.memory.allocate(each.nbytes))
                given[i][...] = each
        kept.append((c.rank, given))
        return c.all_reduce("x", given, in_place=c.rank in spare)

    rounds = [placed.run(start) for _ in range(3)]  # results of a round outlive the next ones
    for made, right in [(m, w) for r in rounds for each in r for m, w in zip(each, wanted)]:
        np.testing.assert_array_equal(made, right)
    for rank, given in kept:
        for before, after, total in zip(arrays(rank), given, wanted, strict=True):
            in_place = rank in spare and after.nbytes > 1000
            np.testing.assert_array_equal(after, total if in_place else before)


@pytest.mark.parametrize("hosts", [["a", "b"], ["a", "a"]])
def test_inputs_stay_where_others_still_read_them(ranks, monkeypatch, hosts):
    """A ring sends them; two ranks whose cores share no cache each read all."""
    monkeypatch.setattr(shared_reduce, "cores_share_a_cache", lambda: False)
    placed = ranks(2, hosts)
    given = [np.full(70_000, c.rank + 1, "f") for c in placed.all]
    for (found,) in placed.run(lambda c: c.all_reduce("x", [given[c.rank]], in_place=True)):
        assert (found == 3).all()
    assert [g[0] for g in given] == [1, 2]


def test_nothing_is_moved_twice(placed):
    """Each rank moves at most 2.1 (n - 1) / n of the size, and nothing to the coordinator."""
    count, size = len(placed.all), 1 << 20
    before = [(c.moved.shared + c.moved.sent, c.moved.control) for c in placed.all]
    placed.run(lambda c: c.all_reduce("x", [np.ones(size // 4, "f")]))
    for c, (moved, control) in zip(placed.all, before, strict=True):
        if c.epoch.owners < len(c.epoch.sharing):
            continue  # the first of two processes works for both, next to a host that has one
        assert c.moved.shared + c.moved.sent - moved <= 2.1 * (count - 1) / count * size
        assert c.moved.control == control


@pytest.mark.parametrize("seed", range(3))
def test_different_schedules_do_not_deadlock(placed, seed):
    """Each rank starts its collectives in an order of its own, and none waits for another."""
    names = [f"n{i}" for i in range(6)]

    def start_all(c):
        order = random.Random(seed * 100 + c.rank).sample(names, len(names))
        started = {}
        for name in order:
            if name == "n0":
                started[name] = c.all_gather(name, np.full([1], c.rank))
            elif name == "n1":
                started[name] = c.broadcast(name, np.full([1], c.rank), 1)
            else:
                started[name] = c.all_reduce(name, [np.full([1000], c.rank, "f")])
        return started

    def whole(c):
        return {name: wait(each) for name, each in start_all(c).items()}

    count = len(placed.all)
    for found in placed.run(whole):
        assert found["n0"].tolist() == list(range(count))
        assert found["n1"].tolist() == [1]
        for name in names[2:]:
            assert (found[name][0] == count * (count - 1) / 2).all()


def test_rounds_follow_each_other(placed):
    def many(c):
        return [
            float(wait(c.all_reduce("x", [np.full([50_000], i + c.rank, "f")]))[0][-1])
            for i in range(20)
        ]

    count = len(placed.all)
    base = count * (count - 1) / 2
    for found in placed.run(many):
        assert found == [count * i + base for i in range(20)]


def test_gather_takes_different_lengths(placed):
    given = [np.arange(2 * c.rank, dtype="i4").reshape(c.rank, 2) for c in placed.all]
    for found in placed.run(lambda c: c.all_gather("x", given[c.rank])):
        np.testing.assert_array_equal(found, np.concatenate(given))


def test_large_parts_travel(placed):
    given = [np.full((100_000,), c.rank, "f8") for c in placed.all]
    for found in placed.run(lambda c: c.all_gather("x", given[c.rank])):
        np.testing.assert_array_equal(found, np.concatenate(given))
    for found in placed.run(lambda c: c.broadcast("y", given[c.rank], 1)):
        np.testing.assert_array_equal(found, given[1])


def test_mismatched_shapes_are_an_error_everywhere(ranks):
    placed = ranks(2, ["a", "a"])
    for found in placed.run(lambda c: c.all_reduce("x", [np.ones(3 + c.rank, "f")])):
        assert isinstance(found, InvalidArgumentError)
        assert "Mismatched all-reduce 'x'" in found.message
    # The next round is not affected.
    for (found,) in placed.run(lambda c: c.all_reduce("x", [np.ones(3, "f")])):
        assert found.tolist() == [2, 2, 2]
    for found in placed.run(lambda c: c.all_gather("g", np.ones([1, 2 + c.rank], "f"))):
        assert isinstance(found, InvalidArgumentError)


@pytest.mark.parametrize("other", [np.ones(4, "f"), np.ones(3, "i4"), np.ones((3, 1), "f")])
def test_a_broadcast_of_another_type_or_shape_is_an_error(ranks, other):
    """Each rank's graph was compiled for what that rank has."""
    placed = ranks(2, ["a", "a"])
    own = np.ones(3, "f")
    first, second = placed.run(lambda c: c.broadcast("x", other if c.rank else own, 0))
    assert first.tolist() == [1, 1, 1]
    assert isinstance(second, InvalidArgumentError)
    assert "Mismatched broadcast 'x': the root, rank 0, has float32[3]" in second.message
    for found in placed.run(lambda c: c.broadcast("x", own, 0)):
        assert found.tolist() == [1, 1, 1]


def test_a_broadcast_of_two_roots_is_an_error(ranks):
    """A root does not wait, so it may hear of the other one later."""
    placed = ranks(2, ["a", "a"])
    for found in placed.run(lambda c: c.broadcast("x", np.full(1, c.rank), c.rank)):
        assert isinstance(found, InvalidArgumentError | np.ndarray)
    for found in placed.run(lambda c: c.broadcast("y", np.ones(1), 1 - c.rank)):
        assert isinstance(found, RankLostError)
        assert "has begun broadcast 'x' of other roots" in found.message


def test_a_root_that_another_rank_does_not_expect_is_an_error(ranks):
    placed = ranks(3, ["a", "a", "a"])
    roots = [0, 2, 0]
    found = placed.run(lambda c: c.broadcast("x", np.zeros(1), roots[c.rank]))
    assert isinstance(found[1], InvalidArgumentError)
    assert "its root is rank 2 here, and rank 0 there" in found[1].message


def test_a_mismatch_in_a_ring_ends_the_epoch(ranks):
    placed = ranks(2)
    for found in placed.run(lambda c: c.all_reduce("x", [np.ones(3 + c.rank, "f")])):
        assert isinstance(found, InvalidArgumentError | RankLostError)
        assert "Mismatched all-reduce 'x'" in found.message


def test_bad_arguments(ranks):
    placed = ranks(2, ["a", "a"])
    for found in placed.run(lambda c: c.broadcast("x", np.ones(1), 2)):
        assert isinstance(found, InvalidArgumentError)
    for found in placed.run(lambda c: c.all_gather("x", np.float32(1))):
        assert isinstance(found, InvalidArgumentError)


def test_a_blocked_collective_holds_no_thread(ranks):
    """It returns a Pending, which says who is late; a second start of it is an error."""
    first, second = ranks(2, ["a", "a"]).all
    pending = first.all_reduce("x", [np.ones(3, "f")])
    assert isinstance(pending, Pending)
    assert pending.what == "all-reduce 'x': ranks [1] are not there yet"
    with pytest.raises(FailedPreconditionError, match="already under way"):
        first.all_reduce("x", [np.ones(3, "f")])
    second_result = second.all_reduce("x", [np.ones(3, "f")])
    assert wait(pending)[0].tolist() == [2, 2, 2]
    assert wait(second_result)[0].tolist() == [2, 2, 2]


@pytest.mark.parametrize("hosts", [["a", "a", "a"], None])
def test_a_lost_rank_ends_what_waits_for_it(ranks, hosts):
    placed = ranks(3, hosts)
    rest, gone = placed.all[:2], placed.all[2]
    pending = [c.all_reduce("x", [np.ones(3, "f")]) for c in rest]
    placed.kill(gone)
    for found in placed.run(lambda c: pending[c.rank], rest):
        assert isinstance(found, RankLostError)
        assert "rank 2 is gone" in found.message
        assert "did not answer" not in found.message  # nobody has waited for heartbeats
    for found in placed.run(lambda c: c.all_gather("y", np.ones(1)), rest):
        assert isinstance(found, RankLostError)


def test_a_rank_may_end_before_the_others_have_looked(ranks):
    """What it has taken part in is completed."""
    first, second = ranks(2, ["a", "a"]).all
    pending = first.all_reduce("x", [np.ones(3, "f")])
    second.all_reduce("x", [np.ones(3, "f")])
    second.close()
    assert wait(pending)[0].tolist() == [2, 2, 2]
    with pytest.raises(RankLostError, match="rank 1 has ended"):
        wait(first.all_reduce("x", [np.ones(3, "f")]))


@pytest.mark.parametrize("hosts", [["a", "a"], None])
def test_a_rank_that_has_ended_is_not_called_lost(ranks, hosts):
    """Its farewell counts, also if something is sent to it before that was read."""
    first, second = ranks(2, hosts).all
    reading = threading.Event()
    first.loop.call_soon(reading.wait)
    second.close()
    try:
        pending = [first.broadcast(name, np.arange(3), 0) for name in "ab"]
        gathered = first.all_gather("c", np.arange(3))
    finally:
        reading.set()
    assert [each.tolist() for each in map(wait, pending)] == [[0, 1, 2]] * 2
    with pytest.raises(RankLostError, match="rank 1 has ended"):
        wait(gathered)


@pytest.mark.parametrize("hosts", [["a", "a"], None])
def test_what_a_rank_has_sent_outlives_it(ranks, hosts):
    first, second = ranks(2, hosts).all
    first.broadcast("x", np.arange(3), 0)
    first.close()
    with pytest.raises(RankLostError, match="rank 0 has ended"):
        wait(second.broadcast("y", np.arange(3), 0))
    assert wait(second.broadcast("x", np.zeros(3, int), 0)).tolist() == [0, 1, 2]


def test_a_cancelled_collective_ends_the_epoch(ranks):
    """The other ranks can't know what became of it."""
    first, second = ranks(2, ["a", "a"]).all
    pending = first.all_reduce("x", [np.ones(3, "f")])
    pending.cancel(RuntimeError("enough"))
    with pytest.raises(RankLostError, match="rank 0 gave up all-reduce 'x'"):
        first.all_reduce("y", [np.ones(3, "f")])
    with pytest.raises(RankLostError, match="rank 0 gave up all-reduce 'x'"):
        wait(second.all_reduce("y", [np.ones(3, "f")]))  # x may be over before it hears of it


@pytest.mark.parametrize("hosts", [["a", "a", "a"], None])
def test_survivors_go_on_and_others_join(ranks, hosts):
    placed = ranks(3, None if hosts is None else hosts * 2, least=1)
    gone, *rest = placed.all
    placed.kill(gone)
    placed.run(lambda c: c.next_epoch(10), rest)
    assert [(c.epoch.number, c.rank, c.size) for c in rest] == [(2, 0, 2), (2, 1, 2)]
    for (found,) in placed.run(lambda c: c.all_reduce("x", [np.ones(70_000, "f")]), rest):
        assert (found == 2).all()
    joining = placed.join(2)
    while not all(c.waiting for c in rest):
        time.sleep(0.01)
    placed.run(lambda c: c.next_epoch(10), rest)
    new = joining.result(10)
    placed.all.append(new)
    everybody = [*rest, new]
    assert [(c.epoch.number, c.rank, c.size) for c in everybody] == [(3, i, 3) for i in range(3)]
    for (found,) in placed.run(lambda c: c.all_reduce("x", [np.ones(70_000, "f")]), everybody):
        assert (found == 3).all()


def in_loop(c, call):
    """Call a function in the thread of a rank's loop."""
    over = Future()
    c.loop.call_soon(lambda: over.set_result(call()))
    return over.result(20)


def epoch_with_another(c, number, reachable=True):
    """Begin an epoch with a rank that does not come; return the socket of one of its streams."""
    ours, theirs = socket.socketpair()
    theirs.close()
    other = Member(1, "127.0.0.1:1", "elsewhere", "elsewhere")
    mine = c.epoch.members[0]
    c._begin(Begin(number, (mine, other) if reachable else (other, mine)))
    hello = Hello("task", "rank", 1, cookie=messages.number_pair(number, 7))
    c._stream_connected(Connection(ours, hello, other.address, True))
    return ours


@pytest.mark.parametrize("then", ["next epoch", "close"])
def test_connections_of_an_epoch_that_never_runs_are_closed(ranks, then):
    (c,) = ranks(1).all
    stream = in_loop(c, lambda: epoch_with_another(c, 2))
    assert stream.fileno() >= 0
    if then == "close":
        c.close()
    else:
        in_loop(c, lambda: c._begin(Begin(3, c.epoch.members)))
    assert stream.fileno() < 0


def test_a_rank_that_an_earlier_epoch_misses_does_not_end_the_next(ranks):
    (c,) = ranks(1).all
    reached, answers = c._reached, queue.Queue()
    c._reached = lambda *what: answers.put((reached(*what), what[-1]))

    def begin_both():
        epoch_with_another(c, 2, reachable=False)
        c._begin(Begin(3, c.run.epoch.members))

    in_loop(c, begin_both)
    assert isinstance(answers.get(timeout=60)[1], Exception)
    assert c.epoch.number == 3
    assert wait(c.all_gather("x", np.arange(3))).tolist() == [0, 1, 2]


def test_segments_of_a_large_tensor(ranks, monkeypatch):
    monkeypatch.setattr(operations, "SEGMENT_BYTES", 4096)
    placed = ranks(3)
    for (found,) in placed.run(lambda c: c.all_reduce("x", [np.full(100_000, c.rank, "f")])):
        assert (found == 3).all()


@pytest.fixture
def streaming(monkeypatch):
    """All rings are streams, however small they are."""
    monkeypatch.setattr(operations, "STREAMED_FROM", 1)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_sum_by_streams(streaming, placed, dtype):
    test_sum(placed, dtype)


@pytest.mark.parametrize("pages", [True, False], ids=["in place", "copied"])
def test_large_streams(streaming, ranks, monkeypatch, pages):
    """Pieces of several segments, more than sockets take at once; rounds that follow each other."""
    if not pages:
        monkeypatch.setattr(page_pipe, "_vmsplice", lambda: None)
    placed = ranks(3)
    given = [np.random.default_rng(i).integers(-99, 99, 3_000_000).astype("f") for i in range(3)]

    def twice(c):
        first = wait(c.all_reduce("x", [given[c.rank], given[c.rank][:5]]))
        return [*first, *wait(c.all_reduce("x", first))]

    for found in placed.run(twice):
        np.testing.assert_array_equal(found[0], sum(given))
        np.testing.assert_array_equal(found[1], sum(given)[:5])
        np.testing.assert_array_equal(found[2], 3 * sum(given))


def test_streams_in_different_orders(streaming, ranks):
    placed = ranks(3)

    def whole(c):
        names = random.Random(c.rank).sample([f"n{i}" for i in range(6)], 6)
        started = {n: c.all_reduce(n, [np.full(99_999, c.rank + int(n[1]), "f")]) for n in names}
        return {name: wait(each)[0] for name, each in started.items()}

    for found in placed.run(whole):
        assert all((found[f"n{i}"] == 3 + 3 * i).all() for i in range(6))


def test_a_stream_and_segments_do_not_fit_together(ranks, monkeypatch):
    """One rank has enough for a stream, the other has not: both hear of it."""
    placed = ranks(2)
    monkeypatch.setattr(operations, "STREAMED_FROM", 1 << 10)
    for found in placed.run(lambda c: c.all_reduce("x", [np.ones(100 + 400 * c.rank, "f")])):
        assert isinstance(found, InvalidArgumentError | RankLostError)
        assert "Mismatched all-reduce 'x'" in found.message


def test_a_mismatch_of_streams(streaming, ranks):
    placed = ranks(2)
    for found in placed.run(lambda c: c.all_reduce("x", [np.ones(3 + c.rank, "f")])):
        assert isinstance(found, InvalidArgumentError | RankLostError)
        assert "Mismatched all-reduce 'x'" in found.message


def test_a_lost_rank_ends_streams(streaming, ranks):
    test_a_lost_rank_ends_what_waits_for_it(ranks, None)


def test_streams_of_the_next_epoch(streaming, ranks):
    test_survivors_go_on_and_others_join(ranks, None)


def test_in_the_background(placed):
    """Ranks start several in different orders, in the thread of the communicator or not."""

    def whole(c):
        names = random.Random(c.rank).sample([f"n{i}" for i in range(5)], 5)
        given = {n: [np.full(70_000, c.rank + int(n[1]), "f")] for n in names}
        started = {n: c.all_reduce(n, given[n], background=c.rank != 1) for n in names}
        return {name: wait(each)[0] for name, each in started.items()}

    count = len(placed.all)
    for found in placed.run(whole):
        for i in range(5):
            assert (found[f"n{i}"] == count * (count - 1) / 2 + count * i).all()


def test_a_cancelled_collective_in_the_background(ranks):
    first, second = ranks(2, ["a", "a"]).all
    first.all_reduce("x", [np.ones(3, "f")], background=True).cancel(RuntimeError("enough"))
    with pytest.raises(RankLostError, match="rank 0 gave up all-reduce 'x'"):
        wait(second.all_reduce("y", [np.ones(3, "f")], background=True))


@pytest.mark.parametrize("hosts", [["a", "a"], None])
def test_a_closed_rank_leaves_no_memory_and_no_descriptors(ranks, hosts):
    found = ranks(2, hosts)
    given = np.ones(200_000, np.float32)
    found.run(lambda each: each.all_reduce("x", [given]))
    found.close()
    left = [weakref.ref(part) for each in found.all for part in (each, each.loop, each.arena)]
    found.all.clear()
    end = time.monotonic() + 20.0
    while any(part() is not None for part in left) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.05)
    assert [part() for part in left] == [None] * 6
