"""Complex numbers: their parts, and construction from parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.samples import pairs, r, typed, unary
from headrace._src.ops.base.simplify_rules import cancels_itself
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["angle", "complex", "conj", "imag", "real"]


def _part_op(op_type: str, kernel: Callable[..., Any], gradient: Callable[..., Any]) -> Any:
    def run(x: Any, *, Tout: dtypes.DType) -> Any:
        return kernel(x).astype(Tout.numpy)

    return define(
        op_type,
        "input: T -> output: Tout",
        "T: {complexes} = complex64; Tout: {float32|float64} = float32",
        infer=infer.same_as(0),
        kernel=run,
        gradient=gradient,
        kind=Kind.ELEMENTWISE,
        samples=[*unary(), Sample(r(3), T="complex128", Tout="float64")],
    )


def _along_real(b: OpBuilder, op: Any, dy: Any) -> Any:
    return b.complex(dy, b.zeros_like(dy))


def _along_imaginary(b: OpBuilder, op: Any, dy: Any) -> Any:
    return b.complex(b.zeros_like(dy), dy)


def _angle_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    z = op.inputs[0]
    turned = b.reciprocal(b.complex(b.imag(z), b.real(z)))
    return b.negative(b.multiply(b.complex(dy, b.zeros_like(dy)), turned))


@_part_op("Real", np.real, _along_real)
def real_op(input, Tout=None, name=None):
    """Return the real parts."""


@_part_op("Imag", np.imag, _along_imaginary)
def imag_op(input, Tout=None, name=None):
    """Return the imaginary parts."""


@_part_op("Angle", np.angle, _angle_gradient)
def angle_op(input, Tout=None, name=None):
    """Return the angles, in (-π, π]."""


@define(
    "Conj",
    "input: T -> output: T",
    "T: {complex64|complex128|variant} = complex64",
    infer=infer.same_as(0),
    kernel=np.conj,
    gradient=lambda b, op, dy: b.conj(dy),
    kind=Kind.ELEMENTWISE,
    samples=unary(),
    simplify=cancels_itself,
)
def conj_op(input, name=None):
    """Return the complex conjugates."""


def _complex(real: Any, imag: Any, *, Tout: dtypes.DType) -> Any:
    result = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), Tout.numpy)
    result.real = real
    result.imag = imag
    return result


def _complex_gradient(b: OpBuilder, op: Any, dz: Any) -> Any:
    real, imag = op.inputs
    to_real, to_imag = b.unbroadcast(real, imag)
    return to_real(b.real(dz)), to_imag(b.imag(dz))


@define(
    "Complex",
    "real: T, imag: T -> out: Tout",
    "T: {float32|float64} = float32; Tout: {complexes} = complex64",
    infer=infer.broadcasting,
    kernel=_complex,
    gradient=_complex_gradient,
    kind=Kind.ELEMENTWISE,
    samples=[*pairs(), *typed([Sample(r(2), r(2), Tout="complex128")], "float64")],
)
def complex_op(real, imag, Tout=None, name=None):
    """Return complex numbers with the given real and imaginary parts."""


@composed
@dispatched
@export("complex", "dtypes.complex")
def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """Return complex numbers with the given real and imaginary parts, both float32 or
    both float64.
    """
    real = convert_to_tensor(real, name="real")
    imag = convert_to_tensor(imag, name="imag")
    with name_scope(name, "Complex", [real, imag]) as scope:
        kinds = (real.dtype.base_dtype, imag.dtype.base_dtype)
        if kinds == (dtypes.float64, dtypes.float64):
            return complex_op(real, imag, Tout=dtypes.complex128, name=scope)
        if kinds == (dtypes.float32, dtypes.float32):
            return complex_op(real, imag, Tout=dtypes.complex64, name=scope)
        raise TypeError(f"real and imag have incorrect types: {real.dtype.name} {imag.dtype.name}")


@composed
@dispatched
@export("real", "math.real")
def real(input: Any, name: str | None = None) -> Tensor:
    """Return the real parts; real numbers are returned as they are."""
    with name_scope(name, "Real", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return real_op(input, Tout=input.dtype.real_dtype, name=scope)
        return input


@composed
@dispatched
@export("imag", "math.imag")
def imag(input: Any, name: str | None = None) -> Tensor:
    """Return the imaginary parts; zeros for real numbers."""
    with name_scope(name, "Imag", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return imag_op(input, Tout=input.dtype.real_dtype, name=scope)
        return b.zeros_like(input)


@composed
@dispatched
@export("angle", "math.angle")
def angle(input: Any, name: str | None = None) -> Tensor:
    """Return the angles of complex numbers, in (-π, π]; zeros for real numbers."""
    with name_scope(name, "Angle", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return angle_op(input, Tout=input.dtype.real_dtype, name=scope)
        return b.zeros_like(input)


@composed
@dispatched
@export("conj", "math.conj")
def conj(x: Any, name: str | None = None) -> Tensor:
    """Return the complex conjugates; real numbers are returned as they are."""
    if isinstance(x, Tensor) and (x.dtype.is_floating or x.dtype.is_integer):
        return x
    with name_scope(name, "Conj", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex or x.dtype is dtypes.variant:
            return conj_op(x, name=scope)
        if x.dtype.is_floating or x.dtype.is_integer:
            return x
        raise TypeError(f"Expected numeric or variant tensor, got dtype {x.dtype!r}")
