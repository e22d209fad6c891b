"""Ragged tensors: tf.RaggedTensor, tf.ragged, the functions that take ragged tensors, and slices.

Nodes are compared where the graph is the point: factories, accessors, element-wise functions. The
others (graph=False) compute the same values by other graphs.
"""

import numpy as np

from tests.oracle.case import case


def _rows(tf):
    return tf.ragged.constant([[1.0, 2.0], [], [3.0]])


def _deep(tf):
    return tf.ragged.constant([[[1, 2], [3]], [], [[4], [], [5, 6]]])


def _wide(tf):
    return tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1)


def _words(tf):
    return tf.ragged.constant([["a", "bc"], [], ["d e"]])


@case
def constants(tf):
    return [
        tf.ragged.constant([[1, 2], [], [3]]),
        tf.ragged.constant([[[1, 2], []], [[3]]], name="named"),
        _wide(tf),
        tf.ragged.constant([["a"], ["b", "c"]]),
        tf.ragged.constant([[1]], dtype=tf.float64, row_splits_dtype=tf.int32),
        tf.ragged.constant([[], [[1]]]),
        tf.ragged.constant([[], []], ragged_rank=1, inner_shape=(2,)),
        tf.ragged.constant(5),
        tf.ragged.constant([1, 2]),
    ]


@case(
    feeds={
        "p/flat_values:0": [[1.0, 2.0, 3.0]],
        "p/row_splits_1:0": [0, 1],
        "p/row_splits_0:0": [0, 1, 1],
    }
)
def placeholders(tf):
    return tf.ragged.placeholder(tf.float32, 2, [3], name="p")


@case
def factories_without_checks(tf):
    kind = tf.RaggedTensor
    return [
        kind.from_row_splits([1, 2, 3], [0, 2, 3], validate=False),
        kind.from_value_rowids([1, 2, 3], [0, 0, 2], validate=False),
        kind.from_value_rowids([1, 2, 3], [0, 0, 2], nrows=4, validate=False, name="ids"),
        kind.from_row_starts([1, 2, 3], [0, 2], validate=False),
        kind.from_row_limits([1, 2, 3], [2, 3], validate=False),
        kind.from_row_lengths([1, 2, 3], [2, 1], validate=False),
        kind.from_nested_row_splits([1, 2, 3], [[0, 2], [0, 2, 3]], validate=False),
        kind.from_nested_row_lengths([1, 2, 3], [[2], [2, 1]], validate=False),
        kind.from_nested_value_rowids([1, 2, 3], [[0, 0], [0, 0, 1]], validate=False),
    ]


@case
def factories(tf):
    kind = tf.RaggedTensor
    return [
        kind.from_row_splits([1, 2, 3], [0, 2, 3]),
        kind.from_value_rowids([1, 2, 3], [0, 0, 2]),
        kind.from_row_starts([1, 2, 3], [0, 2]),
        kind.from_row_limits([1, 2, 3], [2, 3]),
        kind.from_row_lengths([1, 2, 3], [2, 1]),
        kind.from_nested_row_splits([1, 2, 3], [[0, 2], [0, 2, 3]]),
    ]


@case
def accessors(tf):
    rt = tf.RaggedTensor.from_nested_row_splits(
        tf.placeholder_with_default([[1.0], [2.0], [3.0]], [None, 1]),
        [
            tf.placeholder_with_default(np.int64([0, 1, 2]), [None]),
            tf.placeholder_with_default(np.int64([0, 2, 3]), [None]),
        ],
        validate=False,
    )
    return [
        rt.row_lengths(),
        rt.row_lengths(axis=2),
        rt.row_lengths(axis=3),
        rt.row_lengths(axis=0),
        rt.nrows(),
        rt.nrows(out_type=tf.int32),
        rt.row_starts(),
        rt.row_limits(name="ends"),
        rt.value_rowids(),
        rt.nested_row_lengths(),
        rt.nested_value_rowids(),
        rt.bounding_shape(),
        rt.bounding_shape(axis=1),
        rt.bounding_shape(axis=0),
        rt.with_row_splits_dtype(tf.int32),
        rt.with_flat_values(rt.flat_values + 1.0),
        rt.to_sparse(),
    ]


