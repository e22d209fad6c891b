"""Ops from formulas. In: an Optimizer, the formula of a step. Out: the definitions of its ops, on
references and on handles, for gradients of whole variables and for gradients of some rows.

A formula maps the old values of variables and the step's numbers to new values, element by
element, so it works for rows as well. Rows that occur several times are processed in order. All
variables of a step are locked while it runs, so it is atomic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any

import ml_dtypes
import numpy as np

from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.variable_state import VariableState, in_order
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample, keywords_of
from headrace._src.lowering.row_anchors import RowUpdate, row_update
from headrace._src.lowering.rules import Anchor, Site, Update
from headrace._src.ops.array.group_by_key import row_groups
from headrace._src.ops.base.define import define
from headrace._src.ops.state.ref_variable_ops import equal_shapes, state_of
from headrace._src.ops.state.resource_variable_ops import handle_shape, variable_behind

__all__ = ["OptimizerFormula", "by_handle", "by_reference", "of_rows"]

_INDICES = "indices"
# The operands that have the variable's shape (or rows of it); the rest are scalars and indices.
_ARRAYS_BY_NAME = ("grad", "delta")
_STEP = "global_step"
_TYPES = {_INDICES: "Tindices", _STEP: "int64"}  # of operands whose type isn't T
_NARROW_OR_WIDE = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)

# TensorFlow's names of ranges in messages, and the test whether a number is inside.
RANGES: dict[str, Callable[[Any], bool]] = {
    "positive": lambda x: x > 0,
    "non-negative": lambda x: x >= 0,
    "non-positive": lambda x: x <= 0,
}


class _Arrays:
    """The functions that a formula uses when its operands are arrays."""

    sqrt = staticmethod(np.sqrt)
    abs = staticmethod(np.abs)
    max = staticmethod(np.maximum)
    pow = staticmethod(np.power)
    sign = staticmethod(np.sign)
    exp = staticmethod(np.exp)
    select = staticmethod(np.where)


@dataclass(frozen=True)
class OptimizerFormula:
    """A formula and its op's schema: the variables and operands, in the formula's order.

    `limits` maps operands to the range that they must be in (a key of RANGES). Native code can't
    reject a number, so it requires that such an operand is known at compile time.
    """

    formula: Callable[..., Any]
    variables: Sequence[str]
    operands: Sequence[str]
    attributes: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_of_rows(self) -> bool:
        return _INDICES in self.operands

    @property
    def lower(self) -> Update | Anchor:
        count = len(self.variables)
        if self.is_of_rows:
            return Anchor("row_update", self._describe_rows, variables=count)
        return Update(self._for_lanes, count, suits=self._is_allowed, casts=self._has_step)

    @property
    def _has_step(self) -> bool:
        return _STEP in self.operands

    def _is_allowed(self, site: Site) -> bool:
        """Whether all operands that have limits are known to be within them."""
        known = {name: site.constant_input(self._input(name)) for name in self.limits}
        return all(x is not None and RANGES[self.limits[n]](x) for n, x in known.items())

    def _describe_rows(self, site: Site) -> RowUpdate | None:
        if not self._is_allowed(site):
            return None
        places = (self._input(name) for name in ("grad", _INDICES))
        return row_update(site, self._for_lanes, len(self.variables), *places)

    def _input(self, name: str) -> int:
        return len(self.variables) + self.operands.index(name)

    @cached_property
    def _for_lanes(self) -> Callable[..., Any]:
        """Return the formula for lanes: an integer step number is converted to the
        variables' type.
        """
        if not self._has_step:
            return self.formula
        taken = [name for name in (*self.variables, *self.operands) if name != _INDICES]
        at = 1 + taken.index(_STEP)

        @wraps(self.formula)
        def formula(*arguments: Any, **attributes: Any) -> Any:
            e, var, *_ = arguments
            step = e.cast(arguments[at], var.dtype)
            return self.formula(*arguments[:at], step, *arguments[at + 1 :], **attributes)

        return formula

    def schema(self, variable: str, result: str) -> tuple[str, str]:
        """Return the signature, with variables of type `variable`, and the attributes."""
        inputs = [f"{name}: {variable}" for name in self.variables]
        inputs += [f"{name}: {_TYPES.get(name, 'T')}" for name in self.operands]
        indices = "; Tindices: {index}" if self.is_of_rows else ""
        attributes = "T: {numbers}" + indices + "; use_locking: bool = False" + self.attributes
        return f"{', '.join(inputs)} -> {result}", attributes


def of_rows(o: OptimizerFormula) -> OptimizerFormula:
    """Return the same step for gradients of some rows, whose row numbers follow as `indices`."""
    operands: list[str] = []
    for name in o.operands:
        operands += ["grad", _INDICES] if name in _ARRAYS_BY_NAME else [name]
    return replace(o, operands=operands)


# -- Shapes ----------------------------------------------------------------------------------------


def _checked_shapes(
    o: OptimizerFormula, shapes: Sequence[TensorShape], operands: Any
) -> TensorShape:
    """Infer the variable's shape from those of variables and operands; ValueError on conflict."""
    shape = shapes[0]
    for other in shapes[1:]:
        shape = equal_shapes(shape, other)
    named = dict(zip(o.operands, operands, strict=True))
    for name, operand in named.items():
        if name not in (*_ARRAYS_BY_NAME, _INDICES):
            operand.with_rank(0)
        elif name in _ARRAYS_BY_NAME and not o.is_of_rows:
            shape = equal_shapes(shape, operand)
    return _with_rows(shape, named["grad"], named[_INDICES]) if o.is_of_rows else shape


