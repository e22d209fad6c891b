"""Staging areas without sessions: what a refused request leaves behind."""

import numpy as np
import pytest

from headrace._src.core import errors
from headrace._src.devices.pending import Pending
from headrace._src.devices.staging import MapStaging


@pytest.fixture
def area():
    return MapStaging("area", capacity=2, memory_limit=16, ordered=False)


def parts(*numbers):
    return [np.float32(n) for n in numbers]


@pytest.mark.parametrize("indices", [[0, 0], [1, 0], [0, 1, 1]])
def test_components_must_be_in_order(area, indices):
    values = parts(*indices)
    for request in (
        lambda: area.put(1, indices, values, 3),
        lambda: area.get(1, indices),
        lambda: area.get_any(indices),
        lambda: area.peek(1, indices),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="Indices are not strictly ordered"):
            request()
    assert (area.size(), area.incomplete_size(), area.used) == (0, 0, 0)


def test_a_refused_element_is_not_stored_in_part(area):
    area.put(1, [1], parts(1), 3)
    with pytest.raises(errors.InvalidArgumentError, match="index '1' for key '1' was already"):
        area.put(1, [0, 1], parts(0, 1), 3)
    assert (area.incomplete_size(), area.used) == (1, 4)
    area.put(1, [0, 2], parts(0, 2), 3)
    assert area.get(1, [0, 1, 2]) == [0, 1, 2]
    assert (area.size(), area.incomplete_size(), area.used) == (0, 0, 0)


def test_a_refused_element_leaves_room_for_others(area):
    for key in (1, 2):
        with pytest.raises(errors.InvalidArgumentError):
            area.put(key, [0, 0], parts(0, 0), 2)
    for key in (1, 2):
        assert not isinstance(area.put(key, [0, 1], parts(0, 1), 2), Pending)
    assert isinstance(area.put(3, [0, 1], parts(0, 1), 2), Pending)
