"""Arithmetic, element by element with broadcasting."""

from __future__ import annotations

import numpy as np

from headrace.core.export import export
from headrace.graph.definition import Kind
from headrace.ops import infer
from headrace.ops.define import composed, define
from headrace.ops.samples import pairs

__all__ = ["multiply", "sum_to"]


@composed
def sum_to(grad, like):
    raise NotImplementedError


def _mul_gradient(b, op, dz):
    x, y = op.inputs
    return b.sum_to(b.multiply(dz, b.conj(y)), x), b.sum_to(b.multiply(b.conj(x), dz), y)


@export("multiply", "math.multiply")
@define(
    "Mul",
    "x: T, y: T -> z: T",
    "T: {bfloat16|float16|float32|float64|uint8|int8|uint16|int16|int32|int64|complex64|complex128}",
    infer=infer.broadcasting,
    kernel=np.multiply,
    gradient=_mul_gradient,
    kind=Kind.ELEMENTWISE,
    samples=pairs(),
    commutative=True,
)
def multiply(x, y, name=None):
    """Return x * y, element by element."""


@define(
    "AddV2",
    "x: T, y: T -> z: T",
    "T: {bfloat16|float16|float32|float64|uint8|int8|int16|int32|int64|complex64|complex128}",
    infer=infer.broadcasting,
    kernel=np.add,
    gradient=lambda b, op, dz: (b.sum_to(dz, op.inputs[0]), b.sum_to(dz, op.inputs[1])),
    kind=Kind.ELEMENTWISE,
    samples=pairs(),
    commutative=True,
)
def add_v2(x, y, name=None):
    """Return x + y, element by element."""