def _with_rows(shape: TensorShape, grad: TensorShape, indices: TensorShape) -> TensorShape:
    """Infer the variable's shape from the gradient of some rows."""
    indices = indices.with_rank(1)
    shape.with_rank_at_least(1)
    if grad.sizes is None:
        return shape
    grad.with_rank_at_least(1)
    equal_shapes(grad[:1], indices)
    return equal_shapes(shape, TensorShape((None,)).concatenate(grad[1:]))


# -- Definitions -----------------------------------------------------------------------------------


def by_reference(op_type: str, o: OptimizerFormula, samples: list[Sample]) -> Any:
    """Define an optimizer's op on references."""
    count = len(o.variables)

    @wraps(o.formula)
    def kernel(*inputs: Any, **attributes: Any) -> VariableState:
        states = [state_of(ref) for ref in inputs[:count]]
        _step(o, states, inputs[count:], attributes)
        return states[0]

    return define(
        op_type,
        *o.schema("Ref(T)", "out: Ref(T)"),
        infer=lambda c, *shapes: _checked_shapes(o, shapes[:count], shapes[count:]),
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.WRITES,
        samples=samples,
        lower=o.lower,
    )


def by_handle(op_type: str, o: OptimizerFormula, samples: list[Sample]) -> Any:
    """Define an optimizer's op on handles."""
    count = len(o.variables)

    def kernel(*inputs: Any, ctx: Any, **attributes: Any) -> None:
        states = [variable_behind(ctx, handle) for handle in inputs[:count]]
        _step(o, states, inputs[count:], attributes)

    kernel.asks_for = (*keywords_of(o.formula), "ctx")  # type: ignore[attr-defined]

    def rule(c: Any, *shapes: TensorShape) -> list[TensorShape]:
        _checked_shapes(o, [handle_shape(c, i) for i in range(count)], shapes[count:])
        return []

    return define(
        op_type,
        *o.schema("resource", ""),
        infer=rule,
        kernel=kernel,
        effect=Effect.WRITES,
        samples=samples,
        lower=o.lower,
    )


# -- Running ---------------------------------------------------------------------------------------


def _step(
    o: OptimizerFormula,
    states: list[VariableState],
    operands: Sequence[Any],
    attributes: dict[str, Any],
) -> None:
    """Replace the variables' values, or rows of them, by the results of one step."""
    named = dict(zip(o.operands, operands, strict=True))
    with ExitStack() as held:
        for lock in in_order(state.lock for state in states):
            held.enter_context(lock)
        _check_variables(o, [state.look() for state in states])
        _check_scalars(o, named)
        if o.is_of_rows:
            _step_rows(o, states, named, attributes)
        else:
            _step_all(o, states, named, attributes)


