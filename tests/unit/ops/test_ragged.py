"""Ragged tensors: slices, sessions, specs, control flow and mistakes; tests/oracle has the rest."""

import itertools
import random

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import composed
from headrace._src.ops.base.dispatch import dispatched, register_rules
from tests.unit.compile.steps import assert_tiers_agree, clusters

INVALID = tf.errors.InvalidArgumentError
constant = tf.ragged.constant


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def lists(value):
    """The value of a tensor or a ragged tensor as nested lists."""
    found = run(value)
    return found.to_list() if isinstance(found, tf.ragged.RaggedTensorValue) else found.tolist()


def rows():
    return constant([[1.0, 2.0], [], [3.0]])


def deep():
    return constant([[[1, 2], [3]], [], [[4], [], [5, 6]]])


# -- Slices ----------------------------------------------------------------------------------------

BOUNDS = [None, 0, 1, 2, 5, -1, -2, -5]
SLICES = [slice(a, b, c) for a, b in itertools.product(BOUNDS, BOUNDS) for c in (None, 2, -1, -2)]


@pytest.mark.parametrize("seed", range(12))
def test_slices_are_those_of_lists(seed):
    draw = random.Random(seed)
    nested = [
        [[draw.randrange(9) for _ in range(draw.randrange(4))] for _ in range(draw.randrange(4))]
        for _ in range(draw.randrange(1, 5))
    ]
    rt = constant(nested, dtype=tf.int32, ragged_rank=2)
    keys = [tuple(draw.choice(SLICES) for _ in range(draw.randrange(1, 4))) for _ in range(6)]
    found = run([rt[key] for key in keys])
    for key, value in zip(keys, found, strict=True):
        assert value.to_list() == of_lists(nested, key), key


def of_lists(nested, key):
    if not key:
        return nested
    return [of_lists(row, key[1:]) for row in nested[key[0]]]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_slices_may_be_tensors(dtype):
    one = tf.placeholder_with_default(tf.constant(-1, dtype), [])
    assert lists(rows()[one]) == [3.0]
    assert lists(rows()[:one]) == [[1.0, 2.0], []]
    assert lists(rows()[:, one:]) == [[2.0], [], [3.0]]


def test_new_axes_and_ellipses():
    assert lists(rows()[:, tf.newaxis]) == [[[1.0, 2.0]], [[]], [[3.0]]]
    assert lists(rows()[..., tf.newaxis]) == [[[1.0], [2.0]], [], [[3.0]]]
    assert lists(deep()[..., 1:]) == [[[2], []], [], [[], [], [6]]]
    assert lists(deep()[2, ..., :1]) == [[4], [], [5]]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (lambda rt: rt[:, 0], ValueError, "Cannot index into an inner ragged dimension."),
        (lambda rt: rt["a"], TypeError, "Only integers, slices"),
        (lambda rt: rt[1.5], TypeError, "Only integers, slices"),
        (lambda rt: rt[:, ::0], ValueError, "slice step cannot be zero"),
        (lambda rt: rt[5], ValueError, "slice index 5 of dimension 0 out of bounds"),
        (lambda rt: rt[0, 0, 0], ValueError, "Index out of range using input dim 1"),
        (lambda rt: list(rt), TypeError, "iterable"),
        (lambda rt: bool(rt), TypeError, "RaggedTensor may not be used as a boolean."),
    ],
)
def test_wrong_indices(index, error, message):
    with pytest.raises(error, match=message):
        index(rows())


# -- Mistakes, with TensorFlow's phrases -----------------------------------------------------------

