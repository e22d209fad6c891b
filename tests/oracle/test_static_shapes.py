"""The static shapes that a program sees are those that TensorFlow 1.15.5 infers."""

import pytest

import headrace as tf
from tests.oracle.static_shapes import evaluate, recorded


@pytest.mark.parametrize(("expression", "expected"), recorded())
def test_is_what_tensorflow_infers(expression, expected):
    assert evaluate(tf, expression) == expected
