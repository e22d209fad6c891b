"""Static shapes: immutability, protos, messages, and laws that hold for all shapes."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace._src.core import tensor_shape
from headrace._src.core.tensor_shape import Dimension, TensorShape, broadcast, merge

known = st.lists(st.integers(0, 4), max_size=4).map(tuple)
partial = st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3).map(tuple)


def attempt(function, *shapes_):
    """The resulting sizes, or "error": an outcome that can be compared."""
    try:
        return function(*map(TensorShape, shapes_)).sizes
    except ValueError:
        return "error"


def concrete(sizes):
    """All fully known shapes that a partly known one may turn out to be (sizes 0 to 3)."""
    if None not in sizes:
        return [sizes]
    at = sizes.index(None)
    return [s for n in range(4) for s in concrete((*sizes[:at], n, *sizes[at + 1 :]))]


@given(partial, partial)
def test_merge_and_broadcast_are_commutative(a, b):
    assert attempt(merge, a, b) == attempt(merge, b, a)
    assert attempt(broadcast, a, b) == attempt(broadcast, b, a)


@given(partial)
def test_merge_is_idempotent_and_unknown_is_its_unit(a):
    assert attempt(merge, a, a) == a
    assert attempt(merge, a, None) == a


@given(partial, partial)
def test_shapes_merge_exactly_when_compatible(a, b):
    assert TensorShape(a).is_compatible_with(b) == (attempt(merge, a, b) != "error")


@given(partial, partial)
def test_most_specific_compatible_shape_holds_for_both(a, b):
    both = TensorShape(a).most_specific_compatible_shape(b)
    assert both.is_compatible_with(a)
    assert both.is_compatible_with(b)


@given(known, known)
def test_broadcast_of_known_shapes_is_numpys(a, b):
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        expected = "error"
    assert attempt(broadcast, a, b) == expected


# Recorded from TensorFlow 1.15's static broadcasting.
BROADCASTS = [
    ((2, None), (None, 3), (2, 3)),
    ((1, None), (None, 1), (None, None)),
    ((None,), (None,), (None,)),
    ((2,), (3,), "error"),
    (None, (2,), None),
    ((None,), (0,), (None,)),
    ((0,), (1,), (0,)),
    ((0,), (2,), "error"),
    ((2, 3), (3,), (2, 3)),
    ((None, None), (None,), (None, None)),
]


@pytest.mark.parametrize(("a", "b", "expected"), BROADCASTS)
def test_broadcast_knows_what_tensorflow_knows(a, b, expected):
    assert attempt(broadcast, a, b) == expected


@given(partial, partial)
def test_broadcast_of_partial_shapes_foresees_every_outcome(a, b):
    result = attempt(broadcast, a, b)
    if a is None or b is None:
        assert result is None
        return
    outcomes = {attempt(broadcast, x, y) for x in concrete(a) for y in concrete(b)} - {"error"}
    if result == "error":
        assert not outcomes
    else:
        assert outcomes
        assert all(TensorShape(result).is_compatible_with(outcome) for outcome in outcomes)


@given(partial)
def test_copies_and_protos_keep_the_sizes(a):
    shape = TensorShape(a)
    assert pickle.loads(pickle.dumps(shape)).sizes == a
    assert copy.deepcopy(shape).sizes == a
    assert TensorShape(shape.as_proto()).sizes == a
    assert hash(shape) == hash(TensorShape.of(a))


def test_shapes_cannot_be_changed():
    shape = TensorShape([1, 2])
    with pytest.raises(AttributeError, match="cannot be changed"):
        shape.sizes = (3,)
    shape.dims.append(Dimension(3))
    assert shape.sizes == (1, 2)


def test_sizes_are_python_integers():
    shape = TensorShape([np.int64(2), "3", 4.0, Dimension(5), True])
    assert shape.sizes == (2, 3, 4, 5, 1)
    assert {type(size) for size in shape.sizes} == {int}


def test_negative_size_in_a_proto_is_refused():
    bad = SimpleNamespace(unknown_rank=False, dim=[SimpleNamespace(size=-2)])
    with pytest.raises(ValueError, match="Dimension -2 must be >= 0"):
        TensorShape(bad)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2.5])
def test_ambiguous_sizes_are_refused(bad):
    with pytest.raises(ValueError):
        TensorShape([bad])


def test_messages_name_both_shapes():
    with pytest.raises(ValueError, match=r"broadcasting: \(2, \?\) and \(3, 1\)"):
        broadcast((2, None), (3, 1))
    with pytest.raises(ValueError, match=r"Shapes \(1, \?\) and \(2, 2\) are not compatible"):
        merge((1, None), (2, 2))
    with pytest.raises(TypeError, match=r"integer or None, not list: \[1\]"):
        TensorShape([[1]])


def test_short_ways_to_common_shapes():
    assert tensor_shape.scalar().sizes == ()
    assert tensor_shape.vector(3).sizes == (3,)
    assert tensor_shape.matrix(2, None).sizes == (2, None)
    assert tensor_shape.unknown_shape(2).sizes == (None, None)


def test_unknown_dimension_is_no_integer():
    with pytest.raises(TypeError, match="unknown dimension"):
        range(Dimension(None))
