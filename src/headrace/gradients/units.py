"""Branches and loops as units of a walk. In: the gradients of what comes out of one. Out: those of
what goes in, by a branch or loop of their own in the backward graph.

Seen from the context that a walk is in, everything inside a tf.cond or a tf.while_loop is one unit
with inputs and outputs. The gradient of a branch is computed in a branch on the same predicate. The
gradient of a loop is a loop that takes as many iterations, backwards: its variables are the
gradients of the loop's variables and what has been summed up for each invariant.

What the backward loop needs of the forward one is saved on a stack in each forward iteration and
popped in each backward one (`Backwards.AddValue`). Invariants need no saving; what is made in a
branch is first merged with a stand-in of the other, so that every iteration saves something.
Counters on both sides keep pushes and pops in order, even where iterations overlap: a push waits
for its iteration's count, and the next count for the push.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace.core import dtypes
from headrace.core.shapes import as_shape
from headrace.graph.composite import IndexedSlices
from headrace.graph.contexts import (
    CondContext,
    ControlFlowContext,
    WhileContext,
    output_context,
    switch,
)
from headrace.graph.flow import Flow
from headrace.graph.graph import Graph
from headrace.graph.inference import constant_value
from headrace.graph.operation import Operation, Tensor
from headrace.ops.convert import convert_to_tensor
from headrace.ops.define import b
from headrace.ops.while_loop import build_loop

__all__ = ["BranchUnit", "LoopUnit", "steering_gradient", "unit_of"]

Gradients = list[tuple[Tensor, Any]]
Differentiate = Callable[..., list[Any]]


def unit_of(op: Operation, base: ControlFlowContext | None) -> Any:
    """What an operation belongs to in a walk through `base`: itself, or a branch or loop inside of
    it. Units of the same branch or loop are equal.
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
    """The Switch from which both branches of a cond come."""
    return context.pivot.op._inputs[0].op


def steering_gradient(op: Operation, grads: Sequence[Any]) -> list[Any]:
    """The gradients of a steering operation by itself: in a walk inside its context, or outside any
    context.
    """
    flow, context = op.definition.flow, op._control_flow_context
    if flow is Flow.ENTER:
        return [grads[0]] if op._attrs["is_constant"] else [None]
    if flow is Flow.SWITCH:
        if isinstance(context, CondContext):
            return [grads[context.branch], None]
        if context is not None:
            return [None, None]  # a loop's own: the last iteration is none of this walk's
        sides = [g for g in grads if g is not None]
        return [b.merge_op(sides)[0] if len(sides) == 2 else sides[0] if sides else None, None]
    if flow is Flow.MERGE and not isinstance(context, WhileContext):
        (gradient, _), index = grads, op._outputs[1]
        if len(op._inputs) == 2 and gradient is not None:
            return list(switch(convert_to_tensor(gradient), b.equal(index, 1)))
    return [None] * len(op._inputs)


@contextmanager
def _inside(graph: Graph, context: ControlFlowContext | None) -> Iterator[None]:
    """Build in a context, whatever is open now."""
    with graph.control_dependencies(None):  # which leaves all contexts, until its end
        graph._set_control_flow_context(context)
        yield


@contextmanager
def _after(graph: Graph, t: Tensor) -> Iterator[None]:
    """Build what waits for a tensor of the same context."""
    context = graph._get_control_flow_context()
    with graph.control_dependencies([t]):
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
        """The contexts of the branches: of the false one, then of the true one."""
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
        """The gradients of what the branches take in, where any comes back."""
        contexts = self.contexts
        wanted = [t for t in self.inputs if walk.leads_back(t)]
        grads = {t: convert_to_tensor(g) for t, g in arrived.items()}
        if not wanted:
            return []

        def gradients_in(context: CondContext) -> list[Tensor]:
            inner = {t.op._inputs[0]: t for t in _captured(context, Flow.SWITCH)}
            ends = [(_end(t, context), g) for t, g in grads.items()]
            found = walk.inside(
                context,
                [(t, g) for t, g in ends if t is not None],
                [inner[t] for t in wanted if t in inner],
            )
            return [
                _missing(t, context)
                if found.get(inner.get(t)) is None
                else convert_to_tensor(found[inner[t]])
                for t in wanted
            ]

        by_branch = {c.branch: lambda c=c: gradients_in(c) for c in contexts}
        pred = contexts[0].pred
        results = b.cond(pred, by_branch[1], by_branch[0], strict=True, name="cond_grad")
        return list(zip(wanted, results, strict=True))


