"""Branches and loops as units of a walk. In: the gradients of a unit's outputs. Out: those of its
inputs, computed by a branch or loop in the backward graph.

Seen from the context of a walk, everything inside a tf.cond or a tf.while_loop is one unit with
inputs and outputs. The gradient of a branch is computed in a branch on the same predicate. The
gradient of a loop is a loop with as many iterations, in reverse: its variables are the gradients of
the loop's variables and the sums for each invariant.

Values that the backward loop needs from the forward one are saved in a list: a variable of the
forward loop, to which each iteration appends a tensor's value, and of the backward loop, which pops
it (`Backwards.AddValue`). Everything is in the graph, so that gradient loops have gradients
themselves, and a list of an inner loop is saved in one of the outer loop. Invariants need no
saving; a value from a branch is first merged with a placeholder value from the other branch, so
that every iteration saves something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.gradients.counts import (
    Stacks,
    backward_loop,
    invariant_behind,
    loop_nodes,
    merge_nodes,
    sum_nodes,
    switch_nodes,
    zeros_nodes,
)
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.contexts import (
    CondContext,
    ControlFlowContext,
    WhileContext,
    output_context,
    switch,
)
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.definition import Kind
from headrace._src.graph.graph import Graph
from headrace._src.graph.inference import known_value, partial_value
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.lowering.list_anchors import SWAP_MEMORY
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.cond import open_branches, record_branches
from headrace._src.ops.control.while_loop import build_loop
from headrace._src.ops.state.resource_variable_ops import handle_data

__all__ = ["BranchUnit", "LoopUnit", "steering_gradient", "unit_of"]

Gradients = list[tuple[Tensor, Any]]


def unit_of(op: Operation, base: ControlFlowContext | None) -> Any:
    """Return the unit of an operation in a walk through `base`: itself, or a branch or loop inside
    `base`. Units of the same branch or loop are equal.
    """
    if op.definition.flow is Flow.MERGE:
        for t in op._inputs:
            context = output_context(t.op)
            if isinstance(context, CondContext) and context.outer_context is base:
                return BranchUnit(_fork(context), base)
    context = op._control_flow_context
    while context is not None and context is not base:
        if context.outer_context is base:
            if isinstance(context, CondContext):
                return BranchUnit(_fork(context), base)
            assert isinstance(context, WhileContext)
            return LoopUnit(context)
        context = context.outer_context
    return op


def _fork(context: CondContext) -> Operation:
    """Return the Switch from which both branches of a cond come."""
    return context.pivot.op._inputs[0].op


def steering_gradient(op: Operation, grads: Sequence[Any]) -> list[Any]:
    """Return the gradients of a single control-flow operation: in a walk inside its context, or
    outside any context.
    """
    flow, context = op.definition.flow, op._control_flow_context
    if flow is Flow.ENTER:
        return [grads[0]] if op._attrs["is_constant"] else [None]
    if flow is Flow.SWITCH:
        if isinstance(context, CondContext):
            return [grads[context.branch], None]
        if context is not None:
            return [None, None]  # of the loop itself: the last iteration isn't part of this walk
        return [_switched_back(op, grads), None]
    if flow is Flow.MERGE and not isinstance(context, WhileContext):
        (gradient, _), index = grads, op._outputs[1]
        if len(op._inputs) == 2 and gradient is not None:
            return list(switch(convert_to_tensor(gradient), b.equal(index, 1)))
    return [None] * len(op._inputs)


def _switched_back(op: Operation, grads: Sequence[Any]) -> Any:
    """Return the gradient for the input of a single Switch: that of the live side, or zero if that
    side has none.
    """
    if all(g is None for g in grads):
        return None
    data, pred = op._inputs
    sides = [b.zeros_like(data) if g is None else convert_to_tensor(g) for g in grads]
    return b.merge_op([switch(g, pred)[i] for i, g in enumerate(sides)])[0]


@contextmanager
def _inside(graph: Graph, context: ControlFlowContext | None) -> Iterator[None]:
    """Build in a context, whatever the current one is."""
    with graph.control_dependencies(None):  # leaves all contexts while it lasts
        graph._set_control_flow_context(context)
        yield


# -- Branches --------------------------------------------------------------------------------------


class BranchUnit:
    """Both branches of a cond, in a walk through the context around them."""

    def __init__(self, fork: Operation, base: ControlFlowContext | None) -> None:
        self._fork = fork
        self._base = base

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BranchUnit) and self._fork is other._fork

    def __hash__(self) -> int:
        return hash(self._fork)

    @property
    def contexts(self) -> list[CondContext]:
        """The contexts of the branches: the false one, then the true one."""
        found: dict[int, CondContext] = {}
        for t in self._fork._outputs:
            for pivot in t._consumers:
                context = pivot._control_flow_context
                if isinstance(context, CondContext) and context.pivot.op is pivot:
                    found[context.branch] = context
        return [found[branch] for branch in sorted(found)]

    @property
    def inputs(self) -> list[Tensor]:
        found = (t for c in self.contexts for t in _captured(c, Flow.SWITCH))
        return list(dict.fromkeys(t.op._inputs[0] for t in found))

    def differentiate(self, walk: Any, arrived: dict[Tensor, Any]) -> Gradients:
        """Return the gradients of the branches' inputs, where there are any."""
        wanted = [t for t in self.inputs if walk.leads_back(t)]
        if not wanted:
            return []
        grads = {t: convert_to_tensor(g) for t, g in arrived.items()}
        graph = self._fork.graph
        with name_scope("cond_grad"), graph.counted_as(borders=False) as counted:
            counted.count += merge_nodes(self.contexts[0], grads, walk.is_gated)
            pred, pivots = open_branches(self.contexts[0].pred)
            sides = []
            for forward in reversed(self.contexts):
                around = BackwardBranch(pred, pivots[forward.branch], forward.branch)
                with around.entered():
                    before = graph._last_id
                    found = _gradients_in(forward, walk, grads, wanted)
                    counted.count += graph._last_id - before
                sides.append(_Side(forward, around, found))
            record_branches(*(side.context for side in sides))
            reached = [t for t in wanted if any(t in side.gradients for side in sides)]
            for t in reached:
                found = [side.gradients[t] for side in sides if t in side.gradients]
                counted.count += sum(switch_nodes(t, gradient) for gradient in found)
                walk.expect(t, len(found) - 1)
            return [(t, _joined(t, sides[::-1])) for t in reached]


