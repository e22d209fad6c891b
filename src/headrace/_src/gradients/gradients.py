"""Gradients. In: tensors ys and xs. Out: new operations that compute d(sum of ys)/dx, or None where
there is no path.

The rewriter walks back from ys, operation by operation, once all gradients that reach an operation
are known; it calls the operation's gradient function and sums the gradients of each tensor (white
paper §4.1).

State of a walk: `grads[tensor]`, the gradients that have arrived; `pending[op]`, how many
operations between `op` and ys are still to be visited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from enum import Enum
from typing import Any

from headrace._src.core.dtypes import resource, variant
from headrace._src.core.export import export
from headrace._src.gradients.control_flow_gradients import (
    BranchUnit,
    LoopUnit,
    steering_gradient,
    unit_of,
)
from headrace._src.gradients.counts import unused_nodes
from headrace._src.gradients.registry import gradient_function
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.contexts import ControlFlowContext, output_context
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_array import TensorArray

__all__ = ["AggregationMethod", "UnconnectedGradients", "gradients", "hessians"]


@export("AggregationMethod")
class AggregationMethod:
    """How to sum several gradients of one tensor."""

    ADD_N = 0  # one AddN
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1  # pairwise: needs less memory at a time
    EXPERIMENTAL_ACCUMULATE_N = 2  # AddN, which here frees its inputs as it goes


@export("UnconnectedGradients")
class UnconnectedGradients(Enum):
    """The result of `gradients` for an x that no y depends on."""

    NONE = "none"
    ZERO = "zero"


@export("gradients")
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Tensor]:
    """Return, for each x, the gradient of the sum of `ys`: a tensor, IndexedSlices, or None.

    grad_ys: gradients to start from instead of ones. stop_gradients: tensors to treat as constants.
    gate_gradients: wait for all gradients of an operation before any of them is used.

    colocate_gradients_with_ops: place the gradient of an operation on its device.
    aggregation_method: how to sum several gradients of one tensor (see AggregationMethod).
    unconnected_gradients: whether an x that no y depends on gets None or zeros.
    """
    try:
        unconnected_gradients = UnconnectedGradients(unconnected_gradients)
    except ValueError:
        raise ValueError(
            f"Unknown value for unconnected_gradients: {unconnected_gradients!r}"
        ) from None
    if aggregation_method not in (None, 0, 1, 2):
        raise ValueError(f"Invalid aggregation_method specified {aggregation_method}.")
    ys = _as_list(ys)
    xs = _as_list(xs)
    stops = _as_list(stop_gradients) if stop_gradients is not None else []
    starts = [None] * len(ys) if grad_ys is None else _as_list(grad_ys)
    if len(starts) != len(ys):
        raise ValueError(f"Passed {len(starts)} grad_ys for {len(ys)} ys")
    values = [*ys, *_graph_parts(xs), *_graph_parts(stops), *starts]
    with name_scope(name, "gradients", values) as scope, _source_named(scope):
        ys = [_as_tensor(y, "y") for y in ys]
        xs = [_source(x, "x") for x in xs]
        stops = [_source(s, "stop_gradient") for s in stops]
        base = output_context(ys[0].op) if ys else None
        options = aggregation_method, gate_gradients, colocate_gradients_with_ops
        walk = _Walk(xs, stops, options, base)
        for i, (y, start) in enumerate(zip(ys, starts, strict=True)):
            walk.start(y, start, i)
        walk.run(ys)
        results = [walk.total(x) for x in xs]
        if unconnected_gradients == UnconnectedGradients.ZERO:
            results = [_zeros_like(x) if g is None else g for x, g in zip(xs, results, strict=True)]
    return results


@export("hessians")
def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: int | None = None,
) -> list[Tensor]:
    """Return, for each x, the matrix of second derivatives of the sum of `ys`, of shape x.shape +
    x.shape.

    The other arguments are those of tf.gradients.
    """
    xs = _as_list(xs)
    options = (colocate_gradients_with_ops, gate_gradients, aggregation_method)
    with name_scope(name, "hessians", _graph_parts(xs)):
        found = []
        for x, gradient in zip(xs, gradients(ys, xs, None, "gradients", *options), strict=True):
            if gradient is None:
                raise ValueError(f"ys do not depend on {x}: it has no Hessian")
            x = _as_tensor(x, "x")
            flat = b.reshape(gradient, [-1])

            def row(i: Any, flat: Any = flat, x: Any = x) -> Any:
                derivative = gradients(flat[i], x, None, "gradients", *options)[0]
                if derivative is None:
                    raise ValueError("None values not supported: the gradient doesn't depend on x.")
                return derivative

            rows = _rows(row, flat.shape.sizes, b.size(x), x.dtype)
            shape = b.shape(x)
            found.append(b.reshape(rows, b.concat([shape, shape], 0)))
        return found


def _rows(row: Any, sizes: Any, count: Any, dtype: Any) -> Tensor:
    """Compute all rows of a Hessian: one after the other if their number is known, else
    in a loop.
    """
    if sizes and sizes[0] is not None:
        return b.stack([row(i) for i in range(sizes[0])])
    start = TensorArray(dtype.base_dtype, count)
    _, found = b.while_loop(
        lambda i, _: i < count, lambda i, rows: (i + 1, rows.write(i, row(i))), (0, start)
    )
    return found.stack()


def _source_named(scope: str) -> Any:
    """A scope that stores gradients of arrays and stacks under the name of this call."""
    return get_default_graph()._swap("gradient_source", scope[:-1])


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _graph_parts(values: Iterable[Any]) -> list[Any]:
    return [v for v in values if hasattr(v, "graph")]


def _as_tensor(value: Any, name: str) -> Any:
    if isinstance(value, IndexedSlices):
        return value.values
    return convert_to_tensor(value, name=name)


def _source(value: Any, name: str) -> Tensor:
    """Return the tensor to differentiate by for `value`: for a resource variable, its handle."""
    handle = getattr(value, "_gradient_source", None)
    return handle() if handle is not None else convert_to_tensor(value, name=name, as_ref=True)


def _zeros_like(x: Tensor) -> Any:
    state = getattr(x, "_handle_data", None)
    return b.zeros_like(x) if state is None else b.zeros(state.shape, state.dtype)


class _Walk:
    """One backward traversal of the operations of one control-flow context; branches and loops
    inside it are visited as units.
    """

    def __init__(
        self,
        xs: Sequence[Tensor],
        stops: Sequence[Tensor],
        options: tuple[int | None, bool, bool],
        base: ControlFlowContext | None,
    ) -> None:
        self._xs = set(xs)
        self._stops = set(stops)
        self._options = options
        self._method, self._gate, self._colocate = options
        self._base = base
        self._on_paths: set[Operation] = set()
        self._grads: dict[Tensor, list[Any]] = {}
        self._totals: dict[Tensor, Any] = {}
        self._expected: dict[Tensor, int] = {}
        self._reached = _reachable(xs, self._stops)

    def start(self, y: Tensor, grad_y: Any, index: int) -> None:
        """Start at `y` with `grad_y`, or with ones."""
        with self._beside(y.op):
            if grad_y is None:
                if not (y.dtype.is_floating or y.dtype.is_integer):
                    if y.dtype.is_complex:
                        raise TypeError(
                            f"Gradients of complex tensors must set grad_ys (y.dtype = {y.dtype!r})"
                        )
                    raise TypeError(f"{y.name} of type {y.dtype.name} has no gradient")
                shape = b.shape(y)
                grad_y = b.fill(shape, b.constant(1, y.dtype.base_dtype, name=f"grad_ys_{index}"))
            else:
                grad_y = _checked_start(y, grad_y, index)
        self._grads.setdefault(y, []).append(grad_y)

    def _beside(self, op: Operation) -> Any:
        return op.graph.colocate_with(op) if self._colocate else nullcontext()

    def run(self, ys: Sequence[Tensor]) -> None:
        """Visit every operation between ys and xs, each after all that use it.

        The order is TensorFlow's, breadth first starting at ys: it determines the order in which
        gradients are summed, and thus the last bits of sums.
        """
        between = self._on_paths = self._between(ys)
        units = dict.fromkeys(unit_of(op, self._base) for op in between)
        pending = dict.fromkeys(units, 0)
        for unit in units:
            for before in self._before(unit):
                if before in pending:
                    pending[before] += 1
        starts = dict.fromkeys(unit_of(y.op, self._base) for y in ys)
        ready = deque(unit for unit in starts if pending.get(unit) == 0)
        while ready:
            unit = ready.popleft()
            if isinstance(unit, Operation):
                self._visit(unit)
            else:
                self._visit_unit(unit)
            for before in self._before(unit):
                if before in pending:
                    pending[before] -= 1
                    if not pending[before]:
                        ready.append(before)

    def _before(self, unit: Any) -> list[Any]:
        """Return the units that supply a unit's inputs and through which gradients flow."""
        given = unit._inputs if isinstance(unit, Operation) else unit.inputs
        return [
            unit_of(t.op, self._base) for t in given if t in self._reached and t not in self._stops
        ]

    def _visit_unit(self, unit: BranchUnit | LoopUnit) -> None:
        own = [t for t in self._grads if unit_of(t.op, self._base) == unit]
        arrived = {t: g for t in own if (g := self.total(t)) is not None}
        if not arrived:
            return
        with name_scope(f"{next(iter(arrived)).op.name}_grad"):
            found = unit.differentiate(self, arrived)
        for t, gradient in found:
            if t in self._reached:
                self._grads.setdefault(t, []).append(gradient)

    def expect(self, t: Tensor, more: int) -> None:
        """Count this many more gradients of `t` in TensorFlow, which sums them."""
        self._expected[t] = self._expected.get(t, 0) + more

    @property
    def is_gated(self) -> bool:
        return self._gate

    def is_between(self, t: Tensor) -> bool:
        """Whether a gradient can flow through a tensor, from some y to some x."""
        return t in self._reached and t.op in self._on_paths and _carries_gradient(t)

    def leads_back(self, t: Tensor) -> bool:
        """Whether a gradient of a branch's input reaches some x."""
        return t in self._reached and any(
            op in self._on_paths and op.definition.flow is Flow.SWITCH for op in t._consumers
        )

    def inside(
        self,
        context: ControlFlowContext,
        ends: Sequence[tuple[Tensor, Any]],
        xs: Sequence[Tensor],
        stops: Sequence[Tensor] = (),
    ) -> dict[Any, Any]:
        """Return the gradients of `xs` in a context inside this walk's, from (tensor, gradient)
        pairs.
        """
        walk = _Walk(xs, [*self._stops, *stops], self._options, context)
        ends = [(y, g) for y, g in ends if y in walk._reached and _carries_gradient(y)]
        for y, gradient in ends:
            walk._grads.setdefault(y, []).append(gradient)
        walk.run([y for y, _ in ends])
        return {x: g for x in xs if (g := walk.total(x)) is not None}

    def _between(self, ys: Sequence[Tensor]) -> set[Operation]:
        """Return the operations on paths from xs to ys."""
        found: set[Operation] = set()
        stack = [y.op for y in ys if y in self._reached and y not in self._stops]
        while stack:
            op = stack.pop()
            if op not in found:
                found.add(op)
                reached = (t for t in op._inputs if t in self._reached and t not in self._stops)
                stack.extend(t.op for t in reached)
        return found

    def _visit(self, op: Operation) -> None:
        if not any(t in self._reached for t in op._inputs):
            return
        arrived = [self.total(t) for t in op._outputs]
        if all(g is None for g in arrived):
            return
        steers = op.definition.flow is not None
        function = _steering if steers else gradient_function(op)
        if function is None:
            return
        with name_scope(f"{op.name}_grad"), self._beside(op):
            before = op.graph.version
            filled = [
                _zeros_for(t) if g is None and not steers else g
                for t, g in zip(op._outputs, arrived, strict=True)
            ]
            results = function(op, *filled)
            results = list(results) if isinstance(results, list | tuple) else [results]
            if len(results) != len(op._inputs):
                raise ValueError(
                    f"Num gradients {len(results)} generated for op {op.name} do not match num "
                    "inputs "
                    f"{len(op._inputs)}"
                )
            if self._gate and len([g for g in results if g is not None]) > 1:
                results = b.tuple_tensors(results)
            for made in op.graph._operations[before:]:
                made._original_op = op
        for t, gradient in zip(op._inputs, results, strict=True):
            if gradient is None or t not in self._reached:
                continue
            _check_gradient(op, t, gradient)
            self._grads.setdefault(t, []).append(gradient)

    def total(self, t: Tensor) -> Any:
        """Return the sum of the gradients of `t` that have arrived, or None."""
        if t in self._totals:
            return self._totals[t]
        arrived = self._grads.get(t)
        if not arrived:
            return None
        with self._beside(t.op):
            self._totals[t] = _add_up(arrived, self._method)
        if len(arrived) == 1 and self._expected.get(t):
            with t.graph.counted_as(4 if isinstance(arrived[0], IndexedSlices) else 1):
                pass
        return self._totals[t]


