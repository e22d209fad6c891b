"""Composed pointwise programs compute what their parts compute one after the other."""

import numpy as np

from headrace._src.compile.build.compose import Composer
from headrace._src.lowering.pointwise import record

SCALE = record(lambda e, x: x * 2.0 + 1.0, ["float32"])
CLIP = record(lambda e, x, y: (e.max(x, y), e.min(x, y)), ["float32", "float32"])


def test_parts_are_joined_and_operands_shared():
    composer = Composer()
    x = composer.operand("x", "float32")
    (scaled,) = composer.apply(SCALE, [x])
    high, _ = composer.apply(CLIP, [scaled, composer.operand("y", "float32")])
    assert composer.operand("x", "float32") == x
    program = composer.finish([high])
    assert composer.operands == ["x", "y"]
    a, b = np.float32([1, -3, 5]), np.float32([4, 0, 2])
    np.testing.assert_array_equal(program.evaluate(a, b)[0], np.maximum(a * 2 + 1, b))


def test_steps_that_no_output_needs_are_left_out():
    composer = Composer()
    high, low = composer.apply(
        CLIP, [composer.operand("x", "float32"), composer.operand("y", "float32")]
    )
    assert [s.opcode for s in composer.finish([low]).steps] == ["min"]
    assert [s.opcode for s in composer.finish([high, low]).steps] == ["max", "min"]


def test_equal_steps_are_made_once_but_zeros_keep_their_sign():
    composer = Composer()
    x = composer.operand("x", "float32")
    assert composer.apply(SCALE, [x]) == composer.apply(SCALE, [x])
    assert composer.constant(0.0, "float32") != composer.constant(-0.0, "float32")


def test_an_operand_can_be_an_output():
    composer = Composer()
    x = composer.operand("x", "float32")
    program = composer.finish([x])
    assert program.outputs == (0,) and program.steps == ()
