"""Counting, values and frames, where the test itself runs the nodes, in any order."""

from random import Random

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.control_roles import DEAD
from headrace._src.runtime.iterations import Iterations


@pytest.fixture(autouse=True)
def _fresh():
    tf.reset_default_graph()


def frames_of(fetch, feed):
    with tf.Session() as session:
        return session._plan_for([fetch], {feed: 1.0}, None).variants.whole().frames


def begun(frames, value):
    """Return the iterations of a step whose only feed has come."""
    made = Iterations(frames)
    (slot,) = frames.feeds
    made.root.values[frames.home[slot][1]] = value
    for local in frames.after_feed[slot]:
        made.arrive(made.root, local, value is DEAD, False)
    return made


def finish(made, entry):
    """Run a ready node, unless it is dead."""
    made.ready.remove(entry)
    iteration, node = entry
    if iteration.dead[node.local] > 0 and not node.outlives_death:
        made.finish(iteration, node, node.dead, False)
        return
    result = node.kernel(*[iteration.values[s] for s in node.inputs])
    results = tuple(result) if node.several else (result,)
    made.finish(iteration, node, results, not (node.may_be_dead and results[0] is DEAD))


def types(made):
    return [node.op.type for _, node in made.ready]


def diamond():
    x = tf.placeholder(tf.float32, [])
    return frames_of(tf.multiply(tf.exp(x), tf.tanh(x)), x)


def test_a_node_is_ready_when_its_last_input_has_come():
    made = begun(diamond(), np.float32(0))
    assert sorted(types(made)) == ["Exp", "Tanh"]
    finish(made, made.ready[1])
    assert len(made.ready) == 1
    finish(made, made.ready[0])
    assert types(made) == ["Mul"]
    finish(made, made.ready[0])
    assert not made.ready and not made.root.outstanding and len(made.ran) == 3


def test_a_value_is_kept_until_its_last_reader_has_finished():
    frames = diamond()
    made = begun(frames, np.float32(0))
    place = frames.home[frames.feeds[0]][1]
    finish(made, made.ready[0])
    assert made.root.values[place] is not None
    finish(made, made.ready[0])
    assert made.root.values[place] is None


def test_what_needs_a_dead_value_is_dead():
    made = begun(diamond(), DEAD)
    while made.ready:
        iteration, node = made.ready[0]
        assert iteration.dead[node.local] == len(node.inputs)
        finish(made, made.ready[0])
    assert len(made.ran) == 3


def test_nodes_that_something_else_runs_are_taken_out():
    made = begun(diamond(), np.float32(0))
    first, second = made.ready
    made.take_out({first[1]})
    assert list(made.ready) == [second]


@pytest.mark.parametrize("seed", range(20))
def test_a_loop_ends_in_any_order_with_few_iterations_at_a_time(seed):
    def entered(value, constant):
        return tf.raw_ops.Enter(
            data=value, frame_name="loop", is_constant=constant, parallel_iterations=2
        )

    x = tf.placeholder(tf.float32, [])
    one, two, seven = (entered(value, True) for value in (1, 2.0, 7))
    merges = [tf.raw_ops.Merge(inputs=[e, e])[0] for e in (entered(0, False), entered(x, False))]
    more = tf.raw_ops.LoopCond(input=tf.less(merges[0], seven))
    (_, i), (last, value) = [tf.raw_ops.Switch(data=m, pred=more) for m in merges]
    for merge, following in zip(merges, (tf.add(i, one), tf.multiply(value, two)), strict=True):
        merge.op._update_input(1, tf.raw_ops.NextIteration(data=following))
    result = tf.raw_ops.Exit(data=last)
    frames = frames_of(result, x)
    made, random = begun(frames, np.float32(1)), Random(seed)
    while made.ready:
        finish(made, random.choice(made.ready))
        for run in made.root.children.values():
            assert len(run.iterations) <= 2
    assert not made.root.children and not made.root.outstanding
    (place,) = {frames.home[s][1] for s, n in frames.writer.items() if n.op.type == "Exit"}
    assert made.root.values[place] == 128.0


def test_a_step_that_failed_keeps_nothing():
    made = begun(diamond(), np.float32(0))
    made.drop()
    assert not made.ready and not made.root.values
