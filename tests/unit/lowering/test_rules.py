"""Lowering rules, asked about small sites: what they say, and what they leave to kernels."""

from types import SimpleNamespace

import numpy as np
import pytest

import headrace  # noqa: F401  (defines the ops)
from headrace._src.core.windows import Window
from headrace._src.graph.definition import lookup
from headrace._src.lowering import rules
from headrace._src.lowering.rules import Reduce, View
from headrace._src.lowering.window_anchors import Convolution


def site(inputs, outputs, constants=(), variables=(), **attrs):
    """A Site from "dtype" and shape pairs."""
    known = dict(constants)
    return SimpleNamespace(
        inputs=tuple(SimpleNamespace(producer=None) for _ in inputs),
        attrs=attrs,
        input_dtypes=tuple(t for t, _ in inputs),
        input_shapes=tuple(s for _, s in inputs),
        output_dtypes=tuple(t for t, _ in outputs),
        output_shapes=tuple(s for _, s in outputs),
        constant_input=lambda i: None if i not in known else np.asarray(known[i]),
        variable_type=lambda i: variables[i] if i < len(variables) else None,
    )


def rule(op_type):
    return lookup(op_type).lower


F32, F64, I32 = "float32", "float64", "int32"


def test_broadcast_operands_have_strides_of_zero():
    use = site([(F32, (2, 1)), (F32, (3,))], [(F32, (2, 3))])
    views = rules.operand_views(rule("Add"), use)
    assert views == (View((2, 3), (1, 0)), View((2, 3), (0, 1)))


def test_shapes_that_do_not_broadcast_are_left_to_the_kernel():
    use = site([(F32, (2,)), (F32, (3,))], [("bool", ())], incompatible_shape_error=False)
    assert rules.pointwise_of(rule("Equal"), use) is None


@pytest.mark.parametrize("dtype", ["complex64", "string"])
def test_types_that_are_not_compiled_are_left_to_the_kernel(dtype):
    use = site([(dtype, (2,))] * 2, [(dtype, (2,))])
    assert rules.pointwise_of(rule("Add"), use) is None
    assert rules.views_of(rule("Transpose"), site([(dtype, ())], [(dtype, ())])) is None


def test_ops_that_fail_on_some_integers_are_left_to_the_kernel():
    use = site([(I32, (2,))] * 2, [(I32, (2,))])
    for op_type in ("Div", "FloorDiv", "Pow"):
        assert rules.pointwise_of(rule(op_type), use) is None, op_type


def test_functions_get_the_attributes_that_they_name():
    use = site([(F32, (2,))], [(F32, (2,))], alpha=0.25)
    program = rules.pointwise_of(rule("LeakyRelu"), use)
    assert 0.25 in [step.immediate for step in program.steps]


def test_a_rule_of_the_wrong_type_is_our_fault():
    use = site([(F32, (2,))], [(F64, (2,))])
    with pytest.raises(TypeError, match="float64"):
        rules.pointwise_of(rule("Exp"), use)


def test_a_vector_of_conditions_chooses_rows():
    use = site([("bool", (2,)), (F32, (2, 3)), (F32, (2, 3))], [(F32, (2, 3))])
    condition, *_ = rules.operand_views(rule("Select"), use)
    assert condition.strides == (1, 0)


def test_reductions_say_axes_and_the_type_they_add_in():
    use = site([("bfloat16", (2, 3)), (I32, (1,))], [("bfloat16", (2,))], {1: [-1]})
    found = rules.reduction_of(rule("Mean"), use)
    assert (found.combine, found.axes) == ("sum", (1,))
    assert found.before.output_dtypes == ("float32",)
    assert found.after.output_dtypes == ("bfloat16",)


def test_reductions_of_unknown_or_bad_axes_are_left_to_the_kernel():
    unknown = site([(F32, (2, 3)), (I32, (1,))], [(F32, (2,))])
    outside = site([(F32, (2, 3)), (I32, (1,))], [(F32, (2,))], {1: [2]})
    assert rules.reduction_of(rule("Sum"), unknown) is None
    assert rules.reduction_of(rule("Sum"), outside) is None
    assert rules.reduction_of(Reduce("argmax"), site([(F32, (0,)), (I32, ())], [(F32, ())])) is None


