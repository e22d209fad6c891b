"""Programs give the same numbers, bit for bit, if each of their steps went through a message.

With EVERY_PROGRAM in the environment, all programs run; otherwise every third.
"""

import os

import pytest

import headrace as tf
from tests.programs.tf1 import NAMES, run
from tests.sent_steps import steps_are_sent


@pytest.mark.parametrize("name", NAMES if "EVERY_PROGRAM" in os.environ else NAMES[::3])
def test_program(name):
    with steps_are_sent() as seen:
        numbers, _ = run(tf, name)
    assert seen
    expected, _ = run(tf, name)
    assert numbers == expected