R = tf.RaggedTensor


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: R([1], [0, 1]), ValueError, "RaggedTensor constructor is private"),
        (lambda: tf.convert_to_tensor(rows()), TypeError, "Failed to convert object of type"),
        (lambda: tf.matmul(rows(), rows()), TypeError, "Failed to convert object of type"),
        (lambda: tf.nn.relu(rows()), TypeError, "Failed to convert object of type"),
        (lambda: tf.strings.upper(constant([["a"]])), TypeError, "Expected string passed to"),
        (lambda: rows() + constant([[1, 2], [], [3]]), TypeError, "does not match type float32"),
        (lambda: constant([[1], 2]), ValueError, "all scalar values must have the same nesting"),
        (lambda: constant([[1, 2]], ragged_rank=2), ValueError, "pylist has scalar values depth 2"),
        (lambda: constant([[[]], [1]]), ValueError, "empty list nesting is greater than scalar"),
        (lambda: constant([[[1]]], inner_shape=(3,)), TypeError, "Expected Tensor's shape"),
        (lambda: constant([[1]], row_splits_dtype=tf.int8), ValueError, "int32 or int64"),
        (lambda: constant([[1]], ragged_rank=-1), ValueError, "Invalid ragged_rank"),
        (lambda: R.from_row_splits([1], []), ValueError, "row_splits tensor may not be empty."),
        (lambda: R.from_row_splits([1], [[0, 1]]), ValueError, r"\(1, 2\) must have rank 1"),
        (lambda: R.from_row_splits([1], [0.0]), ValueError, "row_splits must have dtype int32 or"),
        (lambda: R.from_value_rowids([1], [5], 3), ValueError, "Expected nrows >= value_rowids"),
        (lambda: R.from_value_rowids([1], [0], -1), ValueError, "Expected nrows >= 0; got -1"),
        (lambda: R.from_value_rowids([1, 2], [0]), ValueError, "are incompatible"),
        (lambda: R.from_nested_row_splits([1], tf.constant([0, 1])), TypeError, "must be a list"),
        (lambda: R.from_nested_row_lengths([1], 3), TypeError, "must be a list of Tensors"),
        (lambda: R.from_nested_value_rowids([1], [[0]], [1, 2]), ValueError, "the same length"),
        (lambda: R.from_tensor([1, 2]), ValueError, "must have rank at least 2"),
        (lambda: R.from_tensor([[1]], ragged_rank=0), ValueError, "must be greater than 0; got 0"),
        (lambda: R.from_tensor([[1]], [1], 1), ValueError, "lengths or padding, but not both"),
        (lambda: R.from_sparse([[1]]), TypeError, "Expected SparseTensor, got list"),
        (lambda: rows().to_list(), ValueError, "only supported in eager mode"),
        (lambda: rows().to_tensor("a"), TypeError, "Expected float32"),
        (lambda: rows().row_lengths(2), ValueError, "axis=2 out of bounds: expected -2<=axis<2"),
        (lambda: rows().with_values([1.0]), ValueError, "are incompatible"),
        (lambda: rows().with_row_splits_dtype(tf.int8), ValueError, "must be int32 or int64"),
        (lambda: tf.reduce_sum(rows(), 2), ValueError, "axis=2 out of bounds"),
        (lambda: tf.reduce_sum(rows(), 1, True), ValueError, "keepdims=True is not supported"),
        (lambda: tf.concat([rows(), deep()], 0), ValueError, "must have rank 2"),
        (lambda: tf.concat([rows(), rows()], 2), ValueError, "axis=2 out of bounds"),
        (lambda: tf.ragged.stack([]), ValueError, "rt_inputs may not be empty."),
        (lambda: tf.gather(rows(), [0], axis=1), ValueError, "axis != 0 is not supported for"),
        (lambda: tf.gather_nd(rows(), 0), ValueError, "indices.rank must be at least 1."),
        (lambda: tf.squeeze(rows()), ValueError, "Ragged.squeeze must have an axis argument."),
        (lambda: tf.where(rows() > 1, rows()), ValueError, "must be either both None or both"),
        (lambda: tf.where(rows() > 1, 1.0, 2.0), ValueError, "Input shapes do not match."),
        (lambda: tf.one_hot(deep(), 2, axis=0), ValueError, "axis may not be less than indices"),
        (lambda: tf.ragged.boolean_mask(rows(), True), ValueError, "mask cannot be scalar."),
        (lambda: tf.ragged.boolean_mask(rows(), deep() > 1), ValueError, "identical ragged splits"),
        (
            lambda: tf.ragged.map_flat_values(tf.add, rows(), constant([[1.0], [2.0], [3.0]])),
            INVALID,
            "Inputs must have identical ragged splits",
        ),
        (
            lambda: rows() + rows().with_row_splits_dtype(tf.int32),
            ValueError,
            "Input RaggedTensors have mismatched row_splits dtypes",
        ),
        (
            lambda: tf.unsorted_segment_sum([1, 2], constant([[0, 1]]), 2),
            ValueError,
            "segment_ids is ragged and data is not",
        ),
        (lambda: tf.strings.ngrams("a", 2), ValueError, "Data must have rank>0"),
        (lambda: tf.strings.ngrams(["a"], 0), ValueError, "All ngram_widths must be greater than"),
        (lambda: tf.strings.ngrams(["a"], 1, pad_values=5), TypeError, "pad_values must be a"),
        (lambda: tf.strings.ngrams(["a"], 1, padding_width=1), ValueError, "must be provided if"),
        (lambda: tf.strings.split(["a"], result_type="x"), ValueError, "result_type must be"),
        (
            lambda: tf.strings.unicode_decode(tf.placeholder(tf.string), "UTF-8"),
            ValueError,
            "Rank of `input` must be statically known.",
        ),
    ],
)
def test_mistakes_while_building(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: R.from_row_splits([1], [0, 2]), "from_row_splits do not form a valid Ragged"),
        (lambda: R.from_row_splits([1], [1, 1]), "from_row_splits do not form a valid Ragged"),
        (lambda: R.from_row_splits([1, 2], hidden([0, 2, 1, 2])), "Condition x >= 0 did not hold"),
        (lambda: R.from_value_rowids([1, 2], [1, 0]), "from_value_rowids do not form a valid"),
        (lambda: R.from_row_starts([1, 2], [1]), "from_row_starts do not form a valid Ragged"),
        (lambda: R.from_row_limits([1, 2], [1]), "from_row_limits do not form a valid Ragged"),
        (lambda: R.from_row_lengths([1, 2], [3]), "from_row_lengths do not form a valid Ragged"),
        (
            lambda: R.from_sparse(tf.SparseTensor([[0, 1]], [1], [1, 2])),
            "SparseTensor is not right-ragged",
        ),
        (lambda: rows() + constant([[1.0], [2.0]]), "Unable to broadcast: dimension size mism"),
        (lambda: rows() + constant([[1.0], [2.0], []]), "Unable to broadcast: dimension size mism"),
        (lambda: rows() + [[1.0, 2.0]] * 3, "Unable to broadcast: dimension size mismatch"),
        (lambda: tf.gather(rows(), [5]), r"indices\[0\] = 5 is not in \[0, 3\)"),
        (lambda: tf.gather_nd(rows(), [[0, 2]]), "indices must be in the rows that they belong to"),
        (lambda: tf.squeeze(rows(), 0), "is not squeezable!"),
        (
            lambda: tf.ragged.stack_dynamic_partitions([1], [5], 3),
            "partitions must be less than num_partitions",
        ),
        (lambda: tf.strings.unicode_decode(["a"], "FOO"), "Could not create converter for input"),
    ],
)
def test_mistakes_while_running(build, message):
    with pytest.raises(INVALID, match=message):
        run(build())


