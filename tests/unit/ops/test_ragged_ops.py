"""The ops of ragged tensors: what their kernels refuse, and variants."""

import numpy as np
import pytest

import headrace as tf

INVALID = tf.errors.InvalidArgumentError
ops = tf.raw_ops


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def hidden(value, dtype=tf.int64):
    """A tensor of which nothing is known while the graph is built."""
    return tf.placeholder_with_default(tf.constant(value, dtype), None)


def to_dense(partition, types, shape=(-1, -1), values=(1, 2, 3), default=9):
    return ops.RaggedTensorToTensor(
        shape=list(shape),
        values=list(values),
        default_value=default,
        row_partition_tensors=partition,
        row_partition_types=types,
    )


@pytest.mark.parametrize(
    ("starts", "limits", "deltas", "message"),
    [
        ([0], [3], 0, "Requires delta != 0"),
        ([0, 1], [3], [1, 1, 1], "must have the same shape"),
        ([[0]], [3], 1, "must be scalars or vectors"),
    ],
)
def test_wrong_ranges(starts, limits, deltas, message):
    found = ops.RaggedRange(starts=hidden(starts), limits=hidden(limits), deltas=hidden(deltas))
    with pytest.raises(INVALID, match=message):
        run(found)


def test_ranges_with_endless_bounds():
    with pytest.raises(INVALID, match="finite bounds"):
        run(tf.ragged.range([0.0], [np.float32(np.inf)]))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        run(tf.ragged.range(np.int64([0]), np.int64([2**62])))


@pytest.mark.parametrize(
    ("splits", "values", "indices", "message"),
    [
        ([0, 2, 1, 3], [1, 2, 3], [1], "Ragged splits must be sorted"),
        ([0, 2, 4], [1, 2, 3], [1], "Ragged splits must not point past values"),
        ([-1, 2, 3], [1, 2, 3], [1], "Ragged splits must be non-negative"),
        ([0, 2, 3], [1, 2, 3], [2], r"indices\[0\] = 2 is not in \[0, 2\)"),
        ([0, 2, 3], [1, 2, 3], [-1], r"indices\[0\] = -1 is not in \[0, 2\)"),
        ([0, 2, 3], 1, [0], "params.rank must be nonzero"),
        ([[0, 2]], [1, 2], [0], "must be a vector"),
        ([0, 2, 3], [1, 2, 3], [[0]], "give ragged rank 2, not 1"),
    ],
)
def test_wrong_gathers(splits, values, indices, message):
    found = ops.RaggedGather(
        params_nested_splits=[hidden(splits)],
        params_dense_values=hidden(values),
        indices=hidden(indices),
        OUTPUT_RAGGED_RANK=1,
    )
    with pytest.raises(INVALID, match=message):
        run(found.output_dense_values)


@pytest.mark.parametrize(
    ("splits", "values", "message"),
    [
        ([1, 2, 3], [1, 2, 3], "First value of ragged splits must be 0."),
        ([0, 2, 3], [1, 2], "Final value of ragged splits must match the length"),
        ([0, 2, 1, 3], [1, 2, 3], "Ragged splits should be non decreasing."),
        ([], [1], "ragged splits may not be empty."),
        ([0, 1], 1, "at least a vector"),
        ([[0, 1]], [1], "must be a vector"),
    ],
)
def test_wrong_splits_of_sparse_tensors(splits, values, message):
    found = ops.RaggedTensorToSparse(
        rt_nested_splits=[hidden(splits)], rt_dense_values=hidden(values)
    )
    with pytest.raises(INVALID, match=message):
        run(found)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["FOO"], "Unknown string for partition info type: FOO"),
        (["VALUE_ROWIDS"], "VALUE_ROWIDS cannot be first"),
        (["FIRST_DIM_SIZE"], "FIRST_DIM_SIZE must be followed by VALUE_ROWIDS"),
        (["ROW_LENGTHS"], "Unsupported partition type: ROW_LENGTHS"),
        (["ROW_SPLITS", "ROW_SPLITS"], "don't describe 1 row_partition_tensors"),
        ([], "should not be empty"),
    ],
)
def test_wrong_partition_types(types, message):
    with pytest.raises(ValueError, match=message):
        to_dense([[0, 2, 3]], types)