@case(graph=False)
def dense(tf):
    kind = tf.RaggedTensor
    matrix = [[1, 2, 0], [3, 0, 0]]
    cube = [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    return [
        _rows(tf).to_tensor(),
        _rows(tf).to_tensor(-1),
        _deep(tf).to_tensor(9),
        _wide(tf).to_tensor([8, 9]),
        _words(tf).to_tensor("-"),
        _wide(tf).to_sparse(),
        kind.from_tensor(matrix),
        kind.from_tensor(matrix, padding=0),
        kind.from_tensor(matrix, lengths=[1, 9]),
        kind.from_tensor(cube, padding=[0, 0]),
        kind.from_tensor(cube, ragged_rank=2, padding=0),
        kind.from_tensor(cube, lengths=([1, 2], [1, 2, 0])),
        kind.from_tensor(tf.placeholder_with_default(matrix, None), padding=0),
        kind.from_sparse(tf.SparseTensor([[0, 0], [3, 0], [3, 1]], [1, 2, 3], [5, 2])),
    ]


@case
def from_tensors(tf):
    kind = tf.RaggedTensor
    return [
        kind.from_tensor([[1, 2], [3, 4]]),
        kind.from_tensor([[1, 2], [3, 4]], lengths=[1, 2]),
        kind.from_tensor([[1, 2], [3, 4]], row_splits_dtype=tf.int32, name="narrow"),
    ]


@case
def unary(tf):
    rt = tf.ragged.placeholder(tf.float32, 1)
    rt = rt.with_values(tf.placeholder_with_default([1.0, -2.0, 3.5], [None]))
    rt = tf.RaggedTensor.from_row_splits(rt.values, [0, 2, 3], validate=False)
    return [
        tf.square(rt),
        -rt,
        abs(rt),
        tf.cast(rt, tf.int32),
        tf.exp(rt, name="e"),
        tf.identity(rt),
        tf.zeros_like(rt),
        tf.ones_like(rt),
        tf.clip_by_value(rt, -1.0, 1.0),
        tf.strings.length(_words(tf)),
        tf.strings.substr(_words(tf), 0, 1),
        tf.as_string(rt),
        ~(rt > 1.0),
        tf.size(rt),
        tf.rank(rt),
    ]


@case
def scalars(tf):
    rt = _rows(tf)
    return [
        rt + 1,
        1 + rt,
        rt - 1,
        2 - rt,
        rt * 2.0,
        rt / 2,
        rt // 2,
        rt % 2,
        rt**2,
        2**rt,
        rt > 1,
        rt <= 2,
        tf.equal(rt, 1),
        tf.add(x=rt, y=1.0, name="sum"),
        tf.maximum(rt, 2.0),
        _wide(tf) + [10, 20],
    ]


@case(graph=False)
def broadcasts(tf):
    rt = _rows(tf)
    return [
        rt + rt,
        rt + _rows(tf) * 2,
        rt + [[1.0], [2.0], [3.0]],
        rt * [[2.0]],
        rt * [3.0],
        tf.ragged.constant([[1.0, 2.0]]) + tf.ragged.constant([[1.0, 2.0], [3.0, 4.0]]),
        _deep(tf) + [[[1]], [[2]], [[3]]],
        _wide(tf) + tf.ragged.constant([[[1]], [[2], [3]]], ragged_rank=1),
        _wide(tf) - [[[1]], [[2]]],
        tf.logical_xor(rt > 1, rt > 2),
        tf.squared_difference([[1.0], [2.0], [3.0]], rt),
        tf.add_n([rt, _rows(tf), rt]),
        tf.strings.join(["x", _words(tf)], "-"),
    ]


@case(graph=False)
def reductions(tf):
    rt, deep, wide = _rows(tf), _deep(tf), _wide(tf)
    return [
        tf.reduce_sum(rt),
        tf.reduce_sum(rt, 0),
        tf.reduce_sum(rt, 1),
        tf.reduce_sum(deep, 0),
        tf.reduce_sum(deep, 1),
        tf.reduce_sum(deep, 2),
        tf.reduce_sum(deep, [0, 2]),
        tf.reduce_sum(wide, [1, 2]),
        tf.reduce_sum(wide, 2),
        tf.reduce_mean(rt, 0),
        tf.reduce_mean(deep),
        tf.reduce_prod(rt, 1),
        tf.reduce_max(rt, 1),
        tf.reduce_min(deep, -1),
        tf.reduce_any(rt > 1, 1),
        tf.reduce_all(rt > 1, 1),
        tf.reduce_sum(rt, reduction_indices=1),
        tf.strings.reduce_join(_words(tf), 1, separator=","),
        tf.strings.reduce_join(_words(tf), axis=0),
        tf.strings.reduce_join(_words(tf)),
    ]


@case(graph=False)
def segments(tf):
    rt, deep = _rows(tf), _deep(tf)
    return [
        tf.unsorted_segment_sum(rt, [0, 1, 0], 2),
        tf.unsorted_segment_sum(rt, tf.ragged.constant([[0, 1], [], [1]]), 3),
        tf.unsorted_segment_mean(rt, [0, 1, 0], 2),
        tf.unsorted_segment_sqrt_n(rt, [0, 1, 0], 2),
        tf.unsorted_segment_max(rt, [0, 1, 0], 2),
        tf.unsorted_segment_prod(deep, [0, 1, 0], 2),
        tf.unsorted_segment_min(deep, tf.ragged.constant([[0, 1], [], [1, 0, 0]]), 3),
    ]


@case(graph=False)
def slices(tf):
    rt, deep, wide = _rows(tf), _deep(tf), _wide(tf)
    one = tf.placeholder_with_default(1, [])
    return [
        rt[0],
        rt[-1],
        rt[1:],
        rt[:-1],
        rt[::2],
        rt[::-1],
        rt[2:0:-1],
        rt[1:1],
        rt[:, :1],
        rt[:, 1:],
        rt[:, -1:],
        rt[:, :-1],
        rt[:, ::2],
        rt[:, -5:-1],
        rt[0, 0],
        rt[...],
        rt[..., :1],
        rt[tf.newaxis],
        rt[:, tf.newaxis],
        rt[:, :, tf.newaxis],
        rt[one],
        rt[one:],
        rt[:, one:],
        deep[0],
        deep[0, 1],
        deep[0, 1, 0],
        deep[2, 1:],
        deep[:, 1:],
        deep[:, 1:, 1:],
        deep[..., :1],
        deep[tf.newaxis, 0],
        deep[:, tf.newaxis, :1],
        deep[::2, :, 1:],
        wide[:, :, 0],
        wide[..., 1:],
        wide[1, 1, 1],
    ]


@case(graph=False)
def joins(tf):
    rt, deep, wide = _rows(tf), _deep(tf), _wide(tf)
    return [
        tf.concat([rt, rt], 0),
        tf.concat([rt, [[7.0], [8.0], [9.0]]], 1),
        tf.concat([[[9.0]], rt], 0),
        tf.concat([deep, deep], 1),
        tf.concat([deep, deep], 2),
        tf.concat([wide, wide], -1),
        tf.stack([rt, tf.ragged.constant([[1.0]])]),
        tf.stack([rt, rt], axis=1),
        tf.ragged.stack([rt, rt], 2),
        tf.ragged.stack([rt]),
        tf.expand_dims(rt, 0),
        tf.expand_dims(rt, 1),
        tf.expand_dims(deep, 2),
        tf.expand_dims(rt, -1),
        tf.squeeze(tf.ragged.constant([[[1, 2]], [[3]]]), 1),
        tf.squeeze(tf.ragged.constant([[1, 2]]), [0]),
        tf.tile(rt, [2, 2]),
        tf.tile(deep, [2, 1, 2]),
        tf.tile(wide, [1, 2, 2]),
    ]


@case(graph=False)
def gathers(tf):
    rt, deep, wide = _rows(tf), _deep(tf), _wide(tf)
    lists = tf.ragged.constant([[2], [], [0, 1]])
    return [
        tf.gather(rt, [2, 0]),
        tf.gather(rt, 2),
        tf.gather(rt, [[2, 0], [1, 1]]),
        tf.gather(rt, lists),
        tf.gather([10, 20, 30], lists),
        tf.gather(deep, lists),
        tf.batch_gather(rt, tf.ragged.constant([[1], [], [0, 0]])),
        tf.batch_gather(deep, tf.ragged.constant([[1], [], [0, 0]])),
        tf.batch_gather(deep, tf.ragged.constant([[[1], [0]], [], [[0], [], [1]]])),
        tf.gather_nd(rt, [[0, 1], [2, 0]]),
        tf.gather_nd(deep, [[0, 1], [2, 0]]),
        tf.gather_nd(deep, [[0, 1, 0], [2, 0, 0]]),
        tf.gather_nd(wide, [[0, 0, 1]]),
        tf.gather_nd(rt, tf.ragged.constant([[[0, 1]], [], [[2, 0]]], ragged_rank=1)),
        tf.one_hot(tf.ragged.constant([[1, 2], [], [3]]), 4),
    ]


@case(graph=False)
def selections(tf):
    rt, deep = _rows(tf), _deep(tf)
    return [
        tf.where(rt > 1),
        tf.where(deep > 2),
        tf.where(rt > 1, rt, rt + 10),
        tf.where([True, False, True], rt, tf.ragged.constant([[9.0], [8.0], [7.0]])),
        tf.ragged.boolean_mask([[1, 2], [3, 4]], [[True, False], [False, True]]),
        tf.ragged.boolean_mask(rt, rt > 1),
        tf.ragged.boolean_mask(rt, [True, False, True]),
        tf.ragged.boolean_mask(deep, deep > 2),
        tf.ragged.boolean_mask(deep, tf.ragged.constant([[True, False], [], [False, True, True]])),
        tf.ragged.stack_dynamic_partitions(["a", "b", "c"], [2, 0, 2], 3),
        tf.ragged.stack_dynamic_partitions(_words(tf), [2, 0, 2], 3),
        tf.dynamic_partition(_words(tf), [2, 0, 2], 3),
    ]


@case
def ranges(tf):
    return [
        tf.ragged.range([3, 5, 2]),
        tf.ragged.range([0, 3], [3, 5], 2),
        tf.ragged.range(1.5, [3, 4], name="mixed"),
        tf.ragged.range([5, 1], 0, -2, row_splits_dtype=tf.int32),
        tf.ragged.range(0.0, [10.0], 0.1),
        tf.ragged.row_splits_to_segment_ids([0, 2, 2, 3]),
        tf.ragged.segment_ids_to_row_splits([0, 0, 2], 5),
        tf.ragged.map_flat_values(tf.square, _rows(tf)),
    ]


@case
def raw_ops(tf):
    splits = tf.constant([0, 2, 3, 3], tf.int64)
    found = tf.raw_ops.RaggedGather(
        params_nested_splits=[splits],
        params_dense_values=[1, 2, 3],
        indices=[[2, 0], [0, 1]],
        OUTPUT_RAGGED_RANK=2,
    )
    sparse = tf.raw_ops.RaggedTensorToSparse(rt_nested_splits=[splits], rt_dense_values=[1, 2, 3])
    return [
        list(found.output_nested_splits),
        found.output_dense_values,
        list(sparse),
        list(tf.raw_ops.RaggedRange(starts=[0, 5], limits=[3, 5], deltas=1)),
        tf.raw_ops.RaggedTensorToTensor(
            shape=[4, -1],
            values=[1, 2, 3],
            default_value=9,
            row_partition_tensors=[splits],
            row_partition_types=["ROW_SPLITS"],
        ),
        tf.raw_ops.RaggedTensorToTensor(
            shape=[-1, -1],
            values=[1, 2, 3],
            default_value=9,
            row_partition_tensors=[tf.constant(3), tf.constant([0, 0, 2])],
            row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
        ),
    ]


@case(graph=False)
def gradients(tf):
    flat = tf.constant([1.0, 2.0, 3.0])
    rt = tf.RaggedTensor.from_row_splits(flat, [0, 2, 2, 3], validate=False)
    results = [
        (rt * rt).flat_values,
        (rt * [[1.0], [2.0], [3.0]]).flat_values,
        tf.reduce_sum(rt * 2, 1) ** 2,
        tf.reduce_mean(rt**2, 0),
        rt.to_tensor() ** 2,
        rt.to_sparse().values ** 2,
        tf.gather(rt, [0, 2, 0]).flat_values ** 2,
        rt[:, :1].flat_values ** 2,
        tf.concat([rt, rt * 3], 1).flat_values ** 2,
    ]
    found = [tf.gradients(r, flat)[0] for r in results]
    return [tf.convert_to_tensor(g) for g in found]


@case(graph=False)
def control_flow(tf):
    rt = _rows(tf)
    yes = tf.placeholder_with_default(False, [])
    return [
        tf.cond(yes, lambda: rt, lambda: rt * 2),
        tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + 1), [0, rt]),
    ]