class BackwardBranch(CondContext):
    """A branch of the backward graph. TensorFlow has none, and uses the forward branch's values."""

    border_nodes = 0

    def AddOp(self, op: Operation) -> None:
        loop = backward_loop(op.graph)
        if loop is None:
            return super().AddOp(op)
        with loop.stacks.shape_of(op):
            super().AddOp(op)

    def AddValue(self, val: Tensor) -> Tensor:
        self.count_value(val)
        return super().AddValue(val)


class _Side(NamedTuple):
    """A branch of the backward graph, and the gradients it computed for tensors outside the forward
    branch.
    """

    forward: CondContext
    context: CondContext
    gradients: dict[Tensor, Any]

    def leave(self, make: Callable[[], list[Any]]) -> list[Tensor]:
        """Return tensors of the branch for use in a Merge after it."""
        with self.context.entered():
            made = [self.context.result(convert_to_tensor(t)) for t in make()]
        self.context.ExitResult(made)
        return made


def _gradients_in(
    forward: CondContext, walk: Any, grads: dict[Tensor, Tensor], wanted: list[Tensor]
) -> dict[Tensor, Any]:
    """Return one branch's gradients for tensors around it, given those of its results."""
    inner = {t.op._inputs[0]: t for t in _captured(forward, Flow.SWITCH)}
    ends = [(_end(t, forward), g) for t, g in grads.items()]
    ends = [(t, g) for t, g in ends if t is not None]
    found = walk.inside(forward, ends, [inner[t] for t in wanted if t in inner])
    return {t: found[inner[t]] for t in wanted if inner.get(t) in found}


def _joined(t: Tensor, sides: Sequence[_Side]) -> Any:
    """Return the gradient of a tensor from both branches: sparse, unless one of them is dense."""
    found = [side.gradients.get(t) for side in sides]
    rows = [g for g in found if g is not None]
    if not all(isinstance(g, IndexedSlices) for g in rows):
        dense = [
            side.leave(lambda g=g, side=side: [_missing(t, side) if g is None else g])
            for g, side in zip(found, sides, strict=True)
        ]
        return b.merge_op([part for (part,) in dense])[0]
    dtype = rows[0].indices.dtype if len({g.indices.dtype for g in rows}) == 1 else dtypes.int64
    parts = [
        side.leave(lambda g=g: _rows(t, g, rows[0].values, dtype))
        for g, side in zip(found, sides, strict=True)
    ]
    values, indices = (b.merge_op(pair)[0] for pair in zip(*parts, strict=True))
    shape = None if all(g.dense_shape is None for g in rows) else _shape_of(t)
    return IndexedSlices(values, indices, shape)


