"""Find the operation that produces the first NaN or infinity. In: an instruction and its kernel.
Out: a kernel that raises if finite inputs give a NaN or an infinity, and describes the inputs.

An operation with a NaN or an infinity among its inputs may pass it on, so that only the origin is
reported. An operation without inputs (a constant, a variable) is not checked. A variable that an
operation writes counts as an input, with its old value, and as an output, with its new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.pending import Pending
from headrace._src.devices.resources import ResourceHandle, Resources
from headrace._src.devices.variable_state import VariableState
from headrace._src.graph.dataflow import origin_of
from headrace._src.graph.definition import Effect
from headrace._src.graph.operation import Operation
from headrace._src.graph.program import Instruction

__all__ = ["guarded"]

_ARRAYS = (np.ndarray, np.generic)


def guarded(
    resources: Resources, instruction: Instruction, kernel: Callable[..., Any]
) -> Callable[..., Any]:
    """Wrap a kernel so that its inputs and results are checked for NaN and infinity.

    `resources` holds the variables that handles name.
    """
    op = origin_of(instruction.op)
    if not isinstance(op, Operation) or op.type != instruction.op.type:
        op = instruction.op  # it is in another process, or this is a Recv of its result
    definition = op.definition
    steers = definition.flow is not None  # it only passes its inputs on
    makes = any(_is_inexact(t.dtype) for t in op._outputs)
    writes = definition.effect is Effect.WRITES
    if steers or not op._inputs or not (makes or writes):
        return kernel
    several = len(op._outputs) > 1 or definition.schema.has_list_outputs

    def run(*values: Any) -> Any:
        # A variable does not write to an array that is held here, so these values do not change.
        given = list(_numbers(resources, op._inputs, values))
        result = kernel(*values)
        if isinstance(result, Pending):
            return result
        results = result if several else (result,) if op._outputs else ()
        made = _numbers(resources, op._outputs, results)
        for tensor, value in (*made, *_states(resources, op._inputs, values)):
            if not _are_finite(value) and all(_are_finite(v) for _, v in given):
                raise _complaint(op, given, tensor, value)
        return result

    return run


def _are_finite(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all())


def _is_inexact(dtype: Any) -> bool:
    return dtype.base_dtype.is_floating or dtype.base_dtype.is_complex


def _numbers(
    resources: Resources, tensors: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the values that can hold a NaN, each with its tensor; variables are read."""
    for tensor, value in zip(tensors, values, strict=True):
        if isinstance(value, VariableState | ResourceHandle):
            value = _held(resources, value)
        if isinstance(value, _ARRAYS) and value.dtype.kind in "fcV":  # V: bfloat16 and similar
            yield tensor, np.asarray(value)


def _states(
    resources: Resources, tensors: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the current values of the variables among an operation's inputs."""
    kinds = (VariableState, ResourceHandle)
    found = [(t, v) for t, v in zip(tensors, values, strict=True) if isinstance(v, kinds)]
    return _numbers(resources, [t for t, _ in found], [v for _, v in found])


def _held(resources: Resources, source: VariableState | ResourceHandle) -> Any:
    """Return a variable's value; None if it is not initialised or not a variable."""
    found = resources.peek(source) if isinstance(source, ResourceHandle) else source
    held = isinstance(found, VariableState) and found.is_initialized
    return found.read() if held else None


def _complaint(
    op: Any, given: list[tuple[Any, np.ndarray]], tensor: Any, value: np.ndarray
) -> InvalidArgumentError:
    nans, infinities = int(np.isnan(value).sum()), int(np.isinf(value).sum())
    counts = [f"{n} {what}" for n, what in ((nans, "NaN"), (infinities, "Inf")) if n]
    among = f"among {value.size} elements" if value.size > 1 else "where a number should be"
    error = InvalidArgumentError(
        None, op, f"{op.type} '{op.name}': {' and '.join(counts)} {among}, from finite inputs"
    )
    for t, v in given:
        error.add_detail(f"input  {_describe(t, v)}")
    error.add_detail(f"output {_describe(tensor, value)}")
    return error


def _describe(tensor: Any, value: np.ndarray) -> str:
    """Describe a tensor in one line: shape, range of finite numbers, counts of the others."""
    shape = ",".join(map(str, value.shape))
    line = f"{tensor.name} {value.dtype.name}[{shape}]"
    numbers = np.abs(value) if value.dtype.kind == "c" else value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if value.size == 1 and finite.size:
        return f"{line} = {finite.item():.6g}"
    if finite.size:
        line += f"  min {finite.min():.6g}  max {finite.max():.6g}"
        line += f"  zeros {int((finite == 0).sum())}"
    nans, infinities = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
    return line + (f"  NaN {nans}" if nans else "") + (f"  Inf {infinities}" if infinities else "")
