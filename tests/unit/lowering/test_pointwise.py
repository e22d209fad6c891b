"""Pointwise programs: what is recorded, printed, shared and computed."""

import numpy as np
import pytest

from headrace._src.core.dtypes import as_dtype
from headrace._src.lowering.pointwise import Recorder, record, rounded_once


def test_records_straight_line_code():
    program = record(lambda e, x, y: e.max(x * y, 0) + 1, ["float32", "float32"])
    assert str(program).splitlines() == [
        "(%0 float32, %1 float32) -> %6",
        "  %2 = mul float32 %0, %1",
        "  %3 = const float32 0",
        "  %4 = max float32 %2, %3",
        "  %5 = const float32 1",
        "  %6 = add float32 %4, %5",
    ]


def test_equal_steps_are_recorded_once():
    program = record(lambda e, x: e.exp(x) * e.exp(x), ["float32"])
    assert [step.opcode for step in program.steps] == ["exp", "mul"]


def test_zeros_of_both_signs_stay_apart():
    def zeros(e, x):
        return e.select(x > 0, e.const(0.0, "float32"), e.const(-0.0, "float32"))

    (found,) = record(zeros, ["float32"]).evaluate(np.array([1, -1], np.float32))
    assert np.signbit(found).tolist() == [False, True]


def test_programs_of_one_meaning_are_equal_keys():
    def scale(e, x, *, by):
        return x * by

    assert record(scale, ["float32"], by=2) == record(scale, ["float32"], by=2)
    assert record(scale, ["float32"], by=2) != record(scale, ["float32"], by=3)
    assert record(scale, ["float32"], by=2) != record(scale, ["float64"], by=2)
    assert len({record(scale, ["float32"], by=2), record(scale, ["float32"], by=2)}) == 1


def test_numbers_take_the_type_of_the_lane_beside_them():
    program = record(lambda e, x: 1 - x, ["bfloat16"])
    assert {step.dtype for step in program.steps} == {"bfloat16"}
    (found,) = program.evaluate(np.array([0.25], as_dtype("bfloat16").as_numpy_dtype))
    assert found.astype(float).tolist() == [0.75]


def test_lanes_of_two_types_are_refused():
    e = Recorder(["float32", "int32"])
    x, i = e.lanes()
    with pytest.raises(TypeError, match="several types"):
        e.add(x, i)
    assert (x + e.cast(i, "float32")).dtype == "float32"


def test_unknown_opcodes_are_refused():
    with pytest.raises(AttributeError, match="frobnicate"):
        Recorder(["float32"]).frobnicate()


def test_comparisons_are_bool_and_select_takes_them():
    program = record(lambda e, x, y: e.select(x < y, x, y), ["int32", "int32"])
    assert program.dtype_of(2) == "bool"
    assert program.output_dtypes == ("int32",)
    (found,) = program.evaluate(np.array([3, 1]), np.array([2, 5]))
    assert found.tolist() == [2, 1]


def test_positions_come_from_outside():
    program = record(lambda e: e.index(1) * 10 + e.index(0), [])
    (found,) = program.evaluate(indices=np.indices((2, 3), sparse=True))
    assert found.tolist() == [[0, 10, 20], [1, 11, 21]]


def test_several_outputs():
    program = record(lambda e, x: (x + 1, x), ["int64"])
    assert program.outputs == (2, 0)
    up, same = program.evaluate(np.arange(2))
    assert (up.tolist(), same.tolist()) == ([1, 2], [0, 1])


def test_narrow_floats_are_rounded_after_each_step_or_once():
    def thrice(e, x):
        return x + x + x

    x = np.array([1.0009765625], np.float16)  # 1 + 2^-10
    (each,) = record(thrice, ["float16"]).evaluate(x)
    (once,) = record(rounded_once(thrice), ["float16"]).evaluate(x)
    assert each.dtype == once.dtype == np.float16
    assert once == np.float16(3 * np.float32(x[0]))
    assert [s.dtype for s in record(rounded_once(thrice), ["float16"]).steps] == [
        "float32",
        "float32",
        "float32",
        "float16",
    ]
    assert {s.dtype for s in record(thrice, ["float16"]).steps} == {"float16"}


def test_rounded_once_is_not_for_integers():
    e = Recorder(["int32"])
    assert rounded_once(lambda e, x: x + x)(e, *e.lanes()) is None
