"""Control-flow contexts: track the operations made inside a branch of tf.cond or a tf.while_loop.

While a context is open in a thread, `Graph.add_operation` passes it each new operation. The context
routes inputs from outside through a Switch (a branch) or an Enter (a loop), makes an operation
without inputs depend on the pivot, so that it runs only when its branch or iteration does, and
drops control inputs that would cross a loop's boundary.

Invariants: `op._control_flow_context` is the innermost context that the operation was made in; an
Exit belongs to its loop, its value to the loop's outer context. `values` holds the names of all
tensors that may be used directly inside; `external_values` maps the name of an outer tensor to its
counterpart inside. Method names are TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._src.core import source
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.operation import Operation, Tensor, made_at
from headrace._src.graph.scopes import control_inputs_for

if TYPE_CHECKING:
    from headrace._src.graph.definition import Definition
    from headrace._src.graph.graph import Graph

__all__ = [
    "CondContext",
    "ControlFlowContext",
    "LoopVariable",
    "WhileContext",
    "check_inputs",
    "enter",
    "make",
    "output_context",
    "switch",
]


class ControlFlowContext:
    """The base class of branches and loops."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self._name = name
        self._outer_context: ControlFlowContext | None = graph._get_control_flow_context()
        self._nested_contexts: list[ControlFlowContext] = []
        if self._outer_context is not None:
            self._outer_context._nested_contexts.append(self)
        self._stack: list[ControlFlowContext | None] = []
        self._values: set[str] = set()
        self._external_values: dict[str, Tensor] = {}

    @property
    def name(self) -> str:
        return self._name

    @property
    def outer_context(self) -> ControlFlowContext | None:
        return self._outer_context

    @property
    def values(self) -> set[str]:
        return self._values

    @property
    def external_values(self) -> dict[str, Tensor]:
        return self._external_values

    def Enter(self) -> None:
        """Make this the current thread's context, until Exit."""
        self._stack.append(self.graph._get_control_flow_context())
        self.graph._set_control_flow_context(self)

    def Exit(self) -> None:
        self.graph._set_control_flow_context(self._stack.pop())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enter, and Exit at the end of a with-block."""
        self.Enter()
        try:
            yield
        finally:
            self.Exit()

    def IsWhileContext(self) -> bool:
        return False

    def IsCondContext(self) -> bool:
        return False

    def GetWhileContext(self) -> WhileContext | None:
        """Return the innermost loop around this context, itself included."""
        return self._outer_context.GetWhileContext() if self._outer_context else None

    def GetControlPivot(self) -> Tensor | None:
        """Return the control input of operations that must run once per iteration."""
        return None

    def AddName(self, name: str) -> None:
        self._values.add(name)

    def ExitResult(self, result: Sequence[Tensor]) -> None:
        """Make results of this context usable in the outer one."""
        if self._outer_context is not None:
            for t in result:
                self._outer_context.AddName(t.name)

    def AddValue(self, val: Tensor) -> Tensor:
        """Return the counterpart of `val` inside this context."""
        raise NotImplementedError

    def count_value(self, val: Tensor) -> None:
        """Count the operations with which TensorFlow brings `val` in, where only TensorFlow needs
        it.
        """
        if self._outer_context is not None:
            self._outer_context.count_value(val)

    def count_shape(self, val: Tensor) -> None:
        """As above, for the shape of `val` if it isn't static."""
        if self._outer_context is not None:
            self._outer_context.count_shape(val)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Bring in values without counting them, because TensorFlow doesn't need them."""
        outer = nullcontext() if self._outer_context is None else self._outer_context.uncounted()
        with outer:
            yield

    def AddOp(self, op: Operation) -> None:
        """Adopt an operation that was made while this context was open."""
        raise NotImplementedError

    def _route_inputs(self, op: Operation) -> None:
        for i, t in enumerate(op._inputs):
            # The back edge of an imported loop: the Merge that it closes isn't known here yet.
            back = op.definition.flow is Flow.MERGE and t.op.definition.flow is Flow.NEXT
            inner = t if back else self.AddValue(t)
            if inner is not t:
                op._update_input(i, inner)

    def _drop_external_controls(self, op: Operation) -> list[Operation]:
        """Remove the control inputs from outside the innermost loop, and return them."""
        loop = self.GetWhileContext()
        if loop is None:
            return []
        dropped = [c for c in op._control_inputs if _loop_of(c) is not loop]
        if dropped:
            op._control_inputs = [c for c in op._control_inputs if c not in dropped]
        return dropped

    def _chain(self) -> Iterator[ControlFlowContext]:
        context: ControlFlowContext | None = self
        while context is not None:
            yield context
            context = context._outer_context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self._name}'>"


