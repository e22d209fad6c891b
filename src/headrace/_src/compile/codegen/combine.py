"""How a reduction combines values: as pointwise programs over a small state.

A state is one or two components. `update` takes a state, a value and the value's position;
`merge` takes two states; `result` takes a state. All are pointwise programs, so one generator makes
every reduction: on scalars, on lanes, across lanes and across threads.

    sum, prod, max, min, all, any   one component of the values' type
    long_sum                        a sum and what its additions lost: exact enough for any length
    argmax, argmin                  the best value and its first position; a NaN beats everything
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype
from headrace._src.lowering.pointwise import Pointwise, record

__all__ = ["COMBINES", "Combine", "combine_of", "state_dtype"]

POSITION = "int32"


@dataclass(frozen=True)
class Combine:
    """The programs of one reduction on one type."""

    name: str
    state: tuple[str, ...]  # types of the components
    identity: tuple[float | int | bool, ...]
    update: Pointwise  # (*state, value, position) -> state
    merge: Pointwise  # (*state, *state) -> state
    result: Pointwise  # state -> what the reduction gives


def state_dtype(dtype: str) -> str:
    """The type in which values are accumulated: narrow floating types are summed in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _simple(opcode: str, identity: Callable[[str], Any]) -> Callable[[str], Combine]:
    def make(dtype: str) -> Combine:
        both = record(lambda e, a, b: getattr(e, opcode)(a, b), [dtype, dtype])
        update = record(lambda e, a, v, _p: getattr(e, opcode)(a, v), [dtype, dtype, POSITION])
        same = Pointwise((dtype,), (), (0,))
        return Combine(opcode, (dtype,), (identity(dtype),), update, both, same)

    return make


def _lowest(dtype: str) -> float | int:
    if dtype == "bool":
        return False
    return -np.inf if _is_float(dtype) else int(np.iinfo(as_dtype(dtype).as_numpy_dtype).min)


def _highest(dtype: str) -> float | int:
    if dtype == "bool":
        return True
    return np.inf if _is_float(dtype) else int(np.iinfo(as_dtype(dtype).as_numpy_dtype).max)


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _long_sum(dtype: str) -> Combine:
    """A compensated sum; of integers a plain one."""
    if not _is_float(dtype):
        return _simple("add", lambda _: 0)(dtype)

    def add(e: Any, high: Any, low: Any, value: Any) -> tuple[Any, Any]:
        total = high + value
        part = total - high
        lost = (high - (total - part)) + (value - part)
        return total, low + lost

    def result(e: Any, high: Any, low: Any) -> Any:
        # An infinite sum has lost infinity minus infinity.
        return e.select(e.isfinite(high), high + low, high)

    def merge(e: Any, high: Any, low: Any, other: Any, other_low: Any) -> tuple[Any, Any]:
        total, lost = add(e, high, low, other)
        return total, lost + other_low

    return Combine(
        "long_sum",
        (dtype, dtype),
        (0.0, 0.0),
        record(lambda e, high, low, v, _p: add(e, high, low, v), [dtype] * 3 + [POSITION]),
        record(merge, [dtype] * 4),
        record(result, [dtype] * 2),
    )


def _best(opcode: str, worst: Callable[[str], Any]) -> Callable[[str], Combine]:
    def make(dtype: str) -> Combine:
        def better(e: Any, value: Any, at: Any, other: Any, other_at: Any) -> tuple[Any, Any]:
            wins = getattr(e, opcode)(other, value)
            tie = e.eq(value, other)
            if _is_float(dtype):
                wins = e.or_(wins, e.and_(e.isnan(other), e.not_(e.isnan(value))))
                tie = e.or_(tie, e.and_(e.isnan(other), e.isnan(value)))
            wins = e.or_(wins, e.and_(tie, other_at < at))
            return e.select(wins, other, value), e.select(wins, other_at, at)

        pair = [dtype, POSITION]
        return Combine(
            "argmax" if opcode == "gt" else "argmin",
            (dtype, POSITION),
            (worst(dtype), int(np.iinfo(POSITION).max)),
            record(better, pair * 2),
            record(better, pair * 2),
            record(lambda e, value, at: e.cast(at, "int64"), pair),
        )

    return make


COMBINES: dict[str, Callable[[str], Combine]] = {
    "sum": _simple("add", lambda _: 0),
    "long_sum": _long_sum,
    "prod": _simple("mul", lambda _: 1),
    "max": _simple("max", _lowest),
    "min": _simple("min", _highest),
    "all": _simple("and_", lambda _: True),
    "any": _simple("or_", lambda _: False),
    "argmax": _best("gt", _lowest),
    "argmin": _best("lt", _highest),
}


@cache
def combine_of(name: str, dtype: str) -> Combine:
    """The reduction `name` of values of `dtype` (as they are accumulated: see state_dtype)."""
    return COMBINES[name](dtype)