@pytest.mark.parametrize(
    ("partition", "types", "more", "message"),
    [
        ([[0, 2, 4]], ["ROW_SPLITS"], {}, "row splits end at 4"),
        ([[1, 2, 3]], ["ROW_SPLITS"], {}, "must start with 0"),
        ([[0, 2, 1, 3]], ["ROW_SPLITS"], {}, "be sorted"),
        ([2, [0, 0, 2]], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"], {}, r"sorted, and in \[0, 2\)"),
        ([3, [0, 2]], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"], {}, "has 2 values, not 3"),
        ([[0, 2, 3]], ["ROW_SPLITS"], {"shape": [-1, -1, -1]}, "shape has 3 dimensions"),
        ([[0, 2, 3]], ["ROW_SPLITS"], {"default": [1, 2]}, "broadcast"),
    ],
)
def test_wrong_partitions(partition, types, more, message):
    given = {"shape": hidden(more.get("shape", [-1, -1]))}
    found = ops.RaggedTensorToTensor(
        **given,
        values=[1, 2, 3],
        default_value=tf.placeholder_with_default(more.get("default", 9), None),
        row_partition_tensors=[hidden(p) for p in partition],
        row_partition_types=types,
    )
    with pytest.raises(INVALID, match=message):
        run(found)


def test_dense_tensors_have_gradients():
    values, default = tf.constant([1.0, 2.0, 3.0]), tf.constant(5.0)
    splits = tf.constant([0, 2, 3], tf.int64)
    found = ops.RaggedTensorToTensor(
        shape=[3, 3],
        values=values,
        default_value=default,
        row_partition_tensors=[splits],
        row_partition_types=["ROW_SPLITS"],
    )
    weights = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    of_values, of_default = run(tf.gradients(found * weights, [values, default]))
    assert of_values.tolist() == [0.0, 1.0, 3.0]
    assert of_default == 36 - 4


# -- Variants --------------------------------------------------------------------------------------


def encode(splits, values, batched):
    nested = [tf.constant(s, tf.int64) for s in splits]
    return ops.RaggedTensorToVariant(
        rt_nested_splits=nested, rt_dense_values=values, batched_input=batched
    )


def decode(encoded, inner, outer, values=tf.int32, splits=tf.int64):
    return ops.RaggedTensorFromVariant(
        encoded_ragged=encoded,
        input_ragged_rank=inner,
        output_ragged_rank=outer,
        Tvalues=values,
        Tsplits=splits,
    )


NESTED = [[0, 2, 3], [0, 1, 2, 4]]


@pytest.mark.parametrize("inner", [1, -1])
def test_rows_in_variants(inner):
    encoded = encode(NESTED, [1, 2, 3, 4], True)
    assert run(tf.shape(encoded)).tolist() == [2]
    found = run(decode(encoded, inner, 2))
    assert [s.tolist() for s in found.output_nested_splits] == NESTED
    assert found.output_dense_values.tolist() == [1, 2, 3, 4]


def test_ragged_tensors_in_variants():
    first, second = encode([[0, 2, 3]], [1, 2, 3], False), encode([[0, 1]], [4], False)
    found = run(decode(tf.stack([first, second]), 1, 2))
    assert [s.tolist() for s in found.output_nested_splits] == [[0, 2, 3], [0, 2, 3, 4]]
    assert found.output_dense_values.tolist() == [1, 2, 3, 4]


def test_chosen_variants():
    """A vector of rows is a tensor: rows can be taken out of it."""
    rows = tf.gather(encode([[0, 2, 2, 3]], [1, 2, 3], True), [2, 0])
    found = run(decode(rows, 0, 1))
    assert found.output_nested_splits[0].tolist() == [0, 1, 3]
    assert found.output_dense_values.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: decode(encode([[0, 1]], [1], True), 0, 1, tf.float32), "Expected values Tensor"),
        (
            lambda: decode(encode(NESTED, [1, 2, 3, 4], True), 1, 2, splits=tf.int32),
            "Expected splits Tensor",
        ),
        (lambda: decode(encode(NESTED, [1, 2, 3, 4], False), 1, 1), "Encoded input Variant must"),
        (lambda: encode([[0, 2, 1]], [1], True), "Ragged splits must be sorted"),
    ],
)
def test_wrong_variants(build, message):
    found = build()
    with pytest.raises(INVALID, match=message):
        run(found if not hasattr(found, "output_dense_values") else found.output_dense_values)


def test_a_variant_of_another_rank_is_refused():
    with pytest.raises(ValueError, match="must be rank 2 but is rank 1"):
        decode(encode(NESTED, [1, 2, 3, 4], True), 1, 3)