def _rows(t: Tensor, gradient: IndexedSlices | None, like: Tensor, dtype: Any) -> list[Tensor]:
    """Return the rows of a gradient and their indices: none if there is no gradient."""
    if gradient is None:
        return [_no_rows(t, like), b.zeros([0], dtype)]
    return [gradient.values, b.cast(gradient.indices, dtype)]


def _no_rows(t: Tensor, like: Tensor) -> Tensor:
    """Return an empty set of rows for a tensor whose other gradient is `like` this."""
    row = like.shape[1:]
    if row.is_fully_defined():
        return b.zeros([0, *row.as_list()], like.dtype)
    return b.zeros(b.concat([[0], _shape_of(t)[1:]], 0), like.dtype)


def _captured(context: ControlFlowContext, flow: Flow) -> list[Tensor]:
    """Return the tensors inside a context that correspond to tensors from outside."""
    found = dict.fromkeys(context.external_values.values())
    return [
        t for t in found if t.op.definition.flow is flow and t.op._control_flow_context is context
    ]


def _end(t: Tensor, context: CondContext) -> Tensor | None:
    """Return where the gradient of a cond's result enters one of its branches: at the Merge's input
    from that branch or, if a later branch read the tensor directly, at the tensor itself.
    """
    found = output_context(t.op)
    if found is not context.outer_context:
        return t if found is not None and context in found._chain() else None
    for value in t.op._inputs:
        if output_context(value.op) is context:
            return value
    return None


def _missing(t: Tensor, side: _Side) -> Tensor:
    """Return zeros where a branch has no gradient for an input. A tensor that only the other branch
    of an earlier cond makes is dead here, and its gradient is not used.
    """
    found = output_context(t.op)
    dead = found is not side.forward.outer_context and isinstance(found, CondContext)
    return _stand_in(t) if dead else zeros_for(t)


def _stand_in(t: Tensor) -> Tensor:
    """Return a value to replace a tensor that isn't used, of its shape as far as known."""
    dtype = t.dtype.base_dtype
    if dtype is dtypes.variant:
        return b.empty_tensor_list(-1, -1, dtype)
    if dtype is dtypes.resource:
        return b.stack_v2(0, dtypes.float32)
    return b.zeros([1 if n is None else n for n in t.shape.sizes or ()], dtype)


def _dense_or_zeros(gradient: Any, like: Tensor) -> Tensor:
    return zeros_for(like) if gradient is None else convert_to_tensor(gradient)


def zeros_for(t: Tensor) -> Tensor:
    """Return zeros for the gradient of a tensor, or of the variable behind a handle."""
    if t.dtype is dtypes.resource:
        state = handle_data(t)
        if state is None:
            raise ValueError(f"{t.name} has no gradient: its variable is unknown")
        known = state.shape.is_fully_defined()
        return b.zeros(state.shape.as_list() if known else b.variable_shape(t), state.dtype)
    if t.shape.is_fully_defined() and t.dtype is not dtypes.variant:
        return b.zeros(t.shape.as_list(), t.dtype.base_dtype)
    return b.zeros_like(t)


def _shape_of(t: Tensor) -> Tensor:
    """Return the shape of the gradient of a tensor, or of the variable behind a handle."""
    return b.variable_shape(t) if t.dtype is dtypes.resource else b.shape(t)


# -- Loops -----------------------------------------------------------------------------------------


