"""What array ops refuse, in TensorFlow 1.15's words: while a graph is built, and in a step."""

import numpy as np
import pytest

import headrace as tf

MATRIX = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def unknown(value, dtype=None):
    """A tensor of which nothing is known before the step."""
    return tf.placeholder_with_default(tf.constant(value, dtype), None)


BUILDING = {
    "slice index 5 of dimension 0 out of bounds": lambda x: x[5],
    "Index out of range using input dim 2; input has only 2 dims": lambda x: x[0, 0, 0],
    "Multiple ellipses in slice spec not allowed": lambda x: x[..., ...],
    "strides[0] must be non-zero": lambda x: x[::0],
    "mask cannot be scalar.": lambda x: x[True],
    "Requires start <= limit when delta > 0: 5/0": lambda x: tf.range(5, 0),
    "Requires delta != 0": lambda x: tf.range(5, 0, 0),
    "Cannot reshape a tensor with 6 elements to shape [4] (4 elements)": lambda x: tf.reshape(
        x, [4]
    ),
    "Dimension size must be evenly divisible by 4 but is 6": lambda x: tf.reshape(x, [4, -1]),
    "Dimension 0 in both shapes must be equal": lambda x: tf.concat([x, tf.ones([3, 2])], 1),
    "Can't concatenate scalars (use tf.stack instead)": lambda x: tf.concat([1, 2], 0),
    "Shape must be at least rank 3 but is rank 2": lambda x: tf.concat([x, x], 2),
    "Dimension size must be evenly divisible by 4 but is 3": lambda x: tf.split(x, 4, 1),
    "can't split axis of size 3 into pieces of size [1,1]": lambda x: tf.split(x, [1, 1], 1),
    "Can not squeeze dim[0], expected a dimension of 1, got 2": lambda x: tf.squeeze(x, [0]),
    "dim 5 not in the interval [-3, 2].": lambda x: tf.expand_dims(x, 5),
    "Must specify an axis argument to tf.expand_dims()": tf.expand_dims,
    "Shape must be rank 2 but is rank 1": lambda x: tf.tile(x, [1]),
    "Shape must be rank 1 but is rank 2": lambda x: tf.pad(x, [[1, 1]]),
    "Unknown padding mode: FOO": lambda x: tf.pad(x, [[0, 0], [0, 0]], "FOO"),
    "must be non-negative but is -1": lambda x: tf.one_hot([1], -1),
    "input must have last dimension >= k = 4 but is 3": lambda x: tf.nn.top_k(x, 4),
    "Dimensions must be equal, but are 3 and 2": lambda x: tf.broadcast_to(x, [2, 2]),
    "Cannot infer num from shape <unknown>": lambda x: tf.unstack(unknown(MATRIX)),
    "Dimension must be 5 but is 2": lambda x: tf.unstack(x, 5),
    "axis = 5 not in [-2, 2)": lambda x: tf.unstack(x, axis=5),
    "Requires num > 0: 0": lambda x: tf.linspace(0.0, 1.0, 0),
    "Fill dimensions must be >= 0": lambda x: tf.fill([-1], 2),
    "Cannot bitcast due to shape. 3 does not match 2": lambda x: tf.bitcast(x, tf.float64),
    "axis 0 specified more than once.": lambda x: tf.reverse(x, [0, 0]),
    "Shape must be at least rank 4 but is rank 2": lambda x: tf.gather(x, [0], axis=3),
    "UP should be one of ASCENDING, DESCENDING": lambda x: tf.sort(x, direction="UP"),
    "side must be either 'right' or 'left'.": lambda x: tf.searchsorted([1], [1], "x"),
    "x and y must both be non-None or both be None.": lambda x: tf.where([True], x),
    "Cannot convert a partially known TensorShape to a Tensor": lambda x: tf.convert_to_tensor(
        tf.TensorShape([None])
    ),
    "indexing parameter must be either 'xy' or 'ij'": lambda x: tf.meshgrid([1], indexing="z"),
}


@pytest.mark.parametrize("message", BUILDING)
def test_refused_while_building(message):
    with tf.Graph().as_default(), pytest.raises(ValueError) as caught:
        BUILDING[message](tf.constant(MATRIX))
    assert message in str(caught.value)


