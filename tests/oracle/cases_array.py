"""Shapes, joining, slicing, indexing, sorting, rearranging, partitioning: the array families."""

import numpy as np

from tests.oracle.case import case


def ramp(tf, *shape, dtype="float32", name=None):
    """A constant 0, 1, 2, ... of a shape."""
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    return tf.constant(values, name=name or "x")


def dynamic(tf, value, shape=None):
    """A tensor whose value (and, without `shape`, shape) is known only while a step runs."""
    return tf.placeholder_with_default(value, shape)


def raw_ops(tf):
    """The ops by their types: TensorFlow's tf.raw_ops, or builders of ours."""
    if hasattr(tf, "raw_ops"):
        return tf.raw_ops
    from headrace._src.ops.base.define import build

    class Ours:
        def __getattr__(self, op_type):
            return lambda **values: build(op_type, **values)

    return Ours()


@case
def shape_static(tf):
    x = ramp(tf, 2, 3)
    return [
        tf.shape(x),
        tf.shape(x, out_type=tf.int64),
        tf.rank(x),
        tf.size(x),
        tf.size(x, "s", tf.int64),
    ]


@case
def shape_dynamic(tf):
    x = dynamic(tf, ramp(tf, 2, 3))
    return [
        tf.shape(x),
        tf.shape(x, "n", tf.int64),
        tf.rank(x),
        tf.size(x),
        tf.size(x, out_type=tf.int64),
    ]


@case
def shape_partial(tf):
    x = dynamic(tf, ramp(tf, 2, 3), [None, 3])
    return [tf.shape(x), tf.rank(x), tf.size(x), tf.shape([1, 2]), tf.rank([[1]]), tf.size(3.0)]


@case
def shape_n(tf):
    x, y = dynamic(tf, ramp(tf, 2, 3)), ramp(tf, 4)
    return tf.shape_n([x, y]), tf.shape_n([x], out_type=tf.int64)


@case
def reshape(tf):
    x = ramp(tf, 2, 6)
    return [
        tf.reshape(x, [-1]),
        tf.reshape(x, [3, -1, 2]),
        tf.reshape(x, tf.constant([4, 3], tf.int64)),
    ]


@case
def reshape_dynamic(tf):
    x = dynamic(tf, ramp(tf, 2, 6), [None, 6])
    n = tf.shape(x)[0]
    return [tf.reshape(x, [n, 2, 3]), tf.reshape(x, tf.stack([-1, n]))]


@case
def transpose(tf):
    x = ramp(tf, 2, 3, 4)
    return [tf.transpose(x), tf.transpose(x, [1, 0, 2]), tf.transpose(x, [2, 0, 1], name="named")]


@case
def transpose_unknown_rank(tf):
    x = dynamic(tf, ramp(tf, 2, 3, 4))
    return tf.transpose(x), tf.transpose(dynamic(tf, ramp(tf, 2, 3), [None, None]))


@case
def transpose_conjugate(tf):
    x = tf.constant([[1 + 2j, 3 - 1j]], tf.complex64)
    return tf.transpose(x, conjugate=True), tf.transpose(ramp(tf, 2, 3), conjugate=True)


@case
def matrix_transpose(tf):
    x = ramp(tf, 2, 3, 4)
    return (
        tf.matrix_transpose(x),
        tf.linalg.transpose(x, "t"),
        tf.matrix_transpose(ramp(tf, 2, 3), conjugate=True),
    )


@case
def matrix_transpose_dynamic(tf):
    return tf.matrix_transpose(dynamic(tf, ramp(tf, 2, 3, 4)))


@case
def expand_dims_and_squeeze(tf):
    x = ramp(tf, 2, 3)
    return [
        tf.expand_dims(x, 0),
        tf.expand_dims(x, -1),
        tf.expand_dims(x, dim=1),
        tf.squeeze(tf.expand_dims(x, 1)),
        tf.squeeze(ramp(tf, 1, 2, 1), [0]),
        tf.squeeze(ramp(tf, 1, 2, 1), axis=-1, name="sq"),
        tf.squeeze(ramp(tf, 1, 2, 1), squeeze_dims=[0, 2]),
    ]


@case
def fill(tf):
    return [
        tf.fill([2, 3], 7),
        tf.fill([], 2.5),
        tf.fill(tf.constant([2], tf.int64), "s"),
        tf.fill([0, 2], True),
    ]