def _steering(op: Operation, *grads: Any) -> list[Any]:
    return steering_gradient(op, grads)


def _reachable(xs: Sequence[Tensor], stops: set[Tensor]) -> set[Tensor]:
    """Return the tensors xs, and those that depend on them by a path without a stop."""
    found: set[Tensor] = set()
    stack = list(xs)
    while stack:
        t = stack.pop()
        if t in found:
            continue
        found.add(t)
        if _carries_gradient(t):
            for consumer in t._consumers:
                stack.extend(o for o in consumer._outputs if o not in stops)
    return found


def _carries_gradient(t: Tensor) -> bool:
    """Whether a gradient can flow back through `t`: its dtype is differentiable, or it is a handle
    of such a variable.
    """
    dtype = t.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex or dtype in (resource, variant)


def _checked_start(y: Tensor, grad_y: Any, index: int) -> Any:
    name = f"grad_ys_{index}"
    if isinstance(grad_y, IndexedSlices):
        indices = b.identity(grad_y.indices, name=f"{name}_indices")
        values = b.identity(grad_y.values, name=f"{name}_values")
        shape = grad_y.dense_shape
        return IndexedSlices(
            values, indices, None if shape is None else b.identity(shape, name=f"{name}_shape")
        )
    grad_y = convert_to_tensor(grad_y, y.dtype.base_dtype, name=f"grad_y_{index}")
    return b.identity(grad_y, name=name)