class CondContext(ControlFlowContext):
    """One branch of a tf.cond: `branch` is 1 where `pred` is true, 0 where it is false.

    `pivot` is a tensor that is alive only if the branch is taken.
    """

    border_nodes = 1  # how many operations TensorFlow makes to bring a value in

    def __init__(self, pred: Tensor, pivot: Tensor, branch: int, name: str | None = None) -> None:
        super().__init__(pred.graph, name or pred.graph.unique_name("cond_text"))
        self._pred = pred
        self._pivot = pivot
        self._branch = branch
        self._values |= {pred.name, pivot.name}
        self._external_values[pred.name] = pred
        pivot.op._set_control_flow_context(self)

    @property
    def pred(self) -> Tensor:
        return self._pred

    @property
    def pivot(self) -> Tensor:
        return self._pivot

    @property
    def branch(self) -> int:
        return self._branch

    def IsCondContext(self) -> bool:
        return True

    def AddValue(self, val: Tensor) -> Tensor:
        if val.name in self._values:
            return self._external_values.get(val.name, val)
        outer = self._outer(val)
        with (
            self.graph.counted_at_border(self.border_nodes),
            self.graph.control_dependencies(None),
        ):
            inner = switch(outer, self._pred)[self._branch]
        inner.op._set_control_flow_context(self)
        self.graph.prevent_fetching(inner.op)
        for context in self._chain():
            context.AddName(inner.name)
        self._external_values[val.name] = inner
        return inner

    def _outer(self, value: Tensor) -> Tensor:
        """Return the counterpart of `value` outside the branch, which a Switch routes into it."""
        self._values.add(value.name)
        if self._outer_context is None:
            return value
        outer = self._outer_context.AddValue(value)
        self._values.add(outer.name)
        self._external_values[outer.name] = outer
        return outer

    def AddOp(self, op: Operation) -> None:
        if op._inputs:
            self._route_inputs(op)
            self._drop_external_controls(op)
        else:
            self._drop_external_controls(op)
            if not any(self._contains(c) for c in op._control_inputs):
                op._control_inputs.append(self._pivot.op)
        for context in self._chain():
            context._values.update(t.name for t in op._outputs)
        if self._outer_context is not None or op.definition.flow is not Flow.EXIT:
            self.graph.prevent_fetching(op)

    def _contains(self, op: Operation) -> bool:
        context = op._control_flow_context
        return context is not None and self in context._chain()

    def result(self, value: Tensor) -> Tensor:
        """Return `value` as a result of the branch; it may come from outside."""
        if value.name in self._values:
            return self._external_values.get(value.name, value)
        outer = self._outer(value)
        inner = switch(outer, self._pred)[self._branch]
        self._external_values[value.name] = inner
        return inner


class LoopVariable(NamedTuple):
    """The primitives that one variable of a loop consists of."""

    enter: Tensor
    merge: Tensor
    switch: Operation
    body: Tensor  # the body's input
    next: Tensor
    exit: Tensor