@case
def zeros_and_ones(tf):
    return [
        tf.zeros([2, 3]),
        tf.zeros([], tf.int32),
        tf.zeros(3, tf.bool),
        tf.zeros((2,), tf.string),
        tf.ones([2, 2], tf.complex64),
        tf.ones([40, 40], tf.int32, name="many"),
        tf.zeros([1001], tf.float64),
        tf.ones([2], tf.bool),
    ]


@case
def zeros_of_tensors(tf):
    n = dynamic(tf, tf.constant(3), [])
    return [
        tf.zeros([n, 2]),
        tf.ones([2, n], tf.int64),
        tf.zeros(tf.constant([2, 2])),
        tf.zeros(n),
        tf.ones(tf.TensorShape([2, 3])),
        tf.zeros(tf.constant([2], tf.int64)),
        tf.zeros(np.array([2, 1])),
    ]


@case
def zeros_like(tf):
    x = ramp(tf, 2, 3)
    return [
        tf.zeros_like(x),
        tf.ones_like(x),
        tf.zeros_like(x, tf.int64),
        tf.ones_like(x, tf.int32, "o"),
        tf.zeros_like(x, optimize=False),
        tf.ones_like(x, optimize=False),
        tf.zeros_like([1, 2]),
        tf.zeros_like(tf.constant(["a"])),
    ]


@case
def zeros_like_dynamic(tf):
    x = dynamic(tf, ramp(tf, 2, 3), [None, 3])
    return [tf.zeros_like(x), tf.ones_like(x), tf.zeros_like(x, tf.int64), tf.ones_like(x, tf.bool)]


@case
def range_and_linspace(tf):
    return [
        tf.range(5),
        tf.range(1, 10, 3),
        tf.range(5, 0, -2),
        tf.range(0.0, 1.0, 0.25),
        tf.range(3, dtype=tf.int64),
        tf.range(1, 2.5, 0.5),
        tf.range(tf.constant(4)),
        tf.range(tf.constant(2, tf.int64), 6),
        tf.range(0, 0),
        tf.linspace(0.0, 1.0, 5),
        tf.linspace(1.0, 2.0, 1, name="one"),
        tf.lin_space(tf.constant(0, tf.float64), 10, 4),
    ]


@case
def stack(tf):
    x, y = ramp(tf, 2, 3), ramp(tf, 2, 3)
    return [
        tf.stack([x, y]),
        tf.stack([x, y], 1),
        tf.stack([x, y], axis=-1, name="last"),
        tf.stack([1, 2, 3]),
        tf.stack([x]),
        tf.stack([tf.constant(1), 2]),
        tf.stack(x),
        tf.stack([[1.0, 2.0], [3.0, 4.0]], axis=1),
        tf.parallel_stack([x, y]),
    ]


@case
def unstack(tf):
    x = ramp(tf, 2, 3)
    return [
        tf.unstack(x),
        tf.unstack(x, axis=1),
        tf.unstack(x, 2, name="u"),
        tf.unstack(x, axis=-1),
    ]


@case
def unstack_dynamic(tf):
    return tf.unstack(dynamic(tf, ramp(tf, 2, 3)), 2), tf.unstack(
        dynamic(tf, ramp(tf, 2, 3), [None, 3]), axis=1
    )


@case
def concat(tf):
    x, y = ramp(tf, 2, 3), ramp(tf, 2, 3)
    return [
        tf.concat([x, y], 0),
        tf.concat([x, y], -1),
        tf.concat([x, y, x], axis=1, name="three"),
        tf.concat([x], 0),
        tf.concat(x, 0),
        tf.concat([[1, 2], [3]], 0),
        tf.concat([tf.shape(dynamic(tf, x)), [5]], 0),
    ]


@case
def split(tf):
    x = ramp(tf, 4, 6)
    return [
        tf.split(x, 2),
        tf.split(x, 3, axis=1),
        tf.split(x, [1, 3], name="sizes"),
        tf.split(x, [1, -1, 2], 1),
        tf.split(x, tf.constant([2, 2])),
        tf.split(dynamic(tf, x), dynamic(tf, [1, 3]), num=2),
    ]


@case
def slice_(tf):
    x = ramp(tf, 4, 6)
    return [
        tf.slice(x, [1, 2], [2, 3]),
        tf.slice(x, [1, 0], [-1, -1], "s"),
        tf.slice(x, tf.constant([0, 1], tf.int64), tf.constant([1, 1], tf.int64)),
        tf.slice(dynamic(tf, x), [0, 1], [2, -1]),
    ]


