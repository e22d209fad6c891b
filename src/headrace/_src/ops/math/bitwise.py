"""Bitwise operations on integers, element by element with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.definition import Kind
from headrace._src.lowering.rules import Elementwise
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import pairs, unary
from headrace._src.ops.base.simplify_rules import cancels_itself

__all__ = ["bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"]


def _bitwise_op(
    op_type: str,
    kernel: Callable[..., Any],
    commutative: bool = False,
    lower: Callable[..., Any] | None = None,
) -> Any:
    return define(
        op_type,
        "x: T, y: T -> z: T",
        "T: {integers}",
        infer=infer.broadcasting,
        kernel=kernel,
        kind=Kind.ELEMENTWISE,
        samples=pairs(-100, 100),
        commutative=commutative,
        lower=Elementwise(lower) if lower else None,
    )


@export("bitwise.bitwise_and")
@_bitwise_op("BitwiseAnd", np.bitwise_and, commutative=True, lower=lambda e, x, y: e.and_(x, y))
def bitwise_and(x, y, name=None):
    """Return the bits that are set in both x and y."""


@export("bitwise.bitwise_or")
@_bitwise_op("BitwiseOr", np.bitwise_or, commutative=True, lower=lambda e, x, y: e.or_(x, y))
def bitwise_or(x, y, name=None):
    """Return the bits that are set in x or y."""


@export("bitwise.bitwise_xor")
@_bitwise_op("BitwiseXor", np.bitwise_xor, commutative=True, lower=lambda e, x, y: e.xor(x, y))
def bitwise_xor(x, y, name=None):
    """Return the bits in which x and y differ."""


@export("bitwise.invert")
@define(
    "Invert",
    "x: T -> y: T",
    "T: {integers}",
    infer=infer.same_as(0),
    kernel=np.invert,
    kind=Kind.ELEMENTWISE,
    samples=unary(-100, 100),
    lower=Elementwise(lambda e, x: e.not_(x)),
    simplify=cancels_itself,
)
def invert(x, name=None):
    """Return x with every bit flipped."""


def _clamped(y: Any) -> Any:
    """Clamp a shift amount to those that the type's width allows."""
    return np.clip(y, 0, y.dtype.itemsize * 8 - 1)


@export("bitwise.left_shift")
@_bitwise_op("LeftShift", lambda x, y: np.left_shift(x, _clamped(y)))
def left_shift(x, y, name=None):
    """Return x shifted left by y bits."""


@export("bitwise.right_shift")
@_bitwise_op("RightShift", lambda x, y: np.right_shift(x, _clamped(y)))
def right_shift(x, y, name=None):
    """Return x shifted right by y bits; the sign is kept."""


def _population_count(x: Any) -> Any:
    return np.bitwise_count(
        x.view(f"u{x.dtype.itemsize}")
    )  # for signed x, NumPy counts the bits of |x|


@define(
    "PopulationCount",
    "x: T -> y: uint8",
    "T: {integers}",
    infer=infer.same_as(0),
    kernel=_population_count,
    kind=Kind.ELEMENTWISE,
    samples=unary(-100, 100),
)
def population_count(x, name=None):
    """Return the number of set bits in x."""
