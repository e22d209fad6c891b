"""Grey-scale dilation and erosion of images."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.padded_windows import check_steps, conv_geometry
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.nn import morphology_kernels

__all__ = ["dilation2d", "erosion2d"]

_ATTRIBUTES = (
    "T: {reals}; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME'|'VALID'}"
)


def _infer(c: Any, x: TensorShape, w: TensorShape) -> Any:
    filter_sizes, sizes = w.with_rank(3).as_list(), x.with_rank(4).as_list()
    if None in filter_sizes[:2] or None in sizes[1:3]:
        TensorShape(sizes[3:]).merge_with(filter_sizes[2:])
        return (sizes[0], None, None, filter_sizes[2])
    check_steps(c.attrs["strides"], c.attrs["rates"], 3)
    *found, depth = conv_geometry(
        sizes,
        [*filter_sizes, 1],
        strides=c.attrs["strides"],
        padding=c.attrs["padding"],
        dilations=c.attrs["rates"],
        depthwise=True,
        checked=False,
    ).output_shape
    return (*found, depth if c.settled else filter_sizes[2])


def _gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    x, w = op.inputs
    options = {k: op.get_attr(k) for k in ("strides", "rates", "padding")}
    return (
        b.dilation2d_backprop_input(x, w, dy, **options),
        b.dilation2d_backprop_filter(x, w, dy, **options),
    )


def _samples(*build: Any) -> list[Sample]:
    """Return one sample per kind of window, from `build`'s (input, filter, output) sizes."""
    ways = [
        ((2, 4, 3, 2), (2, 3, 2), (2, 4, 3, 2), [1, 1, 1, 1], [1, 1, 1, 1], "SAME"),
        ((1, 5, 6, 1), (2, 2, 1), (1, 2, 2, 1), [1, 2, 2, 1], [1, 2, 2, 1], "VALID"),
        ((0, 3, 3, 1), (2, 2, 1), (0, 3, 3, 1), [1, 1, 1, 1], [1, 1, 1, 1], "SAME"),
    ]
    return [
        Sample(*(piece(x, w, y) for piece in build), strides=s, rates=rates, padding=padding)
        for x, w, y, s, rates, padding in ways
    ]


def _x(x: Any, w: Any, y: Any) -> Any:
    return r(*x)


def _w(x: Any, w: Any, y: Any) -> Any:
    return r(*w)


def _y(x: Any, w: Any, y: Any) -> Any:
    return r(*y)


@define(
    "Dilation2D",
    "input: T, filter: T -> output: T",
    _ATTRIBUTES,
    infer=_infer,
    kernel=morphology_kernels.dilation2d,
    gradient=_gradient,
    samples=lambda: _samples(_x, _w),
)
def dilation2d_op(input, filter, strides, rates, padding, name=None):
    """Return the largest sum of input and filter in each window."""


@define(
    "Dilation2DBackpropInput",
    "input: T, filter: T, out_backprop: T -> in_backprop: T",
    _ATTRIBUTES,
    infer=infer.same_as(0),
    kernel=morphology_kernels.dilation2d_backprop_input,
    gradient=NOT_DIFFERENTIABLE,
    samples=lambda: _samples(_x, _w, _y),
)
def dilation2d_backprop_input(input, filter, out_backprop, strides, rates, padding, name=None):
    """Return the gradient of dilation2d for its input."""


@define(
    "Dilation2DBackpropFilter",
    "input: T, filter: T, out_backprop: T -> filter_backprop: T",
    _ATTRIBUTES,
    infer=infer.same_as(1),
    kernel=morphology_kernels.dilation2d_backprop_filter,
    gradient=NOT_DIFFERENTIABLE,
    samples=lambda: _samples(_x, _w, _y),
)
def dilation2d_backprop_filter(input, filter, out_backprop, strides, rates, padding, name=None):
    """Return the gradient of dilation2d for its filter."""


@composed
@export("nn.dilation2d")
def dilation2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    rates: Any = None,
    padding: Any = None,
    name: str | None = None,
    filters: Any = None,
    dilations: Any = None,
) -> Tensor:
    """Return the largest sum of input and filter [height, width, depth] in each window.

    strides and rates: one number per dimension, 1 for batch and depth. padding: 'SAME' or 'VALID'.
    filters and dilations: other names of filter and rates.
    """
    filter = renamed_argument("filters", filters, "filter", filter)
    rates = renamed_argument("dilations", dilations, "rates", rates)
    return dilation2d_op(input, filter, strides=strides, rates=rates, padding=padding, name=name)


@composed
@export("nn.erosion2d")
def erosion2d(
    value: Any, kernel: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """Return the smallest difference of value and kernel in each window: minus the dilation of
    -value by the reversed kernel.
    """
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        dilated = dilation2d_op(
            b.negative(value),
            b.reverse(kernel, [0, 1]),
            strides=strides,
            rates=rates,
            padding=padding,
            name=scope,
        )
        return b.negative(dilated)