@case
def strided_slice(tf):
    x = ramp(tf, 4, 6)
    return [
        tf.strided_slice(x, [1, 2], [3, 6], [1, 2]),
        tf.strided_slice(x, [0, 0], [4, 4]),
        tf.strided_slice(x, [-1], [0], [-2], end_mask=1),
        tf.strided_slice(x, [0, 1], [0, 5], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=0),
        tf.strided_slice(x, [0, 1], [1, 2], shrink_axis_mask=3, name="one"),
    ]


@case
def getitem(tf):
    x = ramp(tf, 3, 4, 5)
    return [
        x[0],
        x[-1],
        x[1, 2],
        x[1, 2, 3],
        x[1:],
        x[:-1, ::2],
        x[..., 0],
        x[:, ..., 1:3],
        x[0, ..., tf.newaxis],
        x[tf.newaxis, :, 1],
        x[::-1],
        x[2:0:-1, 1:-1],
        x[..., -2:],
        x[5:],
        x[1:1],
        x[None],
        x[...],
        x[np.int64(1)],
        x[1:100, -100:2],
        x[:, None, 0, ..., None],
    ]


@case
def getitem_of_tensors(tf):
    x = ramp(tf, 3, 4, 5)
    i, j = dynamic(tf, tf.constant(1), []), tf.constant(2)
    return [x[i], x[i:j], x[:, i], x[i, j, ::i], x[tf.constant(1, tf.int64) :], x[i:, ..., None, j]]


@case
def getitem_dynamic(tf):
    x = dynamic(tf, ramp(tf, 3, 4, 5))
    y = dynamic(tf, ramp(tf, 3, 4), [None, 4])
    return [
        x[0],
        x[1:, ..., 0],
        y[0],
        y[:, 1],
        y[-2:],
        y[::2, ::-1],
        tf.shape(y)[0],
        tf.shape(y)[1:],
    ]


@case
def getitem_of_shapes(tf):
    x = ramp(tf, 3, 4)
    return x[: x.shape[1] - 2], x[x.shape[0] - 1]


@case
def tile(tf):
    x = ramp(tf, 2, 3)
    return (
        tf.tile(x, [2, 1]),
        tf.tile(x, [0, 1]),
        tf.tile(dynamic(tf, x), tf.constant([1, 2], tf.int64)),
    )


@case
def pad(tf):
    x = ramp(tf, 3, 4)
    return [
        tf.pad(x, [[1, 2], [0, 1]]),
        tf.pad(x, [[1, 2], [0, 1]], constant_values=7),
        tf.pad(x, [[1, 2], [0, 1]], "REFLECT"),
        tf.pad(x, [[1, 3], [4, 1]], mode="SYMMETRIC", name="sym"),
        tf.pad(x, tf.constant([[1, 0], [0, 0]], tf.int64)),
        tf.pad(dynamic(tf, x), [[0, 1], [1, 0]], "constant"),
        tf.pad(tf.constant([1, 2]), [[1, 1]], constant_values=tf.constant(9)),
    ]


@case
def gather(tf):
    x = ramp(tf, 4, 3)
    return [
        tf.gather(x, [1, 0, 3]),
        tf.gather(x, 2),
        tf.gather(x, [[0, 1], [2, 3]]),
        tf.gather(x, [2, 0], axis=1),
        tf.gather(x, [2], axis=-1, name="g"),
        tf.gather(x, [[0], [1], [2], [0]], batch_dims=1),
        tf.gather(x, [[0], [1], [2], [0]], axis=1, batch_dims=1),
        tf.gather(x, tf.constant([1], tf.int64), axis=tf.constant(0)),
    ]


@case
def gather_nd(tf):
    x = ramp(tf, 4, 3, 2)
    return [
        tf.gather_nd(x, [[0, 1], [3, 2]]),
        tf.gather_nd(x, [[[0]], [[1]]]),
        tf.gather_nd(x, [1, 2, 0], "one"),
        tf.gather_nd(x, np.zeros([2, 0], np.int32)),
        tf.gather_nd(x, [[1], [0], [2], [1]], batch_dims=1),
        tf.gather_nd(x, np.ones([4, 3, 5, 1], np.int64), batch_dims=2),
    ]


@case
def batch_gather(tf):
    x = ramp(tf, 2, 3, 4)
    return tf.batch_gather(ramp(tf, 2, 3), [[0, 2], [1, 1]]), tf.batch_gather(
        x, np.ones([2, 3, 2], np.int32)
    )


