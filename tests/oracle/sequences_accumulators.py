"""Conditional accumulators, dense and sparse."""

from tests.oracle.sequences import sequence


@sequence
def dense(tf, run):
    for reduction in ("MEAN", "SUM"):
        a = tf.ConditionalAccumulator(tf.float32, shape=[2], name="a", reduction_type=reduction)
        x = tf.placeholder(tf.float32)
        step = tf.placeholder_with_default(tf.constant(0, tf.int64), [])
        apply, take, count = a.apply_grad(x, step), a.take_grad(2), a.num_accumulated()
        for value in ([1, 2], [3, 5], [4, 4]):
            run(apply, {x: value})
        run(count)
        run(take)
        run(count)
        run(apply, {x: [9, 9]})
        run(count)
        run(apply, {x: [9, 9], step: 1})
        run(apply, {x: [1, 2, 3], step: 1})
        run(a.set_global_step(5))
        run(apply, {x: [9, 9], step: 4})
        run(apply, {x: [1, 3], step: 5})
        run(take)
        run([a.apply_grad([1.0, 2.0], 9), a.apply_grad([3.0, 4.0], 9), a.take_grad(2)])
    run.attempt(lambda: a.apply_grad([1.0, 2.0, 3.0]))
    run.attempt(lambda: a.apply_grad(tf.constant([1, 2])))


@sequence
def sparse(tf, run):
    for reduction in ("MEAN", "SUM"):
        a = tf.SparseConditionalAccumulator(tf.float32, name="a", reduction_type=reduction)
        apply = [
            a.apply_grad([0, 2], [[1.0, 2.0], [3.0, 4.0]], [5, 2]),
            a.apply_grad([2, 4], [[5.0, 6.0], [7.0, 8.0]], [5, 2]),
        ]
        for op in apply:
            run(op)
        run(a.num_accumulated())
        run(list(a.take_grad(2)))
        run(apply[0])
        run(a.num_accumulated())
        slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([3]))
        run(a.apply_indexed_slices_grad(slices, local_step=1))
        run(list(a.take_grad(1)))


@sequence
def sparse_of_known_shape(tf, run):
    a = tf.SparseConditionalAccumulator(tf.float32, shape=[5, 2], name="a")
    run(a.apply_grad([0, 2], [[1.0, 2.0], [3.0, 4.0]]))
    run(list(a.take_grad(1)))
