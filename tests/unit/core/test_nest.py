"""tf.nest: leaves in order, the same structure again, clear errors."""

import collections

import pytest

from headrace.core import nest

Point = collections.namedtuple("Point", ["x", "y"])


def test_flatten_and_pack_are_inverse():
    structure = {"b": [1, (2, None)], "a": Point(3, {"z": 4, "y": 5})}
    assert nest.flatten(structure) == [3, 5, 4, 1, 2, None]
    again = nest.pack_sequence_as(structure, "pqrstu")
    assert again == {"b": ["s", ("t", "u")], "a": Point("p", {"z": "r", "y": "q"})}
    with pytest.raises(ValueError, match="had 6 elements"):
        nest.pack_sequence_as(structure, [1])
    assert nest.flatten(7) == [7]


def test_map_structure():
    assert nest.map_structure(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    with pytest.raises(TypeError, match="sequence type"):
        nest.map_structure(lambda a, b: a, [1], (1,))
    assert nest.map_structure(lambda a, b: a, [1], (2,), check_types=False) == [1]


@pytest.mark.parametrize("other", [[1], [1, [2, 3]], {"a": 1}, 3])
def test_different_structures_are_refused(other):
    with pytest.raises((ValueError, TypeError)):
        nest.assert_same_structure([1, [2]], other)