def hidden(value):
    """A tensor whose value isn't known while the graph is built."""
    return tf.placeholder_with_default(value, None)


# -- Sessions --------------------------------------------------------------------------------------


def test_a_ragged_tensor_is_fetched_and_fed():
    p = tf.ragged.placeholder(tf.float32, 2, [])
    value = tf.ragged.constant_value([[[1.0], []], [[2.0, 3.0]]], dtype=np.float32)
    found = run({"twice": [p * 2, p.row_lengths()]}, {p: value})
    assert found["twice"][0].to_list() == [[[2.0], []], [[4.0, 6.0]]]
    assert found["twice"][1].tolist() == [2, 1]
    assert found["twice"][0].dtype == np.float32


def test_parts_are_fed_by_themselves_and_in_partial_runs():
    p = tf.ragged.placeholder(tf.float32, 1, [])
    assert run(p + 1, {p.flat_values: [1, 2], p.row_splits: [0, 2]}).to_list() == [[2.0, 3.0]]
    with tf.Session() as session:
        handle = session.partial_run_setup([p.flat_values], [p])
        value = tf.ragged.constant_value([[1.0]], dtype=np.float32)
        assert session.partial_run(handle, p.flat_values, {p: value}).tolist() == [1.0]
        assert session.make_callable(rows())().to_list() == [[1.0, 2.0], [], [3.0]]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([[1.0]], TypeError, "tf.ragged.constant_value makes one of nested lists"),
        (tf.ragged.constant_value([[[1.0]]]), ValueError, "ragged rank 2"),
    ],
)
def test_wrong_feeds(value, error, message):
    p = tf.ragged.placeholder(tf.float32, 1)
    with pytest.raises(error, match=message):
        run(p, {p: value})