STEPS = {
    "indices[1] = 5 is not in [0, 2)": lambda x: tf.gather(x, unknown([0, 5])),
    "indices[0] = -1 is not in [0, 2)": lambda x: tf.gather(x, unknown([-1])),
    "indices[0] = [5] does not index into param shape [2,3]": lambda x: tf.gather_nd(
        x, unknown([[5]])
    ),
    "indices[0] = [5] does not index into shape [4]": lambda x: tf.scatter_nd(
        unknown([[5]]), [1.0], [4]
    ),
    "Input to reshape is a tensor with 6 values, but the requested shape has 4": lambda x: (
        tf.reshape(x, unknown([4]))
    ),
    "the requested shape requires a multiple of 4": lambda x: tf.reshape(x, unknown([4, -1])),
    "ConcatOp : Dimensions of inputs should match": lambda x: tf.concat([x, x[:, :2]], unknown(0)),
    "Shapes of all inputs must match": lambda x: tf.stack([x, unknown([1.0])]),
    "Number of ways to split should evenly divide": lambda x: tf.split(x, 4, 1),
    "Expected size[0] in [0, 2], but got 3": lambda x: tf.slice(x, unknown([0, 0]), [3, 1]),
    "1 is missing from {0,0}.": lambda x: tf.transpose(x, unknown([0, 0])),
    "paddings must be less than the dimension size: 5, 1 not less than 2": lambda x: tf.pad(
        x, unknown([[5, 1], [0, 0]]), "REFLECT"
    ),
    "input must have at least k columns. Had 3, needed 4": lambda x: tf.nn.top_k(x, unknown(4)),
    "partitions[1] = 5 is not in [0, 2)": lambda x: tf.dynamic_partition(x, unknown([0, 5]), 2)[0],
    "5 is not between 0 and 2": lambda x: tf.invert_permutation(unknown([0, 5])),
    "Incompatible shapes: [2, 3] vs. [2, 2]": lambda x: tf.broadcast_to(x, unknown([2, 2])),
    "Dimension -1 must be >= 0": lambda x: tf.fill(unknown([-1]), 2),
    "Number of batches of 'then' must match size of 'cond', but saw: 2 vs. 1": lambda x: tf.where(
        unknown([True]), x, x
    ),
    "axis 4 is out of range": lambda x: tf.roll(x, 1, 4),
    "is not compatible with expected shape [3].": lambda x: tf.ensure_shape(x, [3]),
    "Can not squeeze dim[0], expected a dimension of 1, got 2": lambda x: tf.squeeze(x, [0]),
}


@pytest.mark.parametrize("message", STEPS)
def test_refused_in_a_step(message):
    with tf.Graph().as_default(), tf.Session() as session:
        result = STEPS[message](unknown(MATRIX))
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(result)
    assert message in str(caught.value)


@pytest.mark.parametrize("index", ["a", 1.0, np.float32(0), [[0]]])
def test_odd_indices_are_type_errors(index):
    with tf.Graph().as_default(), pytest.raises(TypeError, match="Only integers, slices"):
        tf.constant(MATRIX)[index]


def test_a_list_of_tensors_of_two_types_is_a_type_error():
    with tf.Graph().as_default(), pytest.raises(TypeError, match="containing a tensor of dtype"):
        tf.convert_to_tensor([tf.constant(1), tf.constant(2.0)])


def test_a_prevented_gradient_says_why():
    from headrace._src.ops.array.constants_and_placeholders import prevent_gradient

    with tf.Graph().as_default():
        x = tf.constant(1.0)
        with pytest.raises(LookupError, match="no way back"):
            tf.gradients(prevent_gradient(x, message="no way back"), x)


def test_one_hot_says_that_a_value_is_of_another_type():
    with pytest.raises(TypeError, match=r"dtype int32 of on_value .*match dtype parameter float32"):
        tf.one_hot([1], 3, on_value=1, off_value=0, dtype=tf.float32)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        ([None, 3], [2, 2], "Dimension size must be evenly divisible by 3 but is 4 for 'Reshape'"),
        ([2, None, 3], [], "Dimension size must be evenly divisible by 6 but is 1 for 'Reshape'"),
        ([2, 3], [-1, 0], "Cannot reshape a tensor with 6 elements to shape [?,0] (0 elements)"),
        ([None, 0], [7], "Cannot reshape a tensor with 0 elements to shape [7] (7 elements)"),
    ],
)
def test_reshape_refuses_sizes_that_cannot_fit(given, wanted, message):
    with tf.Graph().as_default(), pytest.raises(ValueError) as caught:
        tf.reshape(tf.placeholder(tf.float32, given), wanted)
    assert message in str(caught.value)


def test_reshape_refuses_partly_known_sizes_that_cannot_fit():
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"\[\?,2,0\] \(0 elements\)"):
        tf.reshape(tf.ones([2, 3]), tf.stack([tf.placeholder(tf.int32, []), 2, 0]))


@pytest.mark.parametrize(
    ("given", "wanted", "found"),
    [
        ([None, 3], [2, 3], [2, 3]),
        ([None, 3], [0], [0]),
        ([None, 3], [-1, 2], [None, 2]),
        ([None, 3], [-1, 0], [None, 0]),
        ([None, None, 3], [7], [7]),
        ([None, 0], [0, -1], [0, None]),
        ([None, 0], [-1, 2], [0, 2]),
        (None, [7, -1], [7, None]),
    ],
)
def test_reshape_accepts_sizes_that_may_fit(given, wanted, found):
    with tf.Graph().as_default():
        result = tf.reshape(tf.placeholder(tf.float32, given), wanted)
    assert result.shape.as_list() == found