class WhileContext(ControlFlowContext):
    """A tf.while_loop: the operations of its condition and its body, built once for all iterations.

    `pivot` is the loop's condition, `pivot_for_pred` is alive in each evaluation of the condition,
    `pivot_for_body` in each iteration of the body. `forward`, for a backward loop, is the loop
    whose gradient this one computes: values that it saved can be used here.
    """

    forward: WhileContext | None = None

    def __init__(
        self,
        graph: Graph,
        maximum_iterations: Tensor | None = None,
        parallel_iterations: int = 10,
        back_prop: bool = True,
        swap_memory: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(graph, name or graph.unique_name("while_context"))
        self._maximum_iterations = maximum_iterations
        self._parallel_iterations = parallel_iterations
        self._back_prop = back_prop
        self._swap_memory = swap_memory
        self._pivot: Tensor | None = None
        self._pivot_for_pred: Tensor | None = None
        self._pivot_for_body: Tensor | None = None
        self._loop_enters: list[Tensor] = []
        self._loop_exits: list[Tensor] = []

    @property
    def maximum_iterations(self) -> Tensor | None:
        return self._maximum_iterations

    @property
    def parallel_iterations(self) -> int:
        return self._parallel_iterations

    @property
    def back_prop(self) -> bool:
        return self._back_prop

    @property
    def swap_memory(self) -> bool:
        return self._swap_memory

    @property
    def frame_name(self) -> str:
        """The frame of its iterations; an imported loop keeps its original one."""
        enters = self._loop_enters
        return enters[0].op._attrs["frame_name"] if enters else self._name

    @property
    def pivot(self) -> Tensor | None:
        return self._pivot

    @property
    def pivot_for_pred(self) -> Tensor | None:
        return self._pivot_for_pred

    @property
    def pivot_for_body(self) -> Tensor | None:
        return self._pivot_for_body

    @property
    def loop_enters(self) -> list[Tensor]:
        return self._loop_enters

    @property
    def loop_exits(self) -> list[Tensor]:
        return self._loop_exits

    @property
    def loop_vars(self) -> list[LoopVariable]:
        """The loop's variables, in order, once it is built."""
        return [_loop_variable(t) for t in self._loop_exits]

    def IsWhileContext(self) -> bool:
        return True

    def GetWhileContext(self) -> WhileContext:
        return self

    def GetControlPivot(self) -> Tensor | None:
        return self._pivot_for_pred if self._pivot_for_body is None else self._pivot_for_body

    def AddValue(self, val: Tensor) -> Tensor:
        if val.name in self._values or val.op._control_flow_context is self:
            return self._external_values.get(val.name, val)
        self._values.add(val.name)
        outer = self._outer_context.AddValue(val) if self._outer_context else val
        with self.graph.counted_at_border(1):
            inner = self.enter(outer, is_constant=True)
        self._external_values[val.name] = inner
        return inner

    def count_value(self, val: Tensor) -> None:
        if val.name not in self._values and val.op._control_flow_context is not self:
            super().count_value(val)
            with self.graph.counted_at_border(1):
                pass

    def enter(self, outer: Tensor, is_constant: bool) -> Tensor:
        """Bring a tensor of the outer context into the loop."""
        with self.graph.control_dependencies(None):
            inner = enter(outer, self.frame_name, is_constant, self._parallel_iterations)
        self.graph.prevent_feeding(inner)
        self._values.add(inner.name)
        if not is_constant:
            self._wait_for_iteration(inner.op)
        self._adopt_enter(inner.op)
        return inner

    def _wait_for_iteration(self, op: Operation) -> None:
        """Make a loop that starts from an outer loop's invariant start once per outer iteration."""
        if not _is_invariant(op._inputs[0].op):
            return
        outer = self._outer_context._chain() if self._outer_context else ()
        pivots = (c.GetControlPivot() for c in outer)
        op._control_inputs += [p.op for p in pivots if p is not None][:1]

    def _adopt_enter(self, op: Operation) -> None:
        """Make an Enter into this loop, after the control dependencies around the loop."""
        scopes = self.graph.scope.controls
        wanted = control_inputs_for(scopes, {op._inputs[0].op})
        op._set_control_flow_context(self)
        op._add_control_inputs([c for c in wanted if self._is_just_outside(c)])
        for entry in scopes:
            entry.seen.add(op)

    def _is_just_outside(self, op: Operation) -> bool:
        """Return whether `op` is outside this loop, but inside the next enclosing loop."""
        found = output_context(op)
        context = self._outer_context
        loop = context.GetWhileContext() if context else None
        while context is not found:
            if context is None or context is loop:
                return False
            context = context._outer_context
        return True

    def AddOp(self, op: Operation) -> None:
        dropped: list[Operation]
        if op._inputs:
            self._route_inputs(op)
            dropped = self._drop_external_controls(op)
            # With only invariants as inputs, it would run before the loop's condition is known.
            is_free = not op._control_inputs and all(_is_invariant(t.op) for t in op._inputs)
        else:
            dropped = self._drop_external_controls(op)
            is_free = not op._control_inputs
        pivot = self.GetControlPivot()
        if is_free and pivot is not None:
            op._control_inputs.append(pivot.op)
        self._values.update(t.name for t in op._outputs)
        self._wait_for_outer(op, dropped)
        if self._outer_context is not None or op.definition.flow is not Flow.EXIT:
            self.graph.prevent_fetching(op)
            for t in op._outputs:
                self.graph.prevent_feeding(t)

    def _wait_for_outer(self, op: Operation, dropped: list[Operation]) -> None:
        """Wait for operations outside the loop by bringing in their values, since control edges
        can't enter a frame.
        """
        sources = [c._outputs[0] for c in dropped if c._outputs]
        if not sources:
            return
        with self.graph.control_dependencies(None), self.entered():
            op._control_inputs += [make(self.graph, "Identity", [t]) for t in sources]


def _loop_variable(exit_: Tensor) -> LoopVariable:
    left = exit_.op._inputs[0].op
    merge = left._inputs[0]
    back = merge.op._inputs[1]
    body = next(op for op in left._outputs[1]._consumers if op._control_flow_context is not None)
    return LoopVariable(merge.op._inputs[0], merge, left, body._outputs[0], back, exit_)


def _is_invariant(op: Operation) -> bool:
    return op.definition.flow is Flow.ENTER and bool(op._attrs["is_constant"])


def output_context(op: Operation) -> ControlFlowContext | None:
    """Return the context of an operation's outputs: an Exit's are outside its loop."""
    context = op._control_flow_context
    if context is not None and op.definition.flow is Flow.EXIT:
        return context.outer_context
    return context


def _loop_of(op: Operation) -> WhileContext | None:
    context = output_context(op)
    return None if context is None else context.GetWhileContext()


def check_inputs(
    definition: Definition,
    name: str,
    inputs: Sequence[Tensor],
    context: ControlFlowContext | None,
) -> None:
    """Raise ValueError if an operation in `context` takes a value from a loop that it isn't in."""
    own = context.GetWhileContext() if context else None
    around = set(own._chain()) if own else set()
    forwards = {c.forward for c in around if isinstance(c, WhileContext) and c.forward}
    if context is None and definition.flow in (Flow.ENTER, Flow.SWITCH):
        return  # contexts make these at their boundaries, outside any context
    allowed = {None, *around, *(c for forward in forwards for c in forward._chain())}
    for t in inputs:
        found = _loop_of(t.op)
        if found not in allowed:
            why = (
                "they are in different while loops" if own else f"'{t.op.name}' is in a while loop"
            )
            raise ValueError(
                f"Cannot use '{t.op.name}' as input to '{name}' because {why}.{made_at(t.op)}"
                + source.here(f"'{name}' was to be made at")
            )


# -- The primitives that borders consist of --------------------------------------------------------


def make(graph: Graph, op_type: str, inputs: list[Tensor], **attrs: Any) -> Operation:
    """Add an operation named after its type."""
    name = graph.unique_name(op_type)
    with graph._swap("name", name):
        return graph.create_op(op_type, inputs, name=f"{name}/", attrs=attrs)


def switch(data: Tensor, pred: Tensor, name: str = "Switch") -> list[Tensor]:
    """Return the (false, true) outputs of a Switch that is colocated with its data."""
    graph = data.graph
    op_type = "RefSwitch" if data.dtype._is_ref_dtype else "Switch"
    with graph.colocate_with(data, ignore_existing=True):
        return graph.create_op(op_type, [data, pred], name=name)._outputs


def enter(data: Tensor, frame_name: str, is_constant: bool, parallel_iterations: int) -> Tensor:
    """Return `data` inside a frame: in its first iteration, or in all of them."""
    graph = data.graph
    attrs = {
        "frame_name": frame_name,
        "is_constant": is_constant,
        "parallel_iterations": parallel_iterations,
    }
    if not data.dtype._is_ref_dtype:
        return graph.create_op("Enter", [data], name="Enter", attrs=attrs)._outputs[0]
    with graph.colocate_with(data):
        return graph.create_op("RefEnter", [data], attrs=attrs)._outputs[0]