def _captured(context: ControlFlowContext, flow: Flow) -> list[Tensor]:
    """What stands inside a context for tensors from outside."""
    found = dict.fromkeys(context.external_values.values())
    return [
        t for t in found if t.op.definition.flow is flow and t.op._control_flow_context is context
    ]


def _end(t: Tensor, context: CondContext) -> Tensor | None:
    """Where the gradient of something that comes out of a cond enters one of its branches: at what
    a Merge takes from there, or, for what a later branch has read directly, at itself.
    """
    found = output_context(t.op)
    if found is not context.outer_context:
        return t if found is not None and context in found._chain() else None
    for value in t.op._inputs:
        if output_context(value.op) is context:
            return value
    return None


def _missing(t: Tensor, context: CondContext) -> Tensor:
    """Zeros where a branch has no gradient for what it takes in. What only the other branch of an
    earlier cond makes is dead here, and its gradient is not looked at.
    """
    found = output_context(t.op)
    dead = found is not context.outer_context and isinstance(found, CondContext)
    return _stand_in(t) if dead else zeros_for(t)


def _stand_in(t: Tensor) -> Tensor:
    """Something in the place of a tensor that isn't looked at: of its shape, if that is known."""
    return (
        zeros_for(t)
        if t.shape.is_fully_defined()
        else b.constant(_NOTHING[t.dtype is dtypes.string], t.dtype.base_dtype)
    )


_NOTHING = (0, "")


def _dense_or_zeros(gradient: Any, like: Tensor) -> Tensor:
    return zeros_for(like) if gradient is None else convert_to_tensor(gradient)


def zeros_for(t: Tensor) -> Tensor:
    """Zeros of the gradient of a tensor, or of the variable behind a handle."""
    state = getattr(t, "_handle_data", None)
    if state is not None:
        return b.zeros(state.shape, state.dtype)
    if t.shape.is_fully_defined():
        return b.zeros(t.shape.as_list(), t.dtype.base_dtype)
    return b.zeros_like(t)


# -- Loops -----------------------------------------------------------------------------------------


class _Counter(NamedTuple):
    """The variable of a loop that counts its iterations."""

    body: Tensor
    following: Tensor
    exit: Tensor


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
        """The gradients of what the loop starts from and of its invariants."""
        forward = self.context
        if not forward.back_prop:
            return []
        variables = [v for v in forward.loop_vars if walk.depends(v.body) or walk.depends(v.merge)]
        invariants = [t for t in _captured(forward, Flow.ENTER) if walk.depends(t)]
        popped = [s for s in saved_values(forward.graph) if output_context(s.popped.op) is forward]
        popped = [s for s in popped if walk.depends(s.popped)]
        start = [_dense_or_zeros(arrived.get(v.exit), v.exit) for v in variables]
        counter = _counter_of(forward)
        backward = Backwards(forward)
        sums: list[tuple[Tensor, list[Tensor], Any]] = []

        def body(count: Tensor, *grads: Tensor) -> list[Tensor]:
            backward.begin(count)
            ends = [(v.next.op._inputs[0], g) for v, g in zip(variables, grads, strict=True)]
            ends += [(s.value, backward.pop(walk.twins[s])) for s in _pushed(walk, forward)]
            inner = [v.body for v in variables]
            stops = [*(v.body for v in forward.loop_vars), *_captured(forward, Flow.ENTER)]
            stops += [s.popped for s in popped]
            xs = [*inner, *invariants, *(s.popped for s in popped)]
            found = walk.inside(forward, ends, xs, stops)
            for s in popped:
                if found.get(s.popped) is not None:
                    walk.twins[s] = backward.push(convert_to_tensor(found[s.popped]))
            for t in invariants:
                if found.get(t) is not None:
                    sums.append((t.op._inputs[0], *_sum_up(backward, t, found[t])))
            following = [
                g * 0 if found.get(t) is None else convert_to_tensor(found[t])
                for t, g in zip(inner, grads, strict=True)
            ]
            return [backward.following, *following]

        shapes = [counter.exit.shape, *(v.merge.shape for v in variables)]
        with forward.graph.control_dependencies(walk.ended):
            count = b.identity(counter.exit)
        results = build_loop(backward, lambda count, *_: count > 0, body, [count, *start], shapes)
        backward.finish(sums)
        if walk.is_outermost:
            walk.ended.append(results[0].op)
        starts = [v.enter.op._inputs[0] for v in variables]
        return [
            *zip(starts, results[1:], strict=True),
            *((t, pack(exits)) for t, exits, pack in sums),
        ]


