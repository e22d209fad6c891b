"""Specs: what two of them have in common, which values are of one, and how they print."""

import copy
import pickle

import numpy as np
import pytest

import headrace as tf

SPECS = [
    tf.TensorSpec([1, None], tf.int32, "a"),
    tf.TensorSpec(None),
    tf.SparseTensorSpec([2, 3], tf.int32),
    tf.IndexedSlicesSpec([2, 3], tf.float32, tf.int32, tf.int64, [4]),
    tf.TensorArraySpec([2], tf.float32, True, False),
]


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_copies_are_equal(spec):
    for other in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert other == spec
        assert hash(other) == hash(spec)
        assert repr(other) == repr(spec)
    assert [spec == other for other in SPECS].count(True) == 1
    assert spec != "a spec"
    assert isinstance(spec, tf.TypeSpec)
    assert spec.is_compatible_with(spec)
    assert spec.most_specific_compatible_type(spec) == spec


def test_how_they_print():
    assert [repr(spec) for spec in SPECS] == [
        "TensorSpec(shape=(1, ?), dtype=tf.int32, name='a')",
        "TensorSpec(shape=<unknown>, dtype=tf.float32, name=None)",
        "SparseTensorSpec(TensorShape([Dimension(2), Dimension(3)]), tf.int32)",
        "IndexedSlicesSpec(TensorShape([Dimension(2), Dimension(3)]), tf.float32, tf.int32, "
        "tf.int64, TensorShape([Dimension(4)]))",
        "TensorArraySpec(TensorShape([Dimension(2)]), tf.float32, True, False)",
    ]


def test_a_type_spec_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        tf.TypeSpec()


def test_tensors():
    spec = tf.TensorSpec([2])
    assert spec.value_type is tf.Tensor
    assert spec.is_compatible_with(tf.ones([2]))
    assert spec.is_compatible_with(tf.placeholder(tf.float32))
    others = [tf.ones([3]), tf.ones([2], tf.int32), [1.0, 2.0], np.ones(2, np.float32), "a"]
    assert not any(map(spec.is_compatible_with, others))
    joined = tf.TensorSpec([1, 2]).most_specific_compatible_type(tf.TensorSpec([3, 2]))
    assert joined == tf.TensorSpec([None, 2])
    with pytest.raises(ValueError, match="Types are not compatible"):
        spec.most_specific_compatible_type(tf.TensorSpec([2], tf.int32))
    with pytest.raises(ValueError, match="No TypeSpec is compatible with both"):
        spec.most_specific_compatible_type(tf.SparseTensorSpec([2]))


def test_sparse_tensors():
    spec = tf.SparseTensorSpec([2, None])
    sparse = tf.SparseTensor([[0, 0]], [1.0], [2, 3])
    assert spec.is_compatible_with(sparse)
    assert spec.is_compatible_with(tf.SparseTensorValue([[0, 0]], [1.0], [2, 3]))
    assert not tf.SparseTensorSpec([3, None]).is_compatible_with(sparse)
    assert not spec.is_compatible_with(tf.ones([2, 3]))
    assert tf.SparseTensorSpec.from_value(sparse) == tf.SparseTensorSpec([2, 3])
    assert spec._from_components(spec._to_components(sparse)).values is sparse.values
    assert [part.shape.as_list() for part in spec._component_specs] == [[None, 2], [None], [2]]
    with pytest.raises(TypeError, match="Expected SparseTensor or SparseTensorValue"):
        tf.SparseTensorSpec.from_value(3)


def test_indexed_slices():
    rows = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([0]), tf.constant([2, 3]))
    spec = tf.IndexedSlicesSpec([2, 3], tf.float32, tf.int32, tf.int32)
    assert spec.is_compatible_with(rows)
    assert not tf.IndexedSlicesSpec([2, 3], tf.float32, tf.int32).is_compatible_with(rows)
    assert not tf.IndexedSlicesSpec([2, 4], tf.float32, tf.int32, tf.int32).is_compatible_with(rows)
    assert not spec.is_compatible_with(3)


def test_tensor_arrays():
    array = tf.TensorArray(tf.float32, 3, element_shape=[2])
    spec = tf.TensorArraySpec([2], tf.float32)
    assert tf.TensorArraySpec.from_value(array) == spec
    assert spec.is_compatible_with(array)
    assert tf.TensorArraySpec(None).is_compatible_with(array)
    assert not tf.TensorArraySpec([3]).is_compatible_with(array)
    assert not tf.TensorArraySpec([2], dynamic_size=True).is_compatible_with(array)
    with pytest.raises(ValueError, match="Types are not compatible"):
        spec.most_specific_compatible_type(tf.TensorArraySpec([3]))
    again = spec._from_components(spec._to_components(array))
    assert (again.handle, again.flow) == (array.handle, array.flow)


def test_bounds():
    Bounded = tf.contrib.framework.BoundedTensorSpec
    spec = Bounded([2], tf.float32, 0, [1, 2], "n")
    assert repr(spec) == (
        "BoundedTensorSpec(shape=(2,), dtype=tf.float32, name='n', minimum=array(0., "
        "dtype=float32), maximum=array([1., 2.], dtype=float32))"
    )
    assert spec == Bounded([2], tf.float32, 0, [1, 2], "n")
    assert spec != Bounded([2], tf.float32, 0, [1, 3], "n")
    assert isinstance(spec, tf.TensorSpec)
    assert spec.is_compatible_with(tf.ones([2]))
    assert Bounded.from_spec(spec) == spec
    assert Bounded.from_spec(tf.TensorSpec([2], tf.int32)).maximum == 2**31 - 1
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(ValueError, match="maximum is not compatible with shape"):
        Bounded([2], tf.float32, 0, [1, 2, 3])
    with pytest.raises(ValueError, match="minimum and maximum must be provided"):
        Bounded([2], tf.float32, None, 1)


def grow(invariants, value, step):
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, x: (i + 1, step(x)), [tf.constant(0), value], invariants
    )[1]


def test_specs_as_invariants_of_loops():
    count = tf.TensorSpec([], tf.int32)
    with tf.Session() as session:
        for first in (count, tf.TensorShape([]), None):
            grown = grow(
                [first, tf.TensorSpec(None, tf.int32)], tf.constant([1]), lambda x: tf.stack([x, x])
            )
            assert session.run(grown).shape == (2, 2, 2, 1)
        sparse = tf.SparseTensor([[0, 0]], [1.0], [2, 3])
        grown = grow(
            [count, tf.SparseTensorSpec([None, 3])], sparse, lambda x: tf.sparse.concat(0, [x, x])
        )
        assert session.run(grown).dense_shape.tolist() == [16, 3]
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([4, 2]))
        spec = tf.IndexedSlicesSpec([4, 2], tf.float32, tf.int32, tf.int32)

        def doubled(x):
            values, indices = (tf.concat([t, t], 0) for t in (x.values, x.indices))
            return tf.IndexedSlices(values, indices, x.dense_shape)

        assert session.run(grow([count, spec], rows, doubled)).values.shape == (8, 2)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (tf.TensorSpec(None, tf.float32), TypeError),
        (tf.SparseTensorSpec(None, tf.int32), TypeError),
        (tf.TensorSpec([2], tf.int32), ValueError),
        (tf.TensorSpec([None], tf.int32), ValueError),
    ],
)
def test_invariants_that_do_not_hold(spec, error):
    with pytest.raises(error):
        grow([None, spec], tf.constant([1]), lambda x: tf.stack([x, x]))
