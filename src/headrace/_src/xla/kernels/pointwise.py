"""Pointwise programs (lowering.pointwise) on JAX arrays. In: a program, and arrays that broadcast.
Out: the program's results; XLA fuses the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.core.dtypes import as_dtype
from headrace._src.lowering.pointwise import FLOATS, Pointwise, PointwiseStep

__all__ = ["cast", "evaluate", "numpy_type"]


def numpy_type(dtype: str) -> np.dtype:
    """The NumPy type of a type's name."""
    return np.dtype(as_dtype(dtype).as_numpy_dtype)


def _sign(x: Any) -> Any:
    result = jnp.sign(x)
    return jnp.where(jnp.isnan(x), 0, result).astype(x.dtype) if x.dtype.name in FLOATS else result


_OPCODES: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "quotient": jnp.floor_divide,
    "remainder": jnp.remainder,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "pow": jnp.power,
    "atan2": jnp.arctan2,
    "neg": jnp.negative,
    "abs": jnp.abs,
    "sign": _sign,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "erf": jax.lax.erf,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "rint": jnp.rint,
    "trunc": jnp.trunc,
    "and": jnp.bitwise_and,
    "or": jnp.bitwise_or,
    "xor": jnp.bitwise_xor,
    "not": jnp.invert,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "isfinite": jnp.isfinite,
}


def evaluate(program: Pointwise, arrays: Sequence[Any], indices: Sequence[Any] = ()) -> list[Any]:
    """Run a program; `indices` are the positions for "index" steps."""
    values: list[Any] = [jnp.asarray(a) for a in arrays]
    for step in program.steps:
        values.append(_run(step, [values[i] for i in step.operands], indices))
    return [values[i] for i in program.outputs]


def _run(step: PointwiseStep, operands: list[Any], indices: Sequence[Any]) -> Any:
    if step.opcode == "const":
        return jnp.asarray(np.asarray(step.immediate).astype(numpy_type(step.dtype)))
    if step.opcode == "cast":
        return cast(operands[0], numpy_type(step.dtype))
    if step.opcode == "select":
        return jnp.where(*operands)
    if step.opcode == "index":
        return jnp.asarray(indices[int(step.immediate or 0)])
    return _OPCODES[step.opcode](*operands)


def cast(x: Any, dtype: np.dtype) -> Any:
    """Convert as NumPy does: integers that a narrow type does not hold wrap around."""
    if jnp.issubdtype(x.dtype, jnp.floating) and dtype.kind in "iu" and dtype.itemsize < 4:
        return x.astype(np.int32).astype(dtype)  # XLA would saturate
    return x.astype(dtype)
