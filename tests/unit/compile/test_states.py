"""Variables in compiled clusters: reads before and after an update see the right values."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import build
from tests.unit.compile.steps import assert_tiers_agree, clusters, session, uniform

N = 64  # rows and columns: enough for a team of threads to run into each other


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def variable(*shape, seed=1, **options):
    return tf.Variable(uniform(*shape, seed=seed), **options)


def placeholder(*shape, seed=2):
    """A placeholder and a value for it."""
    return tf.placeholder(tf.float32, shape), uniform(*shape, seed=seed)


def test_a_read_that_is_needed_after_an_update_is_copied():
    # A resource variable's: what is read of a reference variable shares its memory.
    v, (x, fed) = variable(N, N, use_resource=True), placeholder(N, N)
    before = v.read_value()
    with tf.control_dependencies([before]):
        update = v.assign_add(x * 3.0, read_value=False)
    with tf.control_dependencies([update]):
        after = tf.sqrt(tf.abs(before * x))
    (cluster,) = clusters([after], {x: fed}, [update])
    assert len(cluster._region.copied_reads) == 1
    assert_tiers_agree([update, after], {x: fed})


def test_a_read_that_is_not_is_the_variable_itself():
    v, (x, fed) = variable(N, N), placeholder(N, N)
    update = v.assign_add(tf.sqrt(tf.abs(v.read_value() * x)))
    (cluster,) = clusters([update], {x: fed})
    assert not cluster._region.copied_reads
    assert len(cluster.plan.calls) == 1
    assert_tiers_agree([update], {x: fed})


@pytest.mark.parametrize("view", ["transpose", "reverse", "element"])
def test_an_update_reads_its_variable_in_another_order(view):
    v, (x, fed) = variable(N, N), placeholder(N, N)
    old = v.read_value()
    seen = {
        "transpose": lambda: tf.transpose(old),
        "reverse": lambda: old[::-1, ::-1],
        "element": lambda: old[N - 1, N - 1],
    }[view]()
    update = v.assign_add(tf.broadcast_to(seen, [N, N]))
    assert_tiers_agree([update, tf.sqrt(tf.tanh(x) + 2.0)], {x: fed}, steps=5)


def test_what_an_update_wrote_is_read_in_another_order():
    v, (x, fed) = variable(N, N), placeholder(N, N)
    change = x * 2.0 + 1.0
    with tf.control_dependencies([v.assign_add(change)]):
        after = v.read_value()
    assert_tiers_agree([change * tf.transpose(after)], {x: fed}, steps=5)


def test_an_update_waits_for_a_map_that_becomes_part_of_a_reduction():
    v, (x, fed), (d, change) = variable(N, N), placeholder(N, N), placeholder(N, N, seed=3)
    mapped = tf.exp(v.read_value() * x)
    with tf.control_dependencies([mapped]):
        update = v.assign_add(d)
    # The update comes before the sum; the map that reads the variable comes before the update.
    assert_tiers_agree([update, tf.reduce_sum(mapped, 1)], {x: fed, d: change})


def test_reads_between_updates():
    v, (x, fed) = variable(N, N), placeholder(N, N)
    seen = []
    for i in range(3):
        with tf.control_dependencies([v.assign_add(x * float(i + 1))]):
            seen.append(v.read_value() * 2.0)
        with tf.control_dependencies(seen[-1:]):
            v.assign_sub(tf.tanh(seen[-1]))
    assert_tiers_agree(seen, {x: fed})


@pytest.mark.parametrize("names", ["references", "handles"])
def test_two_names_of_one_variable_are_interpreted(names):
    x = tf.placeholder(tf.float32, [8])
    shared = {"shared_name": "both", "shape": [8], "dtype": tf.float32}
    if names == "handles":
        one, other = build("VarHandleOp", **shared), build("VarHandleOp", **shared)
        first = build("AssignVariableOp", resource=one, value=tf.ones([8]))
        with tf.control_dependencies([build("AssignAddVariableOp", resource=one, value=x * 3.0)]):
            second = build("AssignSubVariableOp", resource=other, value=tf.sqrt(x))
        with tf.control_dependencies([second]):
            result = build("ReadVariableOp", resource=one, dtype=tf.float32)
    else:
        one, other = build("VariableV2", **shared), build("VariableV2", **shared)
        first = tf.assign(one, tf.ones([8]))
        with tf.control_dependencies([tf.assign_add(one, x * 3.0)]):
            second = tf.assign_sub(other, tf.sqrt(x))
        with tf.control_dependencies([second]):
            result = tf.identity(one)
    fed = np.arange(8, dtype=np.float32)
    assert len(clusters([result], {x: fed})) == 1
    with session(jit=True) as run:
        run.run(first)
        for step in (1, 2):
            expected = 1 + step * (3 * fed - np.sqrt(fed))
            np.testing.assert_allclose(run.run(result, {x: fed}), expected, rtol=1e-5)


def test_a_failed_step_initialises_nothing():
    x = tf.placeholder(tf.float32, [8, 8])
    a, b = tf.Variable(tf.zeros([8, 8])), tf.Variable(tf.zeros([8, 8]))
    first, second = a.assign(tf.exp(x * 2.0)), b.assign_add(tf.sqrt(x))
    fetches, fed = [first.op, second.op], {x: np.ones((8, 8))}
    assert len(clusters([first, second], fed)) == 1
    with session(jit=True) as run:
        with pytest.raises(tf.errors.FailedPreconditionError, match="Variable_1"):
            run.run(fetches, fed)
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            run.run(a)
        run.run(b.initializer)
        run.run(fetches, fed)
        np.testing.assert_allclose(run.run(a), np.full((8, 8), np.exp(2)), rtol=1e-5)


@pytest.mark.parametrize("resource", [False, True])
def test_initializers_are_compiled(resource):
    made = [tf.Variable(tf.fill([N], float(i)), use_resource=resource) for i in range(4)]
    assert clusters([], targets=[tf.global_variables_initializer()])
    assert_tiers_agree([2.0 * v.read_value() for v in made])


def test_a_handle_to_nothing_is_not_found():
    x = tf.placeholder(tf.float32, [8])
    handle = build("VarHandleOp", shared_name="nothing", shape=[8], dtype=tf.float32)
    result = tf.sqrt(tf.exp(build("ReadVariableOp", resource=handle, dtype=tf.float32) * x))
    assert len(clusters([result], {x: np.ones(8)})) == 1
    with session(jit=True) as run, pytest.raises(tf.errors.NotFoundError, match="nothing"):
        run.run(result, {x: np.ones(8)})


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("size", [3, 600])
def test_steps_on_rows_are_native(use_resource, size):
    """Rows that come twice are taken one after the other; other rows aren't touched."""
    start = np.sin(np.arange(5.0 * size)).reshape(5, size).astype("f4")

    def build():
        rows = tf.placeholder("int32", [3], name="rows")
        w = tf.get_variable("w", initializer=start, use_resource=use_resource)
        accum = tf.get_variable("accum", initializer=start + 2, use_resource=use_resource)
        grad = tf.gather(w, rows) * 3.0
        if use_resource:
            apply = tf.raw_ops.ResourceSparseApplyAdagrad
            return rows, apply(var=w.handle, accum=accum.handle, lr=0.5, grad=grad, indices=rows)
        apply = tf.raw_ops.SparseApplyAdagrad
        return rows, apply(var=w._ref(), accum=accum._ref(), lr=0.5, grad=grad, indices=rows).op

    found = []
    for jit in (-1, 1):
        config = tf.ConfigProto()
        config.graph_options.optimizer_options.global_jit_level = jit
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            rows, step = build()
            session.run(tf.global_variables_initializer())
            session.run(step, {rows: [4, 1, 4]})
            found.append(session.run(tf.global_variables()))
            with pytest.raises(tf.errors.InvalidArgumentError, match="5 is not in \\[0, 5"):
                session.run(step, {rows: [4, 5, 4]})
            np.testing.assert_array_equal(session.run(tf.global_variables()), found[-1])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    assert (found[1][0][[0, 2, 3]] == start[[0, 2, 3]]).all()