class LoopUnit:
    """A loop, in a walk through the context around it."""

    def __init__(self, context: WhileContext) -> None:
        self.context = context

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoopUnit) and self.context is other.context

    def __hash__(self) -> int:
        return hash(self.context)

    @property
    def inputs(self) -> list[Tensor]:
        inner = [*self.context.loop_enters, *_captured(self.context, Flow.ENTER)]
        return list(dict.fromkeys(t.op._inputs[0] for t in inner))

    def differentiate(self, walk: Any, arrived: dict[Tensor, Any]) -> Gradients:
        """Return the gradients of the loop's initial values and of its invariants."""
        forward = self.context
        if not forward.back_prop:
            return []
        variables = [v for v in forward.loop_vars if walk.is_between(v.merge)]
        inner = [v.body for v in variables]
        invariants = [t for t in _captured(forward, Flow.ENTER) if walk.is_between(t)]
        backward = Backwards(forward)
        sums: list[_Sum] = []
        with forward.graph.counted_as(borders=False) as counted:
            counted.count += loop_nodes(backward, variables, arrived, walk.is_gated)

            def body(count: Tensor, *grads: Tensor) -> list[Tensor]:
                ends = [(v.next.op._inputs[0], g) for v, g in zip(variables, grads, strict=True)]
                stops = [*(v.body for v in forward.loop_vars), *_captured(forward, Flow.ENTER)]
                before = forward.graph._last_id
                found = walk.inside(forward, ends, [*inner, *invariants], stops)
                counted.count += forward.graph._last_id - before
                for t in invariants:
                    if t in found:
                        counted.count += sum_nodes(backward, found[t])
                        sums.append(_sum_up(backward, t, found[t]))
                counted.count += sum(zeros_nodes(t) for t in inner if t not in found)
                following = [
                    convert_to_tensor(found[t]) if t in found else _zeros_in(forward, t)
                    for t in inner
                ]
                return [count - 1, *following]

            start = [_dense_or_zeros(arrived.get(v.exit), v.exit) for v in variables]
            count = _count_of(forward)
            shapes = [count.shape, *(v.merge.shape for v in variables)]
            test, begin = lambda count, *_: count > 0, [count, *start]
            results = build_loop(backward, test, body, begin, shapes)
        starts = [v.enter.op._inputs[0] for v in variables]
        return [
            *zip(starts, results[1:], strict=True),
            *((each.of, each.gradient()) for each in sums),
        ]


def _zeros_in(forward: WhileContext, t: Tensor) -> Tensor:
    """Return zeros like a tensor of each forward iteration; only its shape is saved."""
    if t.shape.is_fully_defined() or t.dtype is dtypes.variant:
        return zeros_for(t)
    with _inside(forward.graph, forward):
        shape = b.shape(t)
    return b.zeros(shape, t.dtype.base_dtype)


class _Sum(NamedTuple):
    """The sum of an invariant's gradients as it leaves the loop, for a tensor around the loop."""

    of: Tensor
    parts: list[Tensor]
    shape: Tensor | None  # of the whole, if the parts are those of a sparse gradient

    def gradient(self) -> Any:
        if len(self.parts) == 1:
            return self.parts[0]
        values, indices = self.parts
        return IndexedSlices(values, indices, self.shape)


def _sum_up(backward: Backwards, invariant: Tensor, gradient: Any) -> _Sum:
    """Sum the gradients of an invariant over all iterations: rows of a sparse one are concatenated,
    others added.
    """
    outer = invariant.op._inputs[0]
    around = backward.outer_context
    if not isinstance(gradient, IndexedSlices):
        dense = convert_to_tensor(gradient)
        with _inside(outer.graph, around):
            zeros = zeros_for(outer)
        total = add_variable(backward, zeros, lambda t: t + dense, dense.shape)
        return _Sum(outer, [total.exit], None)
    values, indices = gradient.values, gradient.indices
    rows_of = TensorShape((None,)).concatenate(values.shape[1:])
    with _inside(outer.graph, around):
        no_rows = _no_rows(outer, values)
        no_indices = b.zeros([0], indices.dtype)
        shape = None if gradient.dense_shape is None else _shape_of(outer)
    rows = add_variable(backward, no_rows, lambda t: b.concat([t, values], 0), rows_of)
    places = add_variable(backward, no_indices, lambda t: b.concat([t, indices], 0), [None])
    return _Sum(outer, [rows.exit, places.exit], shape)


def _count_of(context: WhileContext) -> Tensor:
    """Return a loop's iteration count, by a loop variable that is added on first use."""
    found = getattr(context, "_iteration_count", None)
    if found is None:
        with _inside(context.graph, context.outer_context):
            zero = b.constant(0, dtypes.int32, name="f_count")
        found = add_variable(context, zero, lambda t: t + 1, ()).exit
        context._iteration_count = found  # type: ignore[attr-defined]
    return found


def _all_of(context: WhileContext, value: Tensor) -> Tensor:
    """Return the list of a tensor's values in each iteration of a loop, as it leaves the loop."""
    known: dict[Tensor, Tensor] = context.__dict__.setdefault("_saved", {})
    if value not in known:
        with _inside(context.graph, context.outer_context):
            empty = b.empty_tensor_list(-1, -1, value.dtype.base_dtype, name="f_acc")
        if context.swap_memory:
            empty.op._set_attr(SWAP_MEMORY, True)
        variable = add_variable(context, empty, lambda t: b.tensor_list_push_back(t, value), ())
        known[value] = variable.exit
    return known[value]


class _Variable(NamedTuple):
    body: Tensor
    exit: Tensor


