"""tf.nest: leaves in order, the same structure again, clear errors."""

import array
import collections

import pytest

import headrace as tf
from headrace._src.core import nest

Point = collections.namedtuple("Point", ["x", "y"])


def test_flatten_and_pack_are_inverse():
    structure = {"b": [1, (2, None)], "a": Point(3, {"z": 4, "y": 5})}
    assert nest.flatten(structure) == [3, 5, 4, 1, 2, None]
    again = nest.pack_sequence_as(structure, list("pqrstu"))
    assert again == {"b": ["s", ("t", "u")], "a": Point("p", {"z": "r", "y": "q"})}
    with pytest.raises(ValueError, match="had 6 elements"):
        nest.pack_sequence_as(structure, [1])
    assert nest.flatten(7) == [7]


def test_mappings_are_taken_by_sorted_key_and_keep_their_type():
    ordered = collections.OrderedDict([("b", 1), ("a", 2)])
    assert nest.flatten(ordered) == [2, 1]
    again = nest.pack_sequence_as(ordered, ["A", "B"])
    assert list(again.items()) == [("b", "B"), ("a", "A")]
    counted = nest.map_structure(lambda n: n + 1, collections.defaultdict(list, {"b": 1}))
    assert counted == {"b": 2}
    assert counted.default_factory is list
    nest.assert_same_structure({"a": 1}, collections.OrderedDict(a=1))


def test_composites_are_leaves_or_their_parts():
    with tf.Graph().as_default():
        sparse = tf.SparseTensor([[0]], [1.0], [2])
        rows = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
        assert nest.flatten([sparse, rows]) == [sparse, rows]
        parts = [sparse.indices, sparse.values, sparse.dense_shape, rows.values, rows.indices]
        assert nest.flatten([sparse, rows], expand_composites=True) == parts


class Field:
    def __init__(self, name):
        self.name = name


class Record:
    """As attrs makes classes."""

    __attrs_attrs__ = (Field("z"), Field("y"))

    def __init__(self, z, y):
        self.z, self.y = z, y


def test_views_of_mappings_are_containers_in_their_own_order():
    mapping = {"b": 2, "a": 1}
    assert all(map(tf.nest.is_nested, (mapping.values(), mapping.keys(), mapping.items())))
    assert tf.nest.flatten([mapping.values(), 3]) == [2, 1, 3]
    assert tf.nest.flatten(mapping.items()) == ["b", 2, "a", 1]
    assert tf.nest.map_structure(lambda x: x + 1, mapping.values()) == [3, 2]
    assert tf.nest.pack_sequence_as(mapping.values(), [5, 6]) == [5, 6]
    tf.nest.assert_same_structure(mapping.values(), {"c": 3, "d": 4}.values())
    with pytest.raises(TypeError):
        tf.nest.assert_same_structure(mapping.values(), [1, 2])
    assert not tf.nest.is_nested({1, 2})
    assert not tf.nest.is_nested("ab")


def test_records_of_attrs_are_containers():
    record = Record(1, [2, 3])
    assert tf.nest.flatten({"r": record}) == [1, 2, 3]
    made = tf.nest.map_structure(lambda x: x + 1, record)
    assert (type(made), made.z, made.y) == (Record, 2, [3, 4])
    tf.nest.assert_same_structure(record, made)
    with pytest.raises(TypeError):
        tf.nest.assert_same_structure(Record(1, 2), [1, 2])


def test_keys_that_are_nests_are_flattened_with_their_values():
    flatten = tf.contrib.framework.nest.flatten_dict_items
    assert flatten({(4, 5, (6, 8)): ("a", "b", ("c", "d"))}) == {4: "a", 5: "b", 6: "c", 8: "d"}
    assert flatten({4: 1, 5: (2, 3), "ab": [6]}) == {4: 1, 5: (2, 3), "ab": [6]}
    with pytest.raises(ValueError, match="Key had 2 elements, but value had 1 elements"):
        flatten({(4, 5): (1,)})
    with pytest.raises(ValueError, match="key 4 is not unique"):
        flatten({(4, 5): (1, 2), 4: 3})
    with pytest.raises(TypeError, match="input must be a dictionary"):
        flatten([1])


def test_a_flat_sequence_is_needed():
    with pytest.raises(TypeError, match="must be a sequence"):
        nest.pack_sequence_as([1, 2], 5)


def test_map_structure():
    assert nest.map_structure(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    with pytest.raises(TypeError, match="sequence type"):
        nest.map_structure(lambda a, b: a, [1], (1,))
    assert nest.map_structure(lambda a, b: a, [1], (2,), check_types=False) == [1]


@pytest.mark.parametrize("other", [[1], [1, [2, 3]], {"a": 1}, 3])
def test_different_structures_are_refused(other):
    with pytest.raises((ValueError, TypeError)):
        nest.assert_same_structure([1, [2]], other)


PAIRS = {"b": 1, "a": 2}


@pytest.mark.parametrize(
    ("structure", "leaves", "doubled"),
    [
        (PAIRS.values(), [1, 2], [2, 4]),
        (PAIRS.keys(), ["b", "a"], ["bb", "aa"]),
        (PAIRS.items(), ["b", 1, "a", 2], [("bb", 2), ("aa", 4)]),
        (collections.deque([1, 2]), [1, 2], collections.deque([2, 4])),
        (collections.UserList([1, 2]), [1, 2], collections.UserList([2, 4])),
        (range(3), [0, 1, 2], [0, 2, 4]),
        ([PAIRS.values(), {"q": range(1)}], [1, 2, 0], [[2, 4], {"q": [0]}]),
        ("ab", ["ab"], "abab"),
        (b"ab", [b"ab"], b"abab"),
    ],
)
def test_sequences_and_views_of_mappings_are_containers(structure, leaves, doubled):
    assert nest.is_nested(structure) == (not isinstance(structure, str | bytes))
    assert nest.flatten(structure) == leaves
    assert nest.map_structure(lambda x: x * 2, structure) == doubled


@pytest.mark.parametrize("leaf", [{1, 2}, frozenset([1]), iter([1]), array.array("i", [1])])
def test_what_has_no_order_or_is_data_is_a_leaf(leaf):
    assert nest.flatten(leaf) == [leaf]
