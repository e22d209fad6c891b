"""Programs give the same numbers, bit for bit, if each of their steps went through a message."""

import pytest

import headrace as tf
from tests.programs.tf1 import NAMES, run
from tests.sent_steps import steps_are_sent


@pytest.mark.parametrize("name", NAMES)
def test_program(name):
    with steps_are_sent() as seen:
        numbers, _ = run(tf, name)
    assert seen
    expected, _ = run(tf, name)
    assert numbers == expected