def test_moves_are_found_by_running_the_kernel_on_nothing():
    use = site([(F32, (2, 3, 4)), (I32, (3,))], [(F32, (4, 2, 3))], {1: [2, 0, 1]})
    assert rules.views_of(rule("Transpose"), use) == (View((4, 2, 3), (1, 12, 4)),)
    use = site([(F32, (2, 3)), (I32, (1,))], [(F32, (2, 3))], {1: [1]})
    assert rules.views_of(rule("ReverseV2"), use) == (View((2, 3), (3, -1), 2),)
    use = site([(I32, ()), (F32, (4, 3))], [(F32, (2, 3))] * 2, {0: 0}, num_split=2)
    assert rules.views_of(rule("Split"), use) == (View((2, 3), (3, 1)), View((2, 3), (3, 1), 6))


def test_a_huge_move_costs_no_memory():
    shape = (1 << 14, 1 << 14, 16)  # 4 GiB at a byte each, never touched
    use = site([(F32, shape), (I32, (3,))], [(F32, shape[::-1])], {1: [2, 1, 0]})
    (view,) = rules.views_of(rule("Transpose"), use)
    assert view.strides == (1, 16, 1 << 18)


def test_moves_whose_kernel_refuses_or_whose_axes_are_unknown_are_left_to_it():
    assert (
        rules.views_of(rule("Transpose"), site([(F32, (2,)), (I32, (1,))], [(F32, (2,))])) is None
    )
    use = site([(F32, (2,)), (I32, (1,))], [(F32, (2,))], {1: [5]})
    assert rules.views_of(rule("Transpose"), use) is None


def test_a_kernel_that_copies_is_no_move():
    assert rules.traced_view(lambda x: x.copy(), (2, 3)) is None
    assert rules.traced_view(lambda x: [x[0], x[:1] + 1], (2, 3)) is None


def test_tiles_repeat_without_moving():
    use = site([(F32, (2, 3)), (I32, (2,))], [(F32, (4, 3))], {1: [2, 1]})
    assert rules.views_of(rule("Tile"), use) == (View((2, 2, 1, 3), (0, 3, 0, 1)),)


def test_joins_say_what_each_input_fills():
    use = site([(F32, (2, 1)), (F32, (2, 2)), (I32, ())], [(F32, (2, 3))], {2: 1})
    found = rules.assembly_of(rule("ConcatV2"), use)
    assert found.pieces == ((0, View((2, 1), (3, 1))), (1, View((2, 2), (3, 1), 1)))
    assert found.fill is None
    use = site([(F32, (2,)), (I32, (1, 2)), (F32, ())], [(F32, (5,))], {1: [[1, 2]], 2: 1.5})
    found = rules.assembly_of(rule("PadV2"), use)
    assert (found.pieces, found.fill) == (((0, View((2,), (1,), 1)),), 1.5)


def test_padding_with_an_unknown_number_is_left_to_the_kernel():
    use = site([(F32, (2,)), (I32, (1, 2)), (F32, ())], [(F32, (5,))], {1: [[1, 2]]})
    assert rules.assembly_of(rule("PadV2"), use) is None


def test_updates_get_variables_first_and_need_their_types():
    inputs = [(F32, (2,)), (F32, (2,)), (F32, ()), (F32, (2,)), (F32, ())]
    known = site(inputs, [(F32, (2,))], variables=[(F32, (2,))] * 2, use_nesterov=False)
    program = rules.update_of(rule("ApplyMomentum"), known)
    assert (len(program.inputs), len(program.outputs)) == (5, 2)
    unknown = site(inputs, [(F32, (2,))], variables=[None, None], use_nesterov=False)
    assert rules.update_of(rule("ApplyMomentum"), unknown) is None


def test_an_assignment_that_changes_the_shape_is_left_to_the_kernel():
    use = site([(F32, (2,)), (F32, (3,))], [(F32, (3,))], variables=[(F32, (2,))])
    assert rules.update_of(rule("Assign"), use) is None


def test_convolutions_have_explicit_windows():
    use = site(
        [(F32, (2, 5, 4, 3)), (F32, (3, 2, 3, 8))],
        [(F32, (2, 3, 2, 8))],
        strides=(1, 2, 2, 1),
        padding="SAME",
        explicit_paddings=(),
        data_format="NHWC",
        dilations=(1, 1, 1, 1),
    )
    height = Window(size=5, taps=3, stride=2, dilation=1, before=1, after=1, out=3)
    width = Window(size=4, taps=2, stride=2, dilation=1, before=0, after=0, out=2)
    found = rule("Conv2D").describe(use)
    assert found == Convolution("forward", 2, 3, 8, height, width, "NHWC", F32)
    assert found.operands == (0, 1)


def test_empty_anchors_are_left_to_the_kernel():
    use = site(
        [(F32, (0, 3)), (F32, (3, 4))], [(F32, (0, 4))], transpose_a=False, transpose_b=False
    )
    assert rule("MatMul").describe(use) is None