def _zeros_for(t: Tensor) -> Any:
    """Return zeros for an output that nothing depends on; None where a gradient has no meaning."""
    carries = t.dtype.is_floating or t.dtype.is_complex or t.dtype is variant
    if not carries:
        return None
    context = t.graph.scope.context
    quiet = nullcontext() if context is None else context.uncounted()
    with t.graph.counted_as(unused_nodes(t), borders=False), quiet:
        return b.zeros_like(t)


def _check_gradient(op: Operation, t: Tensor, gradient: Any) -> None:
    dtype = t.dtype.base_dtype
    if isinstance(gradient, Tensor) and dtype.name != "resource":
        if gradient.dtype.base_dtype is not dtype and (dtype.is_floating or dtype.is_complex):
            raise ValueError(
                f"the gradient of '{op.name}' ({op.type}) for {t.name} is {gradient.dtype.name}, "
                f"not {dtype.name}"
            )
        try:
            gradient.set_shape(t._shape)
        except ValueError:
            raise ValueError(
                f"Incompatible shapes between op input and calculated input gradient. Forward "
                f"operation: {op.name}. Input: {t.name} {t._shape}. Gradient: {gradient._shape}"
            ) from None


def _add_up(arrived: list[Any], method: int | None) -> Any:
    if len(arrived) == 1:
        return arrived[0]
    sparse = [g for g in arrived if isinstance(g, IndexedSlices)]
    if len(sparse) == len(arrived):
        return _concat_slices(sparse)
    dense = [convert_to_tensor(g) for g in arrived]
    if method == AggregationMethod.EXPERIMENTAL_TREE:
        total = dense[0]
        for g in dense[1:]:
            total = b.add_n([total, g])
        return total
    if method == AggregationMethod.EXPERIMENTAL_ACCUMULATE_N:
        return b.add_n(dense)
    return _add_by_device(dense)


def _add_by_device(gradients: list[Tensor]) -> Tensor:
    """Sum gradients on the devices where they were computed, then the sums, as TensorFlow does: one
    tensor from each device has to be sent.
    """
    by_device: dict[str, list[Tensor]] = {}
    for g in gradients:
        by_device.setdefault(g.device, []).append(g)
    sums = []
    for here in by_device.values():
        first = here[0].op
        if len(here) == 1:
            sums += here
        elif first.device or first.graph.scope.colocation:
            with first.graph.colocate_with(first, ignore_existing=True):
                sums.append(b.add_n(here))
        else:
            sums.append(b.add_n(here))
    return sums[0] if len(sums) == 1 else b.add_n(sums)


def _concat_slices(parts: list[IndexedSlices]) -> IndexedSlices:
    """Concatenate the rows of several gradients of one tensor: repeated rows are summed when they
    are applied.
    """
    indices = [p.indices for p in parts]
    if len({i.dtype for i in indices}) > 1:
        indices = [b.cast(i, "int64") for i in indices]
    shape = next((p.dense_shape for p in parts if p.dense_shape is not None), None)
    return IndexedSlices(b.concat([p.values for p in parts], 0), b.concat(indices, 0), shape)
