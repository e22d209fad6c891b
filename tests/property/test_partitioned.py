"""A step on several devices computes what it computes on one: random graphs, placements, control
flow and gradients. Nothing hangs, also where values go back and forth between devices.
"""

from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.graph.program import Program
from headrace._src.graph.structured import is_loop, parts_of
from headrace._src.partition import join
from headrace._src.runtime.partitions import PartitionedExecutable
from tests.property.random_steps import MATRICES, Step
from tests.property.watchdog import watched

KINDS = ["unary", "binary", "reduce", "reshape", "transpose", "concat", "matmul", "slice"]
DEVICES = 3


def config(count, jit, checked=False):
    levels = {"off": tf.OptimizerOptions.OFF, "always": tf.OptimizerOptions.ON_1}
    options = tf.OptimizerOptions(global_jit_level=levels[jit])
    made = tf.ConfigProto(
        device_count={"CPU": count},
        allow_soft_placement=True,
        graph_options=tf.GraphOptions(optimizer_options=options),
    )
    made.experimental.check_numerics = checked
    return made


class Scattered:
    """A device function that puts operations on random devices, some in a row on the same one."""

    def __init__(self, draw):
        self._rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="placement"))
        self._stay = draw(st.sampled_from([0.0, 0.5, 0.9]), label="stay")
        self._last = 0

    def __call__(self, op):
        if self._rng.random() >= self._stay:
            self._last = int(self._rng.integers(DEVICES))
        return f"/device:CPU:{self._last}"


def results(fetches, feeds, count, jit, seen=None, runs=2, driver="fixed"):
    """Return the values of each run in a session with `count` devices; count in `seen` what the
    programs contain. driver: "fixed" (the orders of the partitions), "joined" (one order),
    "counted" (a step with a deadline counts dependencies) or "as is" (a step whose numbers are
    checked is not specialised).
    """
    late = tf.RunOptions(timeout_in_ms=600_000) if driver == "counted" else None
    asked = config(count, jit, checked=driver == "as is")
    overlaps = mock.patch.object(join, "_overlaps", lambda _: driver != "joined")
    with tf.Session(config=asked) as session, watched(session), overlaps:
        session.run(tf.global_variables_initializer())
        found = [session.run(fetches, feeds, options=late) for _ in range(runs)]
        for plan in session._plans.values() if seen is not None else ():
            count_what_ran(plan.variants, seen)
    return found


def count_what_ran(variants, seen):
    for executable in (*variants._settled.values(), variants._as_is):
        if executable is None:
            continue
        count_loops(executable.program.instructions, seen)
        if isinstance(executable, PartitionedExecutable):
            program = executable.program
            assert isinstance(program, PartitionedProgram)
            seen["partitioned"] += 1
            seen["joined"] += program.joined is not None
            pairs = {(e.sender, e.receiver) for e in program.edges}
            seen["round trips"] += any((b, a) in pairs for a, b in pairs)
            for part in program.programs:
                clusters = sum(i.op.type == "_Cluster" for i in part.instructions)
                seen["clusters"] += clusters > 0
                seen["several regions"] += clusters > 1
        else:
            assert isinstance(executable.program, Program)


def count_loops(instructions, seen):
    """Count the loops of a program whose bodies have operations on several devices."""
    for op in [i.op for i in instructions]:
        seen["loops in pieces"] += op.type == "NextIteration"
        if is_loop(op):
            devices = {i.op.device for i in op.attrs["body"].instructions if i.op.device}
            clusters = [i for i in op.attrs["body"].instructions if i.op.type == "_Cluster"]
            seen["loops that span devices"] += len(devices) > 1
            seen["clusters in loops"] += len(clusters)
        for part in parts_of(op).values():
            count_loops(part.instructions, seen)


