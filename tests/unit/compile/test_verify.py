"""Each promise of a plan is checked: a plan that breaks it is refused, and the error says where."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.plan.plan import Buffer, Call, Jump, Plan
from headrace._src.compile.plan.team_barriers import with_barriers
from headrace._src.compile.plan.verify_plan import verify_plan
from headrace._src.compile.run.driver import Full, NativeCluster
from headrace._src.core.errors import InternalError
from tests.unit.compile.steps import clusters


@dataclass(frozen=True)
class Kernel:
    """A kernel that is never run: only what it declares matters."""

    arguments: tuple[str, ...]
    fills: tuple[str, ...] = ()
    counters = 0

    def scratch(self, threads):
        return 0


COPY = Kernel(("x", "out:y"))
ADD = Kernel(("a", "b", "out:y"))
UPDATE = Kernel(("x", "inout:w"))
PUSH = Kernel(("x", "inout:rows"), fills=("inout:rows",))
SIZE = 64


def arena(offset, size=SIZE, **more):
    return Buffer("arena", "float32", size, offset=offset, **more)


X, Y = Buffer("input", "float32", SIZE, 0), Buffer("output", "float32", SIZE, 0)
W = Buffer("variable", "float32", SIZE, 0)
FLAG = Buffer("input", "bool", 1, 1)


def plan(buffers, *calls, size=None, **more):
    """A plan of (kernel, buffers) pairs, with the barriers that it needs."""
    made = with_barriers([Call(kernel, tuple(b)) for kernel, b in calls], buffers)
    ends = [b.offset + b.size for b in buffers if b.kind == "arena"]
    return Plan(tuple(buffers), tuple(made), max(ends, default=0) if size is None else size, **more)


def chain():
    """x -> b2 -> b3 -> b2 -> y: the third value lies where the first did."""
    return plan([X, Y, arena(0), arena(64)], (COPY, (0, 2)), (COPY, (2, 3)), (COPY, (3, 1)))


def loop(temporary_offset):
    """b2 is filled before the loop and read in each iteration, which also uses b3."""
    return plan(
        [X, Y, arena(0), arena(temporary_offset), FLAG],
        (COPY, (0, 2)),
        (Jump(5, True), (4,)),
        (ADD, (0, 2, 1)),
        (COPY, (0, 3)),
        (Jump(1, False), ()),
        (COPY, (0, 1)),
    )


def refused(broken, message):
    with pytest.raises(InternalError, match=message):
        verify_plan(broken)


def test_good_plans_pass():
    verify_plan(chain())
    verify_plan(loop(64))
    verify_plan(plan([X, W], (UPDATE, (0, 1))))


def test_a_buffer_that_is_read_later_keeps_its_bytes():
    buffers = [X, Y, arena(0), arena(32)]
    refused(
        plan(buffers, (COPY, (0, 2)), (COPY, (0, 3)), (COPY, (2, 1))),
        r"call 2 reads b2 .*overwritten by another buffer \(b3\)",
    )


def test_a_buffer_that_the_next_iteration_reads_keeps_its_bytes_through_the_loop():
    refused(loop(0), r"call 2 reads b2 .*overwritten by another buffer \(b3\)")


def test_rows_that_a_loop_fills_keep_their_bytes():
    buffers = [X, Y, arena(0, 256), arena(192), FLAG]
    calls = [
        (Jump(4, True), (4,)),
        (PUSH, (0, 2)),
        (COPY, (0, 3)),
        (Jump(0, False), ()),
        (COPY, (2, 1)),
    ]
    refused(plan(buffers, *calls), "call 4 reads b2")
    swapped = [calls[0], calls[2], calls[1], *calls[3:]]  # a row more doesn't bring back the others
    refused(plan(buffers, *swapped), "call 4 reads b2")
    buffers[3] = arena(256)
    verify_plan(plan(buffers, *calls))
    verify_plan(plan(buffers, *swapped))


def test_buffers_are_read_after_they_are_written():
    refused(plan([X, Y, arena(0)], (COPY, (2, 1))), "call 0 reads b2 before it is written")
    refused(
        plan([X, Y, arena(0)], (UPDATE, (0, 2)), (COPY, (2, 1))),
        "call 0 reads b2 before it is written",
    )


def test_a_part_has_the_contents_of_the_whole():
    parts = [X, Y, arena(0, 128), arena(64, whole=2)]
    verify_plan(plan(parts, (COPY, (0, 2)), (COPY, (3, 1))))
    verify_plan(plan(parts, (COPY, (0, 3)), (COPY, (2, 1))))
    refused(
        plan([X, Y, arena(0, 128), arena(96, whole=2)], (COPY, (0, 3)), (COPY, (2, 1))),
        "b3 is a part of b2, but lies outside it",
    )


def test_buffers_lie_in_the_arena():
    refused(replace(chain(), arena=100), "b3 lies outside the arena: 64 bytes at 64")
    unplaced = [X, Y, arena(-1)]
    refused(plan(unplaced, (COPY, (0, 2)), (COPY, (2, 1))), "b2 lies outside the arena")


def test_outputs_are_written():
    refused(plan([X, Y, arena(0)], (COPY, (0, 2))), "output b1 .*is not written")
    branch = plan([X, Y, FLAG], (Jump(2, True), (2,)), (COPY, (0, 1)))
    verify_plan(branch)  # of which the other side may leave it undefined


def test_calls_have_the_arguments_of_their_kernels():
    one = Plan((X, Y), (Call(COPY, (0,)),), 0)
    refused(one, r"call 0 has 1 buffers for the arguments \('x', 'out:y'\)")
    refused(Plan((X, Y), (Call(COPY, (0, 7)),), 0), "call 0 uses b7, which does not exist")


def test_inputs_and_constants_are_never_written():
    refused(plan([X, Y], (COPY, (1, 0))), "call 0 writes b0, which is input0")
    value = np.zeros(16, np.float32)
    constant = Buffer("constant", "float32", SIZE, value=value)
    refused(plan([X, constant], (UPDATE, (0, 1))), "call 0 writes b1, which is constant")


def test_constants_have_values():
    refused(plan([Buffer("constant", "float32", SIZE), Y], (COPY, (0, 1))), "constant b0 has no")


def test_a_call_writes_over_none_of_its_arguments():
    buffers = [X, Y, arena(0), arena(32)]
    calls = (COPY, (0, 2)), (COPY, (2, 3)), (COPY, (3, 1))
    refused(plan(buffers, *calls), "call 1 writes b3 over its argument b2")


def test_jumps_lead_to_calls():
    refused(plan([X, Y], (COPY, (0, 1)), (Jump(3, False), ())), "call 1 jumps to 3, of 2 calls")
    refused(plan([X, Y], (COPY, (0, 1)), (Jump(-1, False), ())), "call 1 jumps to -1")
    refused(plan([X, Y], (COPY, (0, 1)), (Jump(0, False), ())), "no path leads to the end")


def test_calls_that_conflict_have_a_barrier_between_them():
    good = chain()
    assert [call.barrier for call in good.calls] == [False, True, True]
    calls = [replace(call, barrier=False) for call in good.calls]
    refused(
        replace(good, calls=tuple(calls)), "calls 0 and 1 conflict, and no barrier separates them"
    )


def test_the_fault_word_is_zeroed_before_a_jump_and_kept():
    word, zero = Buffer("arena", "int64", 8, offset=0), Kernel(("out:word",))
    jump = (Jump(2, False), ())
    buffers = [X, Y, word, arena(64)]
    calls = [(zero, (2,)), jump, (COPY, (0, 3)), (COPY, (3, 1))]
    verify_plan(plan(buffers, *calls, fault=2))
    refused(plan(buffers, jump, calls[0], *calls[2:], fault=2), "call 0 reads b2 before")
    refused(
        plan([X, Y, word, arena(0)], calls[0], calls[2], (Jump(3, False), ()), calls[3], fault=2),
        "call 2 reads b2 .*overwritten by another",
    )
    refused(plan([X, Y, arena(0, 8)], (COPY, (0, 1)), fault=2), "the fault word b2 is of float32")


def test_kinds_of_buffers_are_known():
    refused(plan([X, Y, Buffer("heap", "float32", 4)], (COPY, (0, 1))), "b2 is of kind 'heap'")


def results(plan):
    """What a plan computes from certain numbers; None if it ends with a fault."""
    cluster = NativeCluster(plan, threads=1)
    random = np.random.RandomState(0)
    arrays = {"input": [], "output": [], "variable": []}
    for kind, found in arrays.items():
        for expected in (e for e in cluster._expected if e.what.startswith(kind)):
            found.append(random.uniform(-1, 1, expected.size).astype(expected.dtype))
    while True:
        try:
            cluster.run(*arrays.values())
        except Full:
            continue
        except Exception as error:
            return type(error)
        return [a.tobytes() for a in (*arrays["output"], *arrays["variable"])]


@pytest.mark.needs_llvm
def test_a_plan_that_passes_computes_what_it_should():
    """Whichever two buffers of a loop and its gradient share bytes: it's refused, or harmless."""
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 5, 8])
        outputs, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(8), x, dtype=tf.float32)
        fetches = [outputs, *tf.gradients(tf.reduce_sum(outputs**2), tf.trainable_variables())]
        found = max(clusters(fetches, {x: np.zeros((2, 5, 8))}), key=lambda c: len(c.plan.calls))
    good = found.plan
    expected = results(good)
    moved = [i for i, b in enumerate(good.buffers) if b.kind == "arena" and b.whole < 0]
    random = np.random.RandomState(1)
    refusals = 0
    for _ in range(120):
        a, b = random.choice(moved, 2, replace=False)
        buffers = list(good.buffers)
        buffers[a] = replace(buffers[a], offset=buffers[b].offset)
        calls = tuple(with_barriers(good.calls, buffers))
        end = max(b.offset + b.size for b in buffers if b.kind == "arena")
        broken = Plan(tuple(buffers), calls, max(good.arena, end), good.fault)
        try:
            verify_plan(broken)
        except InternalError:
            refusals += 1
        else:
            assert results(broken) == expected, (buffers[a], buffers[b])
    assert 30 < refusals < 120
