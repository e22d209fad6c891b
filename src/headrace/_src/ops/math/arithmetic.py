"""Binary arithmetic, element by element with broadcasting, and sums of many tensors.

Every gradient passes through `b.unbroadcast`, which undoes the broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.dataflow import Node, Value
from headrace._src.graph.definition import Kind, Precision, Sample, lookup
from headrace._src.graph.operation import Tensor
from headrace._src.lowering.rules import Elementwise, Site
from headrace._src.ops.array.broadcasting import same_shapes, settle_axes
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import pairs, r
from headrace._src.ops.base.simplify_rules import (
    Answer,
    as_constant,
    equals_input,
    idempotent,
    negated,
    neutral,
    one,
    same_type,
    scalar_operand,
    squared,
    uniform,
    zero,
)
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["binary_op", "zero_where"]

# The dtypes that most arithmetic accepts.
_SOME_NUMBERS = (
    "{bfloat16|float16|float32|float64|uint8|int8|uint16|int16|int32|int64|complex64|complex128}"
)
_WIDE_NUMBERS = "{bfloat16|float16|float32|float64|int32|int64|complex64|complex128}"
_NARROWER_NUMBERS = "{float16|float32|float64|complex64|complex128}"


def binary_op(
    op_type: str,
    types: str,
    kernel: Callable[..., Any],
    gradient: Any,
    *,
    signature: str = "x: T, y: T -> z: T",
    samples: Any = None,
    commutative: bool = False,
    lower: Callable[..., Any] | Elementwise | None = None,
    simplify: Callable[..., Any] | None = None,
    precision: Precision | None = None,
) -> Any:
    """Define an op on two tensors of the same type, with broadcasting."""
    return define(
        op_type,
        signature,
        f"T: {types}",
        infer=infer.broadcasting,
        kernel=kernel,
        gradient=gradient,
        kind=Kind.ELEMENTWISE,
        samples=pairs() if samples is None else samples,
        commutative=commutative,
        lower=Elementwise(lower) if callable(lower) else lower,
        simplify=scalar_operand(simplify),
        precision=precision,
    )


# Sums, differences, products


def _negative_zero(value: Value) -> bool:
    return zero(value, -1)


_sum_simplify = neutral(_negative_zero, _negative_zero)
_difference_simplify = neutral(right=lambda y: zero(y, 1))
_product_simplify = neutral(one, one)


def _sub_simplify(node: Node) -> Answer:
    x, y = node.inputs
    if zero(x, -1) and same_type(y, node):
        return negated(node, y)
    return _difference_simplify(node)


def _mul_simplify(node: Node) -> Answer:
    """-x * c is x * -c, for a number c."""
    answer = _product_simplify(node)
    if answer is not None or not node.types[0].dtype.is_floating:
        return answer
    for value, factor in (node.inputs, node.inputs[::-1]):
        number, inner = factor.constant, value.producer
        if number is None or number.size != 1 or not isinstance(inner, Node):
            continue
        if inner.definition is lookup("Neg") and inner.constant is None and not inner.controls:
            opposite = as_constant(node, np.asarray(np.negative(number)), "opposite")
            return replace(node, inputs=(inner.inputs[0], opposite))
    return None


def _add_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    to_x, to_y = b.unbroadcast(x, y, dz)
    return to_x(dz), to_y(dz)


def _sub_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    to_x, to_y = b.unbroadcast(x, y, dz)
    return to_x(dz), to_y(b.negative(dz))


def _mul_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    if same_shapes(x, y, dz) and dz.dtype not in (dtypes.float32, dtypes.int32):
        settle_axes(x, y)  # TensorFlow compares the shapes first for these types only
    to_x, to_y = b.unbroadcast(x, y, dz)
    return to_x(b.multiply(dz, b.conj(y))), to_y(b.multiply(b.conj(x), dz))


@export("add", "math.add")
@binary_op(
    "Add",
    "{bfloat16|float16|float32|float64|uint8|int8|int16|int32|int64|complex64|complex128|string}",
    np.add,
    _add_gradient,
    lower=lambda e, x, y: x + y,
    simplify=_sum_simplify,
    precision=Precision.EITHER,
)
def add(x, y, name=None):
    """Return x + y, element by element; strings are joined."""


@binary_op(
    "AddV2",
    "{bfloat16|float16|float32|float64|uint8|int8|int16|int32|int64|complex64|complex128}",
    np.add,
    _add_gradient,
    commutative=True,
    lower=lambda e, x, y: x + y,
    simplify=_sum_simplify,
    precision=Precision.EITHER,
)
def add_v2(x, y, name=None):
    """Return x + y, element by element."""


@export("subtract", "math.subtract")
@binary_op(
    "Sub",
    _SOME_NUMBERS,
    np.subtract,
    _sub_gradient,
    lower=lambda e, x, y: x - y,
    simplify=_sub_simplify,
    precision=Precision.EITHER,
)
def subtract(x, y, name=None):
    """Return x - y, element by element."""


@export("multiply", "math.multiply")
@binary_op(
    "Mul",
    _SOME_NUMBERS,
    np.multiply,
    _mul_gradient,
    commutative=True,
    lower=lambda e, x, y: x * y,
    simplify=_mul_simplify,
    precision=Precision.EITHER,
)
def multiply(x, y, name=None):
    """Return x * y, element by element."""


def zero_where(mask: Any, result: Any) -> Any:
    """Return a fresh result with zeros where the mask, which may need broadcasting, is true."""
    if not np.any(mask):
        return result
    result = np.asarray(result)
    np.copyto(result, 0, where=mask)
    return result


def _mul_no_nan(x: Any, y: Any) -> Any:
    return zero_where(y == 0, np.multiply(x, y))


@counted(lambda op, dz: 2 if same_shapes(*op.inputs, dz) else 9)
def _mul_no_nan_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    to_x, to_y = b.unbroadcast(x, y, dz if same_shapes(x, y, dz) else None)
    return to_x(b.mul_no_nan(dz, b.conj(y))), to_y(b.mul_no_nan(b.conj(x), dz))


@binary_op(
    "MulNoNan",
    _NARROWER_NUMBERS,
    _mul_no_nan,
    _mul_no_nan_gradient,
    lower=lambda e, x, y: e.select(e.eq(y, 0), 0, x * y),
)
def mul_no_nan(x, y, name=None):
    """Return x * y, and 0 where y is 0 even if x is infinite or NaN."""


@composed
@export("math.multiply_no_nan")
def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x * y, and 0 where y is 0 even if x is infinite or NaN."""
    with name_scope(name, "multiply_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return mul_no_nan(x, y, name=scope)


def _squared_difference(x: Any, y: Any) -> Any:
    difference = np.subtract(x, y)
    if difference.dtype.kind == "c":
        return np.multiply(np.conj(difference), difference)
    return np.multiply(difference, difference)


def _squared_difference_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    slope = b.multiply(b.multiply(b.constant(2, dz.dtype.base_dtype), dz), b.subtract(x, y))
    to_x, to_y = b.unbroadcast(x, y, dz)
    return to_x(slope), to_y(b.negative(slope))


@export("squared_difference", "math.squared_difference")
@binary_op(
    "SquaredDifference",
    _WIDE_NUMBERS,
    _squared_difference,
    _squared_difference_gradient,
    commutative=True,
    lower=lambda e, x, y: e.square(x - y),
    precision=Precision.WIDE,
)
def squared_difference(x, y, name=None):
    """Return (x - y)², element by element; the squared magnitude for complex numbers."""


@composed
@export("scalar_mul", "math.scalar_mul")
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return the product of a scalar and a tensor or IndexedSlices."""
    scalar = convert_to_tensor(scalar, dtype=x.dtype.base_dtype, name="scalar")
    if scalar.shape.ndims not in (0, None):
        raise ValueError(f"Only scalar multiply works, got shape {scalar.shape}")
    if isinstance(x, IndexedSlices):
        return IndexedSlices(multiply(scalar, x.values, name=name), x.indices, x.dense_shape)
    return multiply(scalar, x, name=name)


def _add_n_infer(c: Any, shapes: list[TensorShape]) -> TensorShape:
    return infer.same_as_all(c, *shapes)


def _add_n(inputs: tuple[Any, ...]) -> Any:
    first = inputs[0]
    shape = np.shape(first)
    for other in inputs[1:]:
        if getattr(other, "shape", None) != shape and np.shape(other) != shape:
            raise ValueError(
                f"Inputs to operation must have the same size and shape. "
                f"Input 0: {shape} != input: {np.shape(other)}"
            )
    if len(inputs) == 1:
        return np.array(first)
    total = np.add(first, inputs[1])
    for other in inputs[2:]:
        total += other
    return total


def _add_n_lowered(e: Any, *terms: Any) -> Any:
    return reduce(e.add, terms)


_SUM_SAMPLES = [
    Sample([r(2, 3), r(2, 3)]),
    Sample([r(), r(), r()]),
    Sample([r(4)]),
    Sample([r(0, 2), r(0, 2)]),
]


@define(
    "AddN",
    "inputs: N*T -> sum: T",
    "N: int >= 1; T: {numbers|variant}",
    infer=_add_n_infer,
    kernel=_add_n,
    gradient=lambda b, op, dy: [dy] * len(op.inputs),
    kind=Kind.ELEMENTWISE,
    samples=_SUM_SAMPLES,
    commutative=True,
    lower=Elementwise(_add_n_lowered),
    simplify=lambda node: equals_input(node) if len(node.inputs) == 1 else None,
    precision=Precision.EITHER,
)
def add_n_op(inputs, name=None):
    """Return the sum of tensors of the same shape."""


@composed
@dispatched
@export("add_n", "math.add_n")
def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """Return the sum of tensors of the same shape; IndexedSlices among them are made dense."""
    if not inputs or not isinstance(inputs, list | tuple):
        raise ValueError(
            "inputs must be a list of at least one Tensor/IndexedSlices with the same dtype "
            "and shape"
        )
    tensors = [convert_to_tensor(x) for x in inputs]
    if len(tensors) == 1:
        return b.identity(tensors[0], name=name) if name else tensors[0]
    return add_n_op(tensors, name=name)


def _accumulate_n(values: Any, *, shape: TensorShape) -> Any:
    found = np.shape(values[0])
    if not shape.is_compatible_with(found):
        raise ValueError(f"the inputs have shape {list(found)}, but the sum is to have {shape}")
    return _add_n(values)


def _accumulate_n_lowered(e: Any, *values: Any, site: Site) -> Any:
    if any(shape != site.output_shapes[0] for shape in site.input_shapes):
        return None  # the kernel rejects them
    return _add_n_lowered(e, *values)


@define(
    "AccumulateNV2",
    "inputs: N*T -> sum: T",
    "N: int >= 1; T: {numbers}; shape: shape",
    infer=lambda c, shapes: c.attrs["shape"],
    kernel=_accumulate_n,
    gradient=lambda b, op, dy: [dy] * len(op.inputs),
    kind=Kind.ELEMENTWISE,
    samples=[Sample(list(s.inputs[0]), shape=s.inputs[0][0].shape) for s in _SUM_SAMPLES],
    commutative=True,
    lower=Elementwise(_accumulate_n_lowered),
    simplify=lambda node: equals_input(node) if len(node.inputs) == 1 else None,
)
def accumulate_nv2(inputs, shape, name=None):
    """Return the sum of tensors of the given shape."""


@composed
@export("accumulate_n", "math.accumulate_n")
def accumulate_n(
    inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Tensor:
    """Return the sum of tensors of the same shape, which `shape` or one of them tells."""
    message = "inputs must be a list of at least one Tensor with the same dtype and shape"
    if not inputs or not isinstance(inputs, list | tuple):
        raise ValueError(message)
    tensors = [convert_to_tensor(x) for x in inputs]
    if any(t.dtype.base_dtype is not tensors[0].dtype.base_dtype for t in tensors):
        raise ValueError(message)
    merged = as_shape(shape)
    for t in tensors:
        merged = merged.merge_with(t.shape)
    if tensor_dtype is not None and tensors[0].dtype != tensor_dtype:
        raise TypeError(f"tensor_dtype is {tensor_dtype}, but input is of type {tensors[0].dtype}")
    if len(tensors) == 1 and name is None:
        return tensors[0]
    if len(tensors) == 1:
        return b.identity(tensors[0], name=name)
    return accumulate_nv2(tensors, shape=merged, name=name)


# Comparison-like choices


def _extremum_gradient(chosen: str) -> Any:
    @counted(13)
    def gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
        x, y = op.inputs
        takes_x = getattr(b, chosen)(x, y)
        zeros = b.zeros_like(dz)
        to_x, to_y = b.unbroadcast(x, y)
        return to_x(b.where(takes_x, dz, zeros)), to_y(b.where(takes_x, zeros, dz))

    return gradient


@export("maximum", "math.maximum")
@binary_op(
    "Maximum",
    "{bfloat16|float16|float32|float64|int32|int64}",
    np.maximum,
    _extremum_gradient("greater_equal"),
    lower=lambda e, x, y: e.max(x, y),
    simplify=idempotent(),
    precision=Precision.EITHER,
)
def maximum(x, y, name=None):
    """Return the larger of x and y, element by element."""


@export("minimum", "math.minimum")
@binary_op(
    "Minimum",
    "{bfloat16|float16|float32|float64|int32|int64}",
    np.minimum,
    _extremum_gradient("less_equal"),
    lower=lambda e, x, y: e.min(x, y),
    simplify=idempotent(),
    precision=Precision.EITHER,
)
def minimum(x, y, name=None):
    """Return the smaller of x and y, element by element."""


# Powers and angles


def _pow(x: Any, y: Any) -> Any:
    if x.dtype.kind == "i" and np.any(y < 0):
        raise ValueError("Integers to negative integer powers are not allowed")
    result = np.power(x, y)
    if np.size(y) == 1 and x.dtype.kind == "f" and y == 0.5:
        # NumPy takes the square root here, whose results at -0 and -inf differ from pow's.
        result = np.abs(np.where(x == -np.inf, x, result))
    return result


def _pow_simplify(node: Node) -> Answer:
    x, y = node.inputs
    if y.type.sizes != () or not same_type(x, node):
        return None
    power = uniform(y)
    if power == 1:
        return [x]
    return squared(node, x) if power == 2 and not x.dtype.is_complex else None


def _pow_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    x, y = op.inputs
    z = op.outputs[0]
    x, y, z = b.conj(x), b.conj(y), b.conj(z)
    one = b.constant(1, y.dtype.base_dtype)
    dx = b.multiply(b.multiply(dz, y), b.pow_op(x, b.subtract(y, one)))
    # The derivative in y is z log(x), taken as 0 where x isn't positive (for complex x: where x is
    # 0).
    inside = (
        b.not_equal(x, b.zeros_like(x)) if x.dtype.is_complex else b.greater(x, b.zeros_like(x))
    )
    log = b.where(inside, b.log(b.where(inside, x, b.ones_like(x))), b.zeros_like(x))
    if same_shapes(*op.inputs, dz):
        settle_axes(*op.inputs)
    to_x, to_y = b.unbroadcast(op.inputs[0], op.inputs[1], dz)
    return to_x(dx), to_y(b.multiply(b.multiply(dz, z), log))


@binary_op(
    "Pow",
    "{bfloat16|float32|float16|float64|int32|int64|complex64|complex128}",
    _pow,
    _pow_gradient,
    samples=[
        Sample(r(2, 3, low=0.2, high=2), r(2, 3, low=0)),
        Sample(r(2, 1, low=0.2, high=2), r(3, low=0)),
        Sample(r(low=0.2, high=2), r(4, low=0)),
        Sample(r(0, 2), r(2, low=0)),
    ],
    lower=lambda e, x, y: e.pow(x, y) if x.is_floating else None,
    simplify=_pow_simplify,
    precision=Precision.WIDE,
)
def pow_op(x, y, name=None):
    """Return x to the power y, element by element."""


@composed
@dispatched
@export("pow", "math.pow")
def pow(x: Any, y: Any, name: str | None = None) -> Tensor:
    """Return x to the power y, element by element."""
    with name_scope(name, "Pow", [x]) as scope:
        return pow_op(x, y, name=scope)


@counted(7)
def _atan2_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    y, x = op.inputs
    scaled = b.realdiv(dz, b.add_v2(b.square(x), b.square(y)))
    to_y, to_x = b.unbroadcast(y, x)
    return to_y(b.multiply(x, scaled)), to_x(b.negative(b.multiply(y, scaled)))


@export("atan2", "math.atan2")
@binary_op(
    "Atan2",
    "{floats}",
    np.arctan2,
    _atan2_gradient,
    signature="y: T, x: T -> z: T",
    lower=lambda e, y, x: e.atan2(y, x),
)
def atan2(y, x, name=None):
    """Return the angle of the point (x, y), in (-π, π]."""


# Products of vectors and polynomials


def _cross_infer(c: Any, a: TensorShape, other: TensorShape) -> TensorShape:
    merged = a.with_rank_at_least(1).merge_with(other.with_rank_at_least(1))
    if merged.sizes is not None and merged.sizes[-1] not in (3, None):
        raise ValueError(f"Dimension must be 3 but is {merged.sizes[-1]}")
    return merged


def _cross(a: Any, other: Any) -> Any:
    if np.shape(a) != np.shape(other) or np.shape(a)[-1:] != (3,):
        raise ValueError(
            f"both inputs must have one shape, [..., 3], but have {np.shape(a)}, {np.shape(other)}"
        )
    return np.cross(a, other)


@export("cross", "linalg.cross")
@define(
    "Cross",
    "a: T, b: T -> product: T",
    "T: {reals}",
    infer=_cross_infer,
    kernel=_cross,
    gradient=lambda b, op, dz: (b.cross(op.inputs[1], dz), b.cross(dz, op.inputs[0])),
    samples=[Sample(r(3), r(3)), Sample(r(2, 3), r(2, 3)), Sample(r(0, 3), r(0, 3))],
)
def cross(a, b, name=None):
    """Return the cross products of the vectors along the last axis."""


@composed
@export("math.polyval")
def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
    """Return the polynomial with the given coefficients (highest power first), evaluated at x."""
    with name_scope(name, "polyval", [*coeffs, x]) as scope:
        x = convert_to_tensor(x, name="x")
        if not coeffs:
            return b.zeros_like(x, name=scope)
        terms = [convert_to_tensor(c, name=f"coeff_{i}") for i, c in enumerate(coeffs)]
        value = terms[0]
        for term in terms[1:]:
            value = term + value * x
        return value