def add_variable(
    context: WhileContext, start: Tensor, update: Callable[[Tensor], Tensor], shape: Any
) -> _Variable:
    """Add a variable to a loop, which starts from a tensor around it."""
    graph = context.graph
    if context.outer_context is not None:
        start = context.outer_context.AddValue(start)
    with _inside(graph, context):
        enter = context.enter(start, is_constant=False)
        enter._shape = as_shape(shape)
        merge = b.merge_op([enter, enter])[0]
        assert context.pivot is not None
        leave, stay = switch(merge, context.pivot)
        body = b.identity(stay)
        merge.op._update_input(1, b.next_iteration_op(update(body)))
        exit_ = b.exit_op(leave)
    context._loop_enters.append(enter)
    context._loop_exits.append(exit_)
    context.ExitResult([exit_])
    return _Variable(body, exit_)


class Backwards(WhileContext):
    """The loop that runs backwards through the iterations of `forward`."""

    def __init__(self, forward: WhileContext) -> None:
        super().__init__(
            forward.graph,
            forward.maximum_iterations,
            forward.parallel_iterations,
            forward.back_prop,
            forward.swap_memory,
        )
        self.forward: WhileContext = forward
        self.stacks = Stacks(self)

    def AddOp(self, op: Operation) -> None:
        with self.stacks.shape_of(op):
            super().AddOp(op)

    def AddValue(self, val: Tensor) -> Tensor:
        self.count_value(val)
        with self.graph.counted_at_border(0):
            if val.name not in self._values and self.is_forwards(val):
                self._external_values[val.name] = self._saved(val)
                self._values.add(val.name)
            return super().AddValue(val)

    def count_value(self, val: Tensor) -> None:
        nodes = self.stacks.nodes_of(val)
        with self.graph.counted_at_border(nodes):
            pass

    def count_shape(self, val: Tensor) -> None:
        if not self.is_forwards(val):
            super().count_shape(val)
            return
        with self.graph.counted_at_border(self.stacks.push_shape(val)):
            pass

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        with super().uncounted(), self.stacks.quiet():
            yield

    def is_forwards(self, value: Tensor) -> bool:
        """Whether a tensor has a value in each iteration of the forward loop."""
        context = output_context(value.op)
        return context is not None and self.forward in context._chain()

    def _saved(self, value: Tensor) -> Tensor:
        """Return a tensor's value in the forward iteration that this backward iteration
        belongs to.
        """
        source = invariant_behind(value.op)
        if source is not None:
            return self.AddValue(source._inputs[0])
        constant = known_value(value)
        if constant is not None:
            with _inside(self.graph, self):
                return b.constant(constant, value.dtype.base_dtype)
        if _is_known_in_part(value):
            return self._again(value)
        popped: list[Tensor] = []

        def pop(values: Tensor) -> Tensor:
            rest, last = b.tensor_list_pop_back(values, -1, value.dtype.base_dtype)
            popped.append(last)
            return rest

        add_variable(self, _all_of(self.forward, _lifted(value, self.forward)), pop, ())
        popped[0].set_shape(value.shape)
        return popped[0]

    def _again(self, value: Tensor) -> Tensor:
        """Rebuild a tensor from values that are saved and values that needn't be."""
        op, graph = value.op, self.graph
        inputs = [self.AddValue(t) for t in op._inputs]
        with _inside(graph, self):
            name = graph.unique_name(op.type)
            made = graph.add_operation(op.definition, inputs, dict(op._attrs), name)
        return made._outputs[value.value_index]


def _is_known_in_part(value: Tensor) -> bool:
    """Whether a tensor is computed from constants and other numbers only, as the index of `x[i,
    1:3]`.
    """
    if value.op.definition.kind is not Kind.MOVEMENT:
        return False
    known = partial_value(value)
    return known is not None and any(v is not None for v in known.ravel().tolist())


def _lifted(value: Tensor, level: ControlFlowContext | None) -> Tensor:
    """Return a tensor for `value` in a context around its own: outside branches it is merged with a
    placeholder value from the other branch.
    """
    context = output_context(value.op)
    while context is not level:
        if not isinstance(context, CondContext):
            raise ValueError(f"{value.name} has no value outside of {context!r}")
        graph = value.graph
        other = BranchUnit(_fork(context), context.outer_context).contexts[1 - context.branch]
        with _inside(graph, other):
            stand_in = _stand_in(value)
        context.ExitResult([value, stand_in])
        sides = [value, stand_in] if context.branch == 0 else [stand_in, value]
        with _inside(graph, context.outer_context):
            merged = b.merge_op(sides)[0]
        merged._shape = value._shape
        value, context = merged, context.outer_context
    return value