def test_values():
    value = tf.ragged.constant_value([[["a"], []], [["b", "c"]]])
    assert value.to_list() == [[[b"a"], []], [[b"b", b"c"]]]
    assert (value.ragged_rank, value.shape) == (2, (2, None, None))
    assert [s.tolist() for s in value.nested_row_splits] == [[0, 2, 3], [0, 1, 1, 3]]
    assert str(tf.ragged.constant_value([[1]])) == "<tf.RaggedTensorValue [[1]]>"
    with pytest.raises(TypeError, match="row_splits must be a 1D int32 or int64 numpy array"):
        tf.ragged.RaggedTensorValue(np.array([1]), [0, 1])
    with pytest.raises(TypeError, match="values must be a numpy array"):
        tf.ragged.RaggedTensorValue([1], np.array([0, 1]))
    assert lists(tf.square(tf.ragged.constant_value([[1.0], [3.0]]))) == [[1.0], [9.0]]


def test_the_graph_survives_a_round_trip():
    rt = tf.gather(rows(), [2, 0]) + [[1.0], [2.0]]
    names = [t.name for t in rt.components()]
    definition = tf.get_default_graph().as_graph_def()
    wanted = run(rt.components())
    with tf.Graph().as_default():
        parts = tf.import_graph_def(definition, return_elements=names)
        found = run(tf.RaggedTensor.from_nested_row_splits(parts[0], parts[1:], validate=False))
    assert found.to_list() == [[4.0], [3.0, 4.0]]
    assert found.values.tolist() == wanted[0].tolist()


def test_lists_where_operations_run_as_they_are_made():
    def look(x):
        rt = tf.RaggedTensor.from_row_lengths(x, [1, 2])
        seen.append((rt * 2).to_list())
        return x

    seen = []
    run(tf.py_function(look, [[1.0, 2.0, 3.0]], tf.float32))
    assert seen == [[[2.0], [4.0, 6.0]]]


# -- Specs, shapes, control flow -------------------------------------------------------------------


def test_specs():
    spec = tf.RaggedTensorSpec([None, None], tf.float32)
    assert spec == tf.RaggedTensorSpec([None, None], ragged_rank=1)
    assert spec.is_compatible_with(rows()) and not spec.is_compatible_with(deep())
    assert spec.is_compatible_with(tf.ragged.constant_value([[1.0]], np.float32))
    assert not spec.is_compatible_with(tf.constant(1.0))
    assert spec.value_type is tf.RaggedTensor
    assert tf.RaggedTensorSpec([2], ragged_rank=0).value_type is tf.Tensor
    joined = tf.RaggedTensorSpec([2, None]).most_specific_compatible_type(
        tf.RaggedTensorSpec([3, None])
    )
    assert joined == spec
    assert tf.RaggedTensorSpec.from_value(deep()) == deep()._type_spec
    assert [s.shape.as_list() for s in tf.RaggedTensorSpec([2, None, 3], ragged_rank=1)
            ._component_specs] == [[None, 3], [3]]  # fmt: skip
    parts = spec._to_components(rows())
    assert lists(spec._from_components(parts)) == [[1.0, 2.0], [], [3.0]]
    for arguments, message in [
        ((), "a shape with a known rank"),
        (([2, None], tf.int32, 2), "less than rank"),
        (([2, None], tf.int32, 1, tf.int8), "int32 or int64"),
    ]:
        with pytest.raises(ValueError, match=message):
            tf.RaggedTensorSpec(*arguments)
    with pytest.raises(TypeError, match="Expected RaggedTensor"):
        tf.RaggedTensorSpec.from_value(3)


def test_static_shapes():
    assert rows().shape.as_list() == [3, None]
    assert (rows() + [[1.0], [2.0], [3.0]]).shape.as_list() == [3, None]
    assert constant([[[1, 2]]], ragged_rank=1).shape.as_list() == [1, None, 2]
    assert tf.ragged.placeholder(tf.float32, 1).shape.ndims is None
    assert tf.gather(rows(), [0, 1, 1]).shape.as_list() == [None, None]
    assert str(rows()).startswith("tf.RaggedTensor(values=Tensor(")


def test_nests_and_branches():
    rt, other = rows(), rows() * 2
    flat = tf.contrib.framework.nest.flatten([rt], expand_composites=True)
    assert flat == rt.components()
    assert lists(tf.cond(hidden(False), lambda: rt, lambda: other)) == [[2.0, 4.0], [], [6.0]]
    _, result = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), [0, rt])
    assert lists(result) == [[8.0, 16.0], [], [24.0]]
    square = tf.square(rows())
    assert [op.type for op in tf.square(square).flat_values.consumers()] == []
    assert [op.type for op in square.consumers()] == ["Square"]


# -- Functions -------------------------------------------------------------------------------------


