"""Lists of tensors as values: pushes and pops, what they share, their gradients and errors."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.base.define import b


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def test_a_list_that_others_came_from_stays_as_it_is():
    one = b.tensor_list_push_back(b.empty_tensor_list(-1, -1, tf.float32), 1.0)
    lists = [b.tensor_list_push_back(one, x) for x in (2.0, 3.0)]
    popped = [b.tensor_list_pop_back(t, -1, tf.float32)[1] for t in (*lists, one)]
    lengths = [b.tensor_list_length(t) for t in (*lists, one)]
    assert run([popped, lengths]) == [[2, 3, 1], [2, 2, 1]]


def test_the_gradient_of_a_push_is_a_pop():
    x, y = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
    values = b.empty_tensor_list([2], -1, tf.float32)
    for t in (x, y, x):
        values = b.tensor_list_push_back(values, t)
    values, last = b.tensor_list_pop_back(values, [2], tf.float32)
    _, middle = b.tensor_list_pop_back(values, [2], tf.float32)
    along_x, along_y = tf.gradients(last * [5.0, 6.0] + middle * middle, [x, y])
    np.testing.assert_array_equal(run(along_x), [5, 6])
    np.testing.assert_array_equal(run(along_y), [6, 8])


def test_lists_of_lists_add_up_and_have_zeros():
    inner = b.tensor_list_push_back(b.empty_tensor_list(-1, -1, tf.float32), 2.0)
    outer = b.tensor_list_push_back(b.empty_tensor_list(-1, -1, tf.variant), inner)

    def only(t):
        return b.tensor_list_pop_back(b.tensor_list_pop_back(t, -1, tf.variant)[1], -1, tf.float32)[
            1
        ]

    assert run([only(b.add_n([outer] * 3)), only(tf.zeros_like(outer))]) == [6, 0]


def empty(dtype=tf.float32, shape=-1, limit=-1):
    return b.empty_tensor_list(shape, limit, dtype)


def several(count):
    """Lists in an array, of a size that the graph doesn't know."""
    return tf.placeholder_with_default(tf.stack([empty()] * count), None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b.tensor_list_pop_back(empty(), -1, tf.float32)[1], "pop from an empty list"),
        (lambda: b.tensor_list_push_back(empty(), 1), "op elements int32 but list elements float"),
        (
            lambda: b.tensor_list_push_back(empty(limit=0), 1.0),
            "full list. list size: 0 max_num_elements: 0",
        ),
        (lambda: b.tensor_list_push_back(empty(shape=[-1, 2]), [1.0]), "incompatible shape"),
        (lambda: empty(shape=3), "require a statically known scalar with value '-1'"),
        (lambda: empty(shape=[[3]]), "at most rank 1 but is rank 2"),
        (lambda: empty(shape=tf.placeholder_with_default(3, [])), "scalar shape tensor is -1"),
        (
            lambda: b.add_n([empty(), b.tensor_list_push_back(empty(), 1.0)]),
            "different lengths. One is 0 and the other is 1",
        ),
        (
            lambda: b.tensor_list_concat_lists(empty(), empty(shape=[2]), tf.float32),
            "element shapes are not identical at index 0",
        ),
        (
            lambda: b.tensor_list_concat_lists(several(1), several(2), tf.float32)[0],
            r"\[1\] lists and \[2\]",
        ),
        (
            lambda: b.tensor_list_push_back_batch(several(2), tf.ones([3]))[0],
            r"\[2\] lists can't take the rows of a tensor of shape \[3\]",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        made = make()
        run(b.tensor_list_length(made) if made.dtype is tf.variant else made)


def reserved(count=2, shape=(2,)):
    return b.tensor_list_reserve(shape, count, tf.float32)


MISTAKES = {
    "element 2 in a list with 2 elements": lambda: b.tensor_list_get_item(
        reserved(), 2, -1, tf.float32
    ),
    "element -1 in a list with 2 elements": lambda: b.tensor_list_set_item(
        reserved(), -1, [1.0, 2.0]
    ),
    "incompatible shape to a list": lambda: b.tensor_list_set_item(reserved(), 0, [1.0]),
    "uninitialized element": lambda: b.tensor_list_get_item(reserved(shape=-1), 0, -1, tf.float32),
    "non-fully-defined element_shape": lambda: b.tensor_list_stack(reserved(0, -1), -1, tf.float32),
    "expected a list with 3 elements but got a list with 2": lambda: b.tensor_list_stack(
        reserved(), -1, tf.float32, 3
    ),
    "op elements int32 but list elements float32": lambda: b.tensor_list_stack(
        reserved(), -1, tf.int32
    ),
    "scatter at index 5 in list with size 3": lambda: b.tensor_list_scatter_v2(
        [1.0, 2.0], [0, 5], -1, 3
    ),
    "must all be non-negative": lambda: b.tensor_list_scatter([1.0], [-1], -1),
    "non negative, but got -1": lambda: reserved(-1),
    "size to be non-negative": lambda: b.tensor_list_resize(reserved(), -1),
    "that add up to": lambda: b.tensor_list_split([1.0, 2.0], -1, tf.constant([1, 2], tf.int64)),
    "optional does not have a value": lambda: b.optional_get_value(
        b.optional_none(), [tf.float32], [[]]
    ),
    "Input is not an optional": lambda: b.optional_get_value(reserved(), [tf.float32], [[]]),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_by_place(message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.group(MISTAKES[message]()))


def test_words_by_place():
    values = b.tensor_list_reserve(np.zeros(0, int), 3, tf.string)
    values = b.tensor_list_set_item(values, 1, tf.strings.join(["a", "b"]))
    assert run(b.tensor_list_stack(values, -1, tf.string)).tolist() == [b"", b"ab", b""]


def test_pushed_together_and_read_by_place():
    values = b.tensor_list_from_tensor([1.0, 2.0], -1)
    for x in (3.0, 4.0):
        values = b.tensor_list_push_back(values, x)
    read = [b.tensor_list_get_item(values, i, [], tf.float32) for i in range(4)]
    popped = []
    for _ in range(4):
        values, last = b.tensor_list_pop_back(values, [], tf.float32)
        popped.append(last)
    assert run([read, popped]) == [[1, 2, 3, 4], [4, 3, 2, 1]]