def _step_all(
    o: OptimizerFormula,
    states: list[VariableState],
    named: dict[str, Any],
    attributes: dict[str, Any],
) -> None:
    old = [state.look() for state in states]
    for name in _ARRAYS_BY_NAME:
        if name in named:
            _require_shape(name, named[name], old[0])
    given = _numbers(named, old[0].dtype)
    new = o.formula(_Arrays, *old, *given, **attributes)
    for state, held, value in zip(states, old, new, strict=True):
        if value is held:  # an accumulator that the op was told not to update
            continue
        if any(value is x for x in (*old, *given)):
            state.assign(value)
        else:
            state.replace(np.asarray(value))


def _step_rows(
    o: OptimizerFormula,
    states: list[VariableState],
    named: dict[str, Any],
    attributes: dict[str, Any],
) -> None:
    """Read and write only the rows in `indices`."""
    named = {**named}
    indices, grad = np.asarray(named.pop(_INDICES)), np.asarray(named["grad"])
    arrays = [state.writable() for state in states]
    _check_rows(arrays[0], grad, indices)
    numbers = dict(zip(named, _numbers(named, grad.dtype), strict=True))
    for found, places in row_groups(indices, math.prod(grad.shape[1:])):
        rows = [array[found] for array in arrays]
        for place in places:
            numbers["grad"] = grad[place]
            rows = o.formula(_Arrays, *rows, *numbers.values(), **attributes)
        for array, changed in zip(arrays, rows, strict=True):
            array[found] = changed


def _numbers(named: dict[str, Any], dtype: Any) -> list[Any]:
    """Return the operands in the variables' type."""
    return [np.asarray(x).astype(dtype, copy=False) for x in named.values()]


# -- Errors ----------------------------------------------------------------------------------------


def _check_variables(o: OptimizerFormula, old: list[np.ndarray]) -> None:
    var = old[0]
    if var.dtype not in _NARROW_OR_WIDE:
        raise TypeError(f"needs floating-point variables, not {var.dtype.name}")
    for name, slot in zip(o.variables[1:], old[1:], strict=True):
        if slot.dtype != var.dtype:
            raise ValueError(f"var is {var.dtype.name}, but {name} is {slot.dtype.name}")
        _require_shape(name, slot, var)


def _check_scalars(o: OptimizerFormula, named: dict[str, Any]) -> None:
    for name, operand in named.items():
        if name in (*_ARRAYS_BY_NAME, _INDICES):
            continue
        if np.ndim(operand):
            raise ValueError(f"{name} is not a scalar: {show_shape(np.shape(operand))}")
        wanted = o.limits.get(name)
        if wanted is not None and not RANGES[wanted](operand):
            raise ValueError(f"{name} is not a {wanted} scalar: {operand}")


def _check_rows(var: np.ndarray, grad: np.ndarray, indices: np.ndarray) -> None:
    if not var.ndim:
        raise ValueError("var must be at least 1 dimensional")
    if indices.ndim != 1:
        raise ValueError("indices must be one-dimensional")
    if grad.ndim != var.ndim or grad.shape[1:] != var.shape[1:]:
        raise ValueError(
            f"var and grad must match in all dimensions but the first: {show_shape(var.shape)} "
            f"{show_shape(grad.shape)}"
        )
    if len(grad) != len(indices):
        raise ValueError("grad must be the same size as indices in the first dimension.")
    outside = (indices < 0) | (indices >= len(var))
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(f"Index {indices[at]} at offset {at} in indices is out of range")


def _require_shape(name: str, value: Any, var: np.ndarray) -> None:
    if np.shape(value) != var.shape:
        raise ValueError(
            f"var and {name} do not have the same shape{show_shape(var.shape)} "
            f"{show_shape(np.shape(value))}"
        )