def random_step(data):
    """Return the fetches and feeds of a random step, whose operations are on random devices."""
    with tf.device(Scattered(data.draw)):
        step = Step(data.draw, smooth=True)
        step.start([tf.float32], MATRICES)
        for _ in range(data.draw(st.integers(2, 10), label="operations")):
            step.grow(KINDS)
        loss = tf.add_n([tf.reduce_mean(v) for v in step.values[-3:]])
        fetches = [loss, *step.values[-2:]]
        if step.variables:
            colocated = data.draw(st.booleans(), label="colocated gradients")
            gradients = tf.gradients(loss, step.variables, colocate_gradients_with_ops=colocated)
            pairs = [
                (v, g) for v, g in zip(step.variables, gradients, strict=True) if g is not None
            ]
            if pairs and data.draw(st.booleans(), label="update"):
                with tf.control_dependencies([loss]):
                    updates = [v.assign_sub(0.1 * g) for v, g in pairs]
                with tf.control_dependencies(updates):
                    fetches.append(pairs[0][0].read_value())
            fetches += [g for _, g in pairs]
    return fetches, step.feeds


def compare(fetches, feeds, jit, seen, rtol=0.0, atol=0.0, driver="fixed"):
    """Run a step on one device, interpreted, and on several."""
    whole = results(fetches, feeds, 1, "off", driver="as is" if driver == "as is" else "fixed")
    parted = results(fetches, feeds, DEVICES, jit, seen, driver=driver)
    for one, several in zip(whole, parted, strict=True):
        for a, b in zip(one, several, strict=True):
            np.testing.assert_allclose(b, a, rtol=rtol, atol=atol)


@pytest.mark.parametrize("driver", ["fixed", "joined", "counted", "as is"])
def test_interpreted_partitions_equal_the_whole_bit_for_bit(driver):
    seen = Counter()

    @given(st.data())
    @settings(max_examples=30)
    def check(data):
        with tf.Graph().as_default():
            compare(*random_step(data), "off", seen, driver=driver)

    check()
    assert seen["partitioned"] >= 15 and seen["round trips"] >= 8
    assert seen["joined"] == (seen["partitioned"] if driver == "joined" else 0)


@pytest.mark.parametrize("driver", ["fixed", "joined"])
def test_compiled_partitions_agree_with_the_whole(driver):
    seen = Counter()

    @given(st.data())
    @settings(max_examples=25)
    def check(data):
        with tf.Graph().as_default():
            compare(*random_step(data), "always", seen, rtol=2e-4, atol=2e-5, driver=driver)

    check()
    assert seen["clusters"] >= 10 and seen["round trips"] >= 10


def random_control_flow(data):
    """Return the fetches and feeds of a step with loops and branches that span devices."""
    draw = data.draw
    with tf.device(Scattered(draw)):
        x = tf.placeholder(tf.float32, [3], name="x")
        w = tf.Variable(np.ones(3, np.float32), use_resource=draw(st.booleans(), label="resource"))
        trips = draw(st.integers(0, 4), label="iterations")
        nested = draw(st.booleans(), label="nested")

        def body(i, a):
            b = tf.tanh(a * w + 0.1)
            if nested:
                _, b = tf.while_loop(lambda j, c: j < i, lambda j, c: (j + 1, c * 0.9), [0, b])
            c = tf.cond(tf.equal(i % 2, 0), lambda: b * 0.5, lambda: b + x)
            return i + 1, c

        _, y = tf.while_loop(lambda i, a: i < trips, body, [0, x])
        z = tf.cond(tf.reduce_sum(x) > 0, lambda: y + w, lambda: tf.square(y))
        fetches = [y, z, *tf.gradients(z, [x, w])]
        if draw(st.booleans(), label="assigned in a branch"):
            with tf.control_dependencies([z]):
                changed = tf.cond(x[0] > 0, lambda: tf.assign(w, x), lambda: tf.identity(w))
            with tf.control_dependencies([changed]):
                fetches.append(w.read_value())
        given = draw(st.sampled_from([[0.3, -0.2, 0.5], [-1, 0.5, -0.1]]), label="x")
    return fetches, {x: np.array(given, np.float32)}


@pytest.mark.parametrize("driver", ["fixed", "as is"])
def test_control_flow_across_devices_equals_the_whole(driver):
    """In one piece, with compiled parts; and as primitives, with a control loop on each device."""
    seen = Counter()

    @given(st.data())
    @settings(max_examples=15)
    def check(data):
        with tf.Graph().as_default():
            compare(*random_control_flow(data), "off", seen, driver=driver)

    check()
    assert seen["loops in pieces" if driver == "as is" else "loops that span devices"] >= 5