class Saved(NamedTuple):
    """A value of a forward loop, which a push has saved for a pop in the loop that goes back."""

    value: Tensor
    popped: Tensor


def saved_values(graph: Graph) -> list[Saved]:
    """All that forward loops of a graph save: edges that no operation's inputs show."""
    return graph.__dict__.setdefault("_saved_values", [])


def _pushed(walk: Any, forward: WhileContext) -> list[Saved]:
    """What a loop has saved and has gradients for, of a walk through the loop that it's for."""
    return [s for s in walk.twins if output_context(s.value.op) is forward]


def _sum_up(
    backward: Backwards, invariant: Tensor, gradient: Any
) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    """Add up the gradients of an invariant over all iterations: rows of a sparse one side by side,
    others by value. Returns the exits of the sum's variables, and what makes a gradient of them.
    """
    outer = invariant.op._inputs[0]
    graph = outer.graph
    around = backward.outer_context
    if not isinstance(gradient, IndexedSlices):
        dense = convert_to_tensor(gradient)
        with _inside(graph, around):
            zeros = zeros_for(outer)
        total = backward.add_variable(zeros, lambda t: t + dense, dense.shape)
        return [total.exit], lambda exits: exits[0]
    values, indices = gradient.values, gradient.indices
    row = values.shape[1:]
    with _inside(graph, around):
        no_rows = b.zeros([0, *row.as_list()], values.dtype)
        no_indices = b.zeros([0], indices.dtype)
        shape = gradient.dense_shape if gradient.dense_shape is None else b.shape(outer)
    unknown = [None, *row.as_list()]
    rows = backward.add_variable(no_rows, lambda t: b.concat([t, values], 0), unknown)
    places = backward.add_variable(no_indices, lambda t: b.concat([t, indices], 0), [None])
    return [rows.exit, places.exit], lambda exits: IndexedSlices(*exits, shape)


def _counter_of(context: WhileContext) -> _Counter:
    """The counter of a forward loop, made at the first need. Counters of nested loops go one after
    the other, as everything that is saved does.
    """
    found = getattr(context, "_iteration_counter", None)
    if found is not None:
        return found
    graph, around = context.graph, context.outer_context
    loop = around.GetWhileContext() if around is not None else None
    outer = _counter_of(loop) if loop is not None else None
    with _inside(graph, around):
        zero = b.constant(0, dtypes.int32, name="f_count")
    if outer is not None and loop is around:
        zero.op._add_control_input(outer.body.op)
    variable = add_variable(context, zero, lambda t: t + 1, ())
    counter = _Counter(variable.body, variable.following, variable.exit)
    context._loop_exits.append(variable.exit)
    context._iteration_counter = counter  # type: ignore[attr-defined]
    if outer is not None and loop is not None:
        outer.following.op._add_control_input(_lifted(counter.exit, loop).op)
    return counter


class _Variable(NamedTuple):
    body: Tensor
    following: Tensor
    exit: Tensor


def add_variable(
    context: WhileContext, start: Tensor, update: Callable[[Tensor], Tensor], shape: Any
) -> _Variable:
    """Give a loop one more variable; `start` is in the context around it."""
    graph = context.graph
    with _inside(graph, context):
        enter = context.enter(start, is_constant=False)
        enter._shape = as_shape(shape)
        merge = b.merge_op([enter, enter])[0]
        assert context.pivot is not None
        leave, stay = switch(merge, context.pivot)
        body = b.identity(stay)
        following = update(body)
        merge.op._update_input(1, b.next_iteration_op(following))
        exit_ = b.exit_op(leave)
    context._loop_enters.append(enter)
    context.ExitResult([exit_])
    return _Variable(body, following, exit_)


