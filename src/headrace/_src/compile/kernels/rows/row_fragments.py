"""Parts of fragments, which are small Plans that a builder splices into the plan of a cluster. The
inputs and outputs of a fragment are an anchor's operands and outputs, with the same numbers; its
arena has the temporaries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.compile.kernels.rows.rows_kernel import Stage
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.lowering.pointwise import record

__all__ = ["input_of", "output_of", "stage"]


def input_of(plan: PlanWriter, index: int, dtype: str, count: int) -> int:
    return plan.add("input", dtype, count, index=index)


def output_of(plan: PlanWriter, index: int, dtype: str, count: int) -> int:
    return plan.add("output", dtype, count, index=index)


def stage(
    function: Callable[..., Any],
    operands: dict[str, str],
    *results: str,
    scalar: bool = False,
) -> Stage:
    """A stage; `operands` are named with their types."""
    return Stage(record(function, list(operands.values())), tuple(operands), results, scalar)