@case
def scatter_nd(tf):
    return [
        tf.scatter_nd([[1], [3], [1]], [9.0, 10.0, 1.0], [5]),
        tf.scatter_nd([[0, 1], [1, 0]], [[1, 2], [3, 4]], [2, 2, 2], "s"),
        tf.scatter_nd(tf.constant([[1]], tf.int64), ["a"], tf.constant([2], tf.int64)),
    ]


@case
def tensor_scatter(tf):
    x = ramp(tf, 4, 2)
    i, u = [[1], [3]], [[9.0, 8.0], [7.0, 6.0]]
    return [
        tf.tensor_scatter_update(x, i, u),
        tf.tensor_scatter_nd_add(x, i, u),
        tf.tensor_scatter_sub(x, i, u, "sub"),
        tf.tensor_scatter_add(x, [[0, 0], [0, 0]], [1.0, 2.0]),
    ]


@case
def where(tf):
    c = tf.constant([[True, False], [False, True]])
    x, y = ramp(tf, 2, 2), -ramp(tf, 2, 2)
    return [
        tf.where(c),
        tf.where(ramp(tf, 2, 2)),
        tf.where(c, x, y),
        tf.where([True, False], x, y),
        tf.where(c, x, y, name="w"),
        tf.where_v2(c, x, 0.0),
        tf.where_v2([[True], [False]], x, y),
        tf.where(True, x, y),
    ]


@case
def boolean_mask(tf):
    x = ramp(tf, 3, 2)
    return [
        tf.boolean_mask(x, [True, False, True]),
        tf.boolean_mask(x, np.array([[1, 0], [0, 1], [1, 1]], bool)),
        tf.boolean_mask(x, [True, False], axis=1),
        tf.boolean_mask(dynamic(tf, x, [None, 2]), tf.constant([True, False, True]), "mask"),
    ]


@case
def one_hot(tf):
    return [
        tf.one_hot([0, 2, -1, 5], 3),
        tf.one_hot([[0, 1]], 3, axis=1),
        tf.one_hot([1, 0], 2, 5, -5),
        tf.one_hot([1, 0], 2, on_value=5.0, axis=0),
        tf.one_hot([1, 0], 2, dtype=tf.int64, name="oh"),
        tf.one_hot(1, tf.constant(4), True, False),
        tf.one_hot(tf.constant([1], tf.int64), 3, off_value=2.0, dtype=tf.float32),
    ]


@case
def reverse(tf):
    x = ramp(tf, 2, 3)
    return [
        tf.reverse(x, [0]),
        tf.reverse_v2(x, [-1, 0]),
        tf.reverse(x, tf.constant([1], tf.int64), "r"),
    ]


@case
def reverse_sequence(tf):
    x = ramp(tf, 2, 4, 3)
    return [
        tf.reverse_sequence(x, [2, 4], 1),
        tf.reverse_sequence(x, [1, 2, 3], seq_axis=1, batch_axis=2),
        tf.reverse_sequence(x, tf.constant([2, 0, 1, 2]), seq_dim=0, batch_dim=1, name="rs"),
    ]


@case
def sequence_mask(tf):
    return [
        tf.sequence_mask([1, 3, 0], 4),
        tf.sequence_mask([1, 3, 0]),
        tf.sequence_mask([[1, 2]], 3, tf.float32),
        tf.sequence_mask(tf.constant([1, 2], tf.int64), name="mask"),
        tf.sequence_mask([2], tf.constant(3), dtype=tf.bool),
    ]


@case
def unique(tf):
    x = tf.constant([3, 1, 3, 2, 1])
    return [
        tf.unique(x),
        tf.unique(x, tf.int64),
        tf.unique_with_counts(x, name="u"),
        tf.unique(["b", "a", "b"]),
        tf.setdiff1d(x, [1]),
        tf.setdiff1d(x, [9], tf.int64, "d"),
    ]


@case
def sort(tf):
    x = tf.constant([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]])
    return [
        tf.sort(x),
        tf.sort(x, 0),
        tf.sort(x, direction="DESCENDING"),
        tf.argsort(x),
        tf.argsort(x, axis=0, direction="DESCENDING", stable=True),
        tf.sort(tf.constant([3, 1, 2]), name="s"),
    ]


@case
def sort_dynamic(tf):
    x = dynamic(tf, tf.constant([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]]))
    return tf.sort(x), tf.argsort(x, 0), tf.sort(x, axis=-2)