class Backwards(WhileContext):
    """The loop that goes backwards through the iterations of `forward`."""

    def __init__(self, forward: WhileContext) -> None:
        super().__init__(
            forward.graph,
            forward.maximum_iterations,
            forward.parallel_iterations,
            forward.back_prop,
            forward.swap_memory,
        )
        self.forward: WhileContext = forward
        self.following: Any = None  # the count of the iteration that follows

    def begin(self, count: Tensor) -> None:
        """Start the body with the number of iterations that are left."""
        self._count = count
        self.following = count - 1

    def finish(self, sums: Sequence[tuple[Tensor, list[Tensor], Any]]) -> None:
        """After the loop is built: what was summed up leaves it too, and the loop around waits."""
        for _, exits, _ in sums:
            self._loop_exits += exits
        around = self.outer_context.GetWhileContext() if self.outer_context else None
        if isinstance(around, Backwards):
            around.following.op._add_control_input(_lifted(self._loop_exits[0], around).op)

    def add_variable(
        self, start: Tensor, update: Callable[[Tensor], Tensor], shape: Any
    ) -> _Variable:
        return add_variable(self, start, update, shape)

    def AddValue(self, val: Tensor) -> Tensor:
        if val.name not in self._values and self._is_forwards(val):
            self._external_values[val.name] = self._saved(val)
            self._values.add(val.name)
        return super().AddValue(val)

    def _is_forwards(self, value: Tensor) -> bool:
        """Whether a tensor has a value in each iteration of the forward loop."""
        context = output_context(value.op)
        return context is not None and self.forward in context._chain()

    def _saved(self, value: Tensor) -> Tensor:
        """The value of the forward iteration that this backward iteration is for."""
        op, graph = value.op, self.graph
        if op.definition.flow is Flow.ENTER and op._attrs["is_constant"]:
            return self.AddValue(op._inputs[0])
        constant = constant_value(value)
        if constant is not None:
            with _inside(graph, self):
                return b.constant(constant, value.dtype.base_dtype)
        dtype = value.dtype.base_dtype
        forward, counter = self.forward, _counter_of(self.forward)
        with _inside(graph, None):
            limit = b.constant(-1, dtypes.int32)
            handle = b.stack_v2(limit, dtype, name=f"{op.name.split('/')[-1]}/f_acc")
        lifted = _lifted(value, forward)
        with _inside(graph, forward), _after(graph, counter.body):
            push = b.stack_push_v2(handle, lifted, swap_memory=forward.swap_memory)
        counter.following.op._add_control_input(push.op)
        popped = self.pop(handle)
        popped.set_shape(value.shape)
        saved_values(graph).append(Saved(lifted, popped))
        return popped

    def pop(self, handle: Tensor) -> Tensor:
        """Take from a stack in each iteration."""
        with _inside(self.graph, self), _after(self.graph, self._count):
            popped = b.stack_pop_v2(handle, handle.op._attrs["elem_type"])
        self.following.op._add_control_input(popped.op)
        return popped

    def push(self, value: Tensor) -> Tensor:
        """Put something on a stack in each iteration; returns the stack's handle."""
        graph, dtype = self.graph, value.dtype.base_dtype
        with _inside(graph, None):
            handle = b.stack_v2(b.constant(-1, dtypes.int32), dtype, name="b_acc")
        with _inside(graph, self), _after(graph, self._count):
            push = b.stack_push_v2(handle, value, swap_memory=self.swap_memory)
        self.following.op._add_control_input(push.op)
        return handle


def _lifted(value: Tensor, level: ControlFlowContext | None) -> Tensor:
    """A tensor that stands for `value` in a context around its own: out of branches, merged with a
    stand-in that the other branch makes.
    """
    context = output_context(value.op)
    while context is not level:
        if not isinstance(context, CondContext):
            raise ValueError(f"{value.name} has no value outside of {context!r}")
        graph = value.graph
        other = BranchUnit(_fork(context), context.outer_context).contexts[1 - context.branch]
        with _inside(graph, other):
            stand_in = _stand_in(value)
        sides = [value, stand_in] if context.branch == 0 else [stand_in, value]
        with _inside(graph, context.outer_context):
            merged = b.merge_op(sides)[0]
        merged._shape = value._shape
        value, context = merged, context.outer_context
    return value