def test_rows_of_equal_splits_need_no_broadcasting():
    rt = rows()
    before = len(tf.get_default_graph().get_operations())
    total = rt * rt + rt
    assert total.row_splits is rt.row_splits
    assert len(tf.get_default_graph().get_operations()) == before + 2


@pytest.mark.parametrize("seed", range(6))
def test_broadcasting_with_dense_dimensions_of_one(seed):
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 4, 5)
    nested = [draw.normal(size=(n, 3)).astype(np.float32).tolist() for n in lengths]
    rt = constant(nested, tf.float32, ragged_rank=1, inner_shape=(3,))
    rt = rt.with_flat_values(hidden(run(rt.flat_values)))
    rt.flat_values.set_shape([None, 3])
    shape = [[5, 1, 3], [5, 1, 1], [1, 1, 3], [3], [1, 1, 1], [1, 3]][seed]
    dense = draw.normal(size=shape).astype(np.float32)
    found = run(rt * tf.placeholder_with_default(dense, [None] * len(shape)))
    full = np.broadcast_to(dense, [5, 1, 3])
    for i, row in enumerate(found.to_list()):
        wanted = np.reshape(np.float32(nested[i]), [-1, 3]) * full[i]
        np.testing.assert_allclose(np.reshape(row, [-1, 3]), wanted)


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_of_empty_tensors(axis):
    empty = constant([], tf.float32, ragged_rank=1)
    assert run(tf.reduce_sum(empty, axis)).tolist() == []
    assert run(tf.reduce_sum(constant([[], []], tf.float32), 1)).tolist() == [0.0, 0.0]


def test_gradients_reach_flat_values():
    x = tf.placeholder_with_default([1.0, 2.0, 3.0], [None])
    rt = tf.RaggedTensor.from_row_lengths(x, [2, 0, 1])
    error = tf.reduce_sum(tf.reduce_mean(rt[:1] ** 2 * [[2.0]], 1))
    assert run(tf.gradients(error, x)[0]).tolist() == [2.0, 4.0, 0.0]
    gathered = tf.gather(rt, [0, 2, 0]).flat_values
    assert run(tf.gradients(gathered, x)[0]).tolist() == [2.0, 2.0, 1.0]
    (second,) = tf.gradients(tf.gradients(tf.reduce_sum(rt * rt * rt), x)[0], x)
    assert run(second).tolist() == [6.0, 12.0, 18.0]
    fixed = tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 3], validate=False)
    product = fixed * [[1.0], [2.0], [3.0]] * constant([[4.0, 5.0], [], [6.0]])
    (direct,) = tf.gradients(product.flat_values, x)
    assert isinstance(direct, tf.Tensor)  # nothing of x is repeated, so nothing is gathered
    assert run(direct).tolist() == [4.0, 5.0, 18.0]
    dense = tf.convert_to_tensor(tf.gradients(rt.to_tensor(), x)[0])
    assert run(dense).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.needs_llvm
def test_elementwise_functions_compile_like_those_of_tensors():
    flat = tf.placeholder(tf.float32, [None])
    rt = tf.RaggedTensor.from_row_splits(flat, [0, 40, 64], validate=False)
    result = tf.exp(rt * 2.0) + rt
    feeds = {flat: np.linspace(-1, 1, 64, dtype=np.float32)}
    assert len(clusters([result.flat_values], feeds)) == 1
    assert_tiers_agree([result.flat_values, tf.reduce_sum(result, 1)], feeds)


def test_rules_are_asked_only_if_a_call_fails():
    class Pair:
        def __init__(self, value):
            self.value = value

    register_rules(Pair, {"square": lambda x, name=None: Pair(tf.square(x.value))})
    try:
        assert run(tf.square(Pair(3.0)).value) == 9.0
        with pytest.raises(TypeError):
            tf.exp(Pair(3.0))
    finally:
        _forget("square")


def test_a_failing_rule_shows_its_own_error():
    class Odd:
        pass

    @composed
    @dispatched
    def only_for_this_test(x):
        raise TypeError("the call")

    def rule(x):
        if x is odd:
            raise ValueError("the rule")
        return NotImplemented

    odd = Odd()
    register_rules(Odd, {"only_for_this_test": rule})
    with pytest.raises(ValueError, match="the rule") as caught:
        only_for_this_test(odd)
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match="the call"):
        only_for_this_test(Odd())
    with pytest.raises(TypeError, match="the call"):
        only_for_this_test(1)


def _forget(name):
    from headrace._src.ops.base import dispatch

    dispatch._RULES[name].pop()