@case
def top_k(tf):
    x = tf.constant([[3.0, 1.0, 2.0, 3.0], [9.0, 7.0, 8.0, 9.0]])
    return [
        tf.nn.top_k(x),
        tf.math.top_k(x, 2),
        tf.nn.top_k(x, tf.constant(3), name="t"),
        tf.nn.top_k(tf.constant([1, 5, 2]), 2),
        tf.nn.in_top_k(x, [2, 3], 2),
        tf.math.in_top_k(x, tf.constant([0, 1], tf.int64), 1, name="i"),
    ]


@case
def searchsorted(tf):
    x = tf.constant([[0.0, 3.0, 9.0, 9.0, 10.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    v = tf.constant([[2.0, 4.0, 9.0], [0.0, 2.0, 6.0]])
    return [
        tf.searchsorted(x, v),
        tf.searchsorted(x, v, "right"),
        tf.searchsorted([1, 2, 3], [2, 5], side="right", out_type=tf.int64),
        tf.searchsorted(dynamic(tf, x), v, name="s"),
    ]


@case
def space_to_batch(tf):
    x = ramp(tf, 1, 4, 4, 1)
    return [
        tf.space_to_batch(x, [[0, 0], [0, 0]], 2),
        tf.space_to_batch_nd(x, [2, 2], [[0, 0], [2, 0]]),
        tf.batch_to_space(ramp(tf, 4, 2, 2, 1), [[0, 1], [1, 0]], 2),
        tf.batch_to_space_nd(ramp(tf, 4, 2, 2, 1), [2, 2], [[0, 0], [0, 1]]),
        tf.batch_to_space(ramp(tf, 4, 2, 2, 1), [[0, 0], [0, 0]], 2, block_shape=None),
    ]


@case
def required_paddings(tf):
    return [
        tf.required_space_to_batch_paddings([5, 6], [2, 3]),
        tf.required_space_to_batch_paddings([5, 6], [2, 4], [[1, 0], [0, 1]], name="p"),
        tf.required_space_to_batch_paddings(dynamic(tf, [5, 6], [2]), [2, 4]),
    ]


@case
def space_to_depth(tf):
    x = ramp(tf, 1, 4, 4, 2)
    return (
        tf.space_to_depth(x, 2),
        tf.nn.depth_to_space(ramp(tf, 1, 2, 2, 8), 2),
        tf.depth_to_space(ramp(tf, 1, 2, 2, 4), 2, "d"),
    )


@case
def dynamic_partition(tf):
    x = ramp(tf, 5, 2)
    return [
        tf.dynamic_partition(x, [0, 1, 0, 2, 1], 3),
        tf.dynamic_partition([1, 2, 3], [0, 0, 0], 2, name="p"),
        tf.dynamic_stitch([[0, 2], [1, 3]], [[1.0, 3.0], [2.0, 4.0]]),
        tf.dynamic_stitch([0, [2, 1]], [[1.0, 2.0], [[5.0, 6.0], [3.0, 4.0]]], name="s"),
    ]


@case
def meshgrid(tf):
    return tf.meshgrid([1, 2, 3], [4, 5]), tf.meshgrid(
        [1.0], [2.0, 3.0], [4.0, 5.0], indexing="ij", name="m"
    )


@case
def broadcast(tf):
    x = ramp(tf, 1, 3)
    return [
        tf.broadcast_to(x, [2, 3]),
        tf.broadcast_to(x, tf.constant([4, 2, 3], tf.int64), "b"),
        tf.broadcast_dynamic_shape([2, 1], [1, 3]),
        tf.broadcast_dynamic_shape(tf.shape(dynamic(tf, x)), [5, 1]),
    ]


@case
def roll(tf):
    x = ramp(tf, 3, 4)
    return tf.roll(x, 1, 0), tf.manip.roll(x, [1, -2], [0, 1]), tf.roll(x, [1, 2], [0, 0], "r")


@case
def pass_through(tf):
    x, y = ramp(tf, 2), ramp(tf, 2, dtype="int32")
    return [
        tf.identity(x),
        tf.identity_n([x, y]),
        tf.stop_gradient(x, "s"),
        tf.ensure_shape(x, [None]),
        tf.guarantee_const(x),
        tf.identity([1, 2], name="i"),
        tf.placeholder_with_default([1.0], [None]),
    ]


@case
def bitcast(tf):
    x = tf.constant([1.0, -2.0])
    return [
        tf.bitcast(x, tf.int32),
        tf.bitcast(x, tf.uint8),
        tf.bitcast(tf.constant([[1, 2, 3, 4]], tf.uint8), tf.int32, "b"),
        tf.bitcast(tf.constant([1], tf.complex64), tf.float64),
    ]


@case
def old_ops(tf):
    x = ramp(tf, 1, 4, 4, 4)
    g = raw_ops(tf)
    return [
        g.SpaceToBatch(input=x, paddings=[[1, 1], [0, 2]], block_size=2),
        g.BatchToSpace(input=ramp(tf, 4, 2, 2, 1), crops=[[0, 1], [1, 0]], block_size=2),
        g.Reverse(tensor=x, dims=[False, True, False, True]),
        g.InTopK(predictions=ramp(tf, 2, 3), targets=[2, 0], k=1),
        g.NthElement(input=ramp(tf, 2, 3), n=1, reverse=False),
        g.NthElement(input=ramp(tf, 2, 3), n=0, reverse=True),
        g.UniqueV2(x=[[1, 2], [3, 4], [1, 2]], axis=[0]),
        g.UniqueWithCountsV2(x=[[1, 1, 2], [3, 3, 2]], axis=[1]),
        g.ParallelDynamicStitch(indices=[[0, 2], [1]], data=[[1.0, 3.0], [2.0]]),
        g.ConcatOffset(concat_dim=1, shape=[[2, 3], [2, 5]]),
        g.TensorScatterSub(tensor=ramp(tf, 4), indices=[[1], [1]], updates=[1.0, 2.0]),
        g.ScatterNdNonAliasingAdd(input=ramp(tf, 4), indices=[[1], [1]], updates=[1.0, 2.0]),
        g.Gather(params=ramp(tf, 4, 2), indices=[1, 1]),
        g.OnesLike(x=x),
        g.MirrorPadGrad(input=ramp(tf, 4, 5), paddings=[[1, 1], [2, 0]], mode="REFLECT"),
        g.MirrorPadGrad(input=ramp(tf, 4, 5), paddings=[[1, 1], [2, 0]], mode="SYMMETRIC"),
        g.StridedSliceGrad(
            shape=[3, 4],
            begin=[0, 1],
            end=[0, 3],
            strides=[1, 2],
            dy=[[1.0], [2.0], [3.0]],
            begin_mask=0,
            end_mask=1,
        ),
    ]


@case
def in_top_k_of_odd_values(tf):
    p = tf.constant([[1.0, 2.0, 2.0], [np.inf, 1.0, 0.0], [3.0, 2.0, 1.0]])
    return [tf.nn.in_top_k(p, t, k) for t, k in [([0, 1, 2], 2), ([1, 0, 5], 1), ([2, 2, 0], 1)]]


@case
def ties(tf):
    x = tf.constant([[1.0, 3.0, 3.0, 1.0, 2.0, 3.0] * 4, [0.0] * 24])
    return [tf.nn.top_k(x, k) for k in (1, 2, 4, 13, 24)] + [
        tf.argsort(x),
        tf.argsort(x, direction="DESCENDING"),
    ]


@case
def half_precision(tf):
    x = tf.constant([[1.5, -2.0, 0.25], [3.0, 3.0, 1.0]], tf.float16)
    return [
        tf.nn.top_k(x, 2),
        tf.scatter_nd([[1], [1]], tf.constant([1.5, 2.5], tf.float16), [3]),
        tf.unique(x[1]),
        tf.one_hot([1], 2, dtype=tf.float16),
        tf.pad(x, [[0, 0], [1, 1]], "REFLECT"),
        tf.where(x > 1.0),
    ]


@case
def strings(tf):
    x = tf.constant([["a", "b"], ["c", "d"]])
    return [
        tf.transpose(x),
        tf.gather(x, [1]),
        tf.concat([x, x], 1),
        tf.stack([x, x]),
        tf.tile(x, [1, 2]),
        tf.reverse(x, [0]),
        x[0, 1],
        x[:, 0],
        tf.unique(["b", "a", "b"]),
        tf.setdiff1d(["b", "a"], ["b"]),
        tf.dynamic_partition(["x", "y"], [1, 0], 2),
        tf.fill([2], "z"),
        tf.where([True, False], ["p", "q"], ["r", "s"]),
        tf.one_hot([1], 2, "on", "off"),
        tf.zeros_like(dynamic(tf, x)),
        tf.slice(x, [0, 1], [2, 1]),
        tf.gather_nd(x, [[0, 1]]),
    ]


@case
def empty_arrays(tf):
    x = tf.zeros([0, 3])
    return [
        tf.concat([x, ramp(tf, 1, 3)], 0),
        tf.transpose(x),
        tf.reshape(x, [-1, 3]),
        tf.gather(ramp(tf, 3, 2), np.zeros([0], np.int32)),
        tf.unique(tf.zeros([0])),
        tf.where(tf.zeros([0, 2])),
        tf.dynamic_partition(x, np.zeros([0], np.int32), 2),
        tf.pad(x, [[1, 0], [0, 0]]),
        tf.tile(x, [2, 2]),
        tf.scatter_nd(np.zeros([0, 1], np.int32), tf.zeros([0]), [2]),
        tf.boolean_mask(x, np.zeros([0], bool)),
        tf.sequence_mask(np.zeros([0], np.int32), 2),
        tf.one_hot(np.zeros([0], np.int32), 2),
        tf.split(x, 3, 1),
        tf.range(3, 3),
    ]


@case(graph=False, rtol=1e-4)
def second_gradients(tf):
    x = ramp(tf, 3, 4) + 1.0
    y = tf.reduce_sum(tf.gather(x * x, [2, 0, 2]) ** 2) + tf.reduce_sum(
        tf.gather(x, [1, 1], axis=1) ** 3
    )
    y += tf.reduce_sum(x[1:, ::-1] ** 3) + tf.reduce_sum(tf.concat([x, x * x], 1)[:, 3:6] ** 2)
    y += tf.reduce_sum(tf.transpose(x)[:2] ** 3) + tf.reduce_sum(
        tf.gather_nd(x, [[0, 1], [0, 1]]) ** 3
    )
    (first,) = tf.gradients(y, x)
    return [tf.convert_to_tensor(first), tf.convert_to_tensor(tf.gradients(first, x)[0])]


@case
def invert_permutation(tf):
    return tf.invert_permutation([2, 0, 1]), tf.math.invert_permutation(
        tf.constant([1, 0], tf.int64), "p"
    )


@case
def repeat(tf):
    x = ramp(tf, 2, 3)
    return [
        tf.repeat(x, 2),
        tf.repeat(x, 2, axis=0),
        tf.repeat(x, [1, 2], axis=0, name="r"),
        tf.repeat(x, [0, 1, 2], axis=-1),
        tf.repeat(3, 4),
        tf.repeat(dynamic(tf, x), 2, axis=1),
        tf.repeat(dynamic(tf, x), dynamic(tf, [1, 2]), axis=0),
        tf.repeat(dynamic(tf, x, [None, 3]), tf.constant([1, 2], tf.int64), axis=0),
    ]


@case
def constants(tf):
    return [
        tf.constant(1),
        tf.constant([1.5, 2.5], tf.float64),
        tf.constant(7, shape=[2, 2]),
        tf.constant([1, 2], tf.int64, [4], "more"),
        tf.constant("text"),
        tf.constant([[True, False]]),
        tf.constant(np.arange(3, dtype=np.uint8)),
    ]


@case
def conversions(tf):
    x = tf.constant(2.0)
    return [
        tf.convert_to_tensor([x, 1.0]),
        tf.convert_to_tensor([[x, 1.0], [3.0, x]]),
        tf.convert_to_tensor([[1.0, 2.0], [x, 3.0]], name="named"),
        tf.convert_to_tensor(tf.TensorShape([2, 3])),
        tf.convert_to_tensor(tf.TensorShape([2, 3])[0]),
        tf.convert_to_tensor(tf.TensorShape([2, 3]), tf.int64, name="s"),
        tf.convert_to_tensor([x, [x][0]], dtype=tf.float32),
        tf.convert_to_tensor([tf.constant([1, 2]), [3, 4]]),
        tf.convert_to_tensor_or_sparse_tensor([1, 2]),
        tf.convert_to_tensor_or_indexed_slices([1.0]),
    ]


@case
def indexed_slices_to_tensor(tf):
    rows = tf.IndexedSlices(ramp(tf, 2, 3), tf.constant([3, 1]), tf.constant([5, 3]))
    return tf.convert_to_tensor(rows), tf.convert_to_tensor(rows, name="dense")


@case
def sparse_placeholder(tf):
    a = tf.sparse_placeholder(tf.float32, name="a")
    b = tf.sparse_placeholder(tf.int64, [None, 3])
    c = tf.sparse_placeholder(tf.int64, [2, 3], "c")
    assert a.dtype == tf.float32 and b.dtype == tf.int64
    return c.dense_shape


@case
def default_values(tf):
    return [
        tf.placeholder_with_default(1.0, []),
        tf.placeholder_with_default([[1]], [1, None], name="p"),
    ]


def gradient_case(build, *shapes):
    """Register a case for the values of a function's gradients."""

    def run(tf):
        xs = [ramp(tf, *shape, name=f"x{i}") * 0.5 + 1.0 for i, shape in enumerate(shapes)]
        y = build(tf, *xs)
        ys = list(y) if isinstance(y, (list, tuple)) else [y]
        weights = [
            tf.cast(tf.reshape(tf.range(tf.size(t)), tf.shape(t)), tf.float32) + 1.0 for t in ys
        ]
        return tf.gradients(ys, xs, weights)

    run.__name__ = build.__name__
    run.__module__ = build.__module__
    return case(run, graph=False)


def gradient_gather(tf, x):
    return tf.gather(x, [1, 0, 1])


def gradient_gather_axis(tf, x):
    return tf.gather(x, [[1, 0], [1, 2]], axis=1)


def gradient_gather_batch(tf, x):
    return tf.gather(x, [[1, 0], [1, 2]], axis=1, batch_dims=1)


def gradient_concat(tf, x, y):
    return tf.concat([x, y], 1)


def gradient_split(tf, x):
    return tf.split(x, [1, 2], 1)


def gradient_strided(tf, x):
    return [x[0, ::2, ..., None], x[::-1, 1]]


def gradient_pad(tf, x):
    return [
        tf.pad(x, [[1, 0], [2, 1]], "REFLECT"),
        tf.pad(x, [[1, 0], [2, 1]], "SYMMETRIC"),
        tf.pad(x, [[1, 0], [2, 1]]),
    ]


def gradient_tile(tf, x):
    return tf.tile(x, [2, 3])


def gradient_scatter(tf, x):
    return [tf.scatter_nd([[1], [1]], x, [4, 3]), tf.gather_nd(x, [[0, 1], [1, 1], [0, 1]])]


def gradient_tensor_scatter(tf, x, y):
    i = [[1], [2]]
    return [
        tf.tensor_scatter_update(x, i, y),
        tf.tensor_scatter_add(x, i, y),
        tf.tensor_scatter_sub(x, i, y),
    ]


def gradient_where(tf, x, y):
    return [tf.where([True, False], x, y), tf.where_v2([[True], [False]], x, y)]


def gradient_order(tf, x):
    return [tf.nn.top_k(x, 2)[0], tf.sort(x), tf.reverse(x, [1]), tf.roll(x, [1], [1])]


def gradient_blocks(tf, x):
    return [
        tf.space_to_depth(x, 2),
        tf.space_to_batch_nd(x, [2, 2], [[0, 0], [0, 0]]),
        tf.depth_to_space(x, 2),
        tf.transpose(x, [0, 3, 1, 2]),
        tf.reverse_sequence(x, [1], 1),
    ]


def gradient_parts(tf, x):
    return tf.dynamic_partition(x, [0, 1, 0], 2) + [
        tf.dynamic_stitch([[0, 1], [1]], [x[:2], x[2:]])
    ]


def gradient_fill(tf, x):
    s = tf.reduce_sum(x)
    return [
        tf.fill([2, 2], s),
        tf.broadcast_to(x, [2, 2, 3]),
        tf.one_hot([0, 1], 2, s, x[0, 0]),
        tf.stack([s, s]),
    ]


for _build, _shapes in [
    (gradient_gather, [(3, 2)]),
    (gradient_gather_axis, [(2, 3)]),
    (gradient_gather_batch, [(2, 3)]),
    (gradient_concat, [(2, 3), (2, 1)]),
    (gradient_split, [(2, 3)]),
    (gradient_strided, [(2, 3, 2)]),
    (gradient_pad, [(3, 4)]),
    (gradient_tile, [(2, 2)]),
    (gradient_scatter, [(2, 3)]),
    (gradient_tensor_scatter, [(4, 2), (2, 2)]),
    (gradient_where, [(2, 2), (2, 2)]),
    (gradient_order, [(2, 3)]),
    (gradient_blocks, [(1, 4, 4, 4)]),
    (gradient_parts, [(3, 2)]),
    (gradient_fill, [(2, 3)]),
]:
    gradient_case(_build, *_shapes)
