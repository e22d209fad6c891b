"""A region of an XLA device as a kernel. In: arrays and references to variables. Out: the region's
outputs, JAX arrays.

The region is one pure function under jax.jit: variables are arguments, and their new values are
results, which replace the old ones under the variables' locks, all or none. A written variable's
array is given to the function (donated), which then updates it in place. Where an op has to report
an error, the function gives variables their old values, and the nodes' own kernels run from these
and say what is wrong. Re-entrant.

JAX is imported by the first call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from operator import methodcaller
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype, resource
from headrace._src.core.errors import OpError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.resources import ResourceHandle
from headrace._src.devices.variable_state import VariableState, in_order
from headrace._src.graph.control_roles import DEAD
from headrace._src.graph.dataflow import Node, Value, variable_type
from headrace._src.graph.definition import Effect, asks_for_step
from headrace._src.graph.run_nodes import run_nodes
from headrace._src.graph.structured import is_loop, parts_of
from headrace._src.lowering.references import is_reference, writes_of
from headrace._src.lowering.rules import Pass, Update
from headrace._src.xla.list_plan import plan_lists
from headrace._src.xla.swapping import report_swapping
from headrace._src.xla.table import on_host

__all__ = ["XlaCluster"]

_ACQUIRE, _RELEASE = methodcaller("acquire"), methodcaller("release")


class _Variable:
    """How a region uses one variable. `needed`: it must have a value before."""

    def __init__(self, reference: Value, op: Any, needed: bool) -> None:
        known = variable_type(reference)
        assert known is not None
        self.dtype = as_dtype(known[0])
        self.shape = known[1]
        self.op = op
        self.needed = needed
        self.written = False

    def find(self, reference: Any, ctx: Any) -> Any:
        """Return the state that a reference or a handle refers to."""
        if reference is DEAD:  # only a branch that isn't taken would use it
            state = VariableState("", self.dtype, TensorShape.of(self.shape))
            state.assign(np.zeros(self.shape, self.dtype.numpy))
            return state
        if not isinstance(reference, ResourceHandle):
            return reference
        if self.needed:
            return ctx.find(reference)
        device = ctx.resources.device(reference.device)
        return ctx.resources.get_or_create(
            reference.device,
            reference.container,
            reference.name,
            VariableState,
            lambda: device.variable(reference.name, self.dtype, TensorShape(None)),
        )

    def array(self, state: Any) -> Any:
        """Return the variable's value for a call; call with its lock held."""
        array = getattr(state, "array", None)
        if array is not None and state.sizes == self.shape:
            return array
        if not self.needed and not state.is_initialized:
            zeros = np.zeros(self.shape, self.dtype.numpy)
            if hasattr(state, "hold"):
                state.hold(zeros.nbytes)
            return zeros
        try:
            array = _array(state)
        except OpError as error:
            if error.op is None:
                error._op = self.op
            raise
        if array.shape != self.shape:
            raise ValueError(
                f"variable {state.name} has shape {list(array.shape)}; the graph says "
                f"{list(self.shape)}"
            )
        return array


def _array(state: Any) -> Any:
    on_device = getattr(state, "on_device", None)
    if on_device is not None:
        return on_device()
    # A variable of another device, or a generator: it keeps its memory.
    return np.array(state.look() if isinstance(state, VariableState) else state.writable())


def _store(state: Any, array: Any, sizes: tuple[int, ...]) -> None:
    adopt = getattr(state, "adopt_array", None)
    if adopt is not None:
        adopt(array, sizes)
    elif isinstance(state, VariableState):
        state.assign(np.asarray(array))
    else:
        np.copyto(state.writable(), np.asarray(array))


class XlaCluster:
    """A region's function with everything that a call must check.

    inputs: the values that it takes; references: the variables, in the order of their first use.
    A call's `values` are those of both, in this order.
    """

    is_silent = True  # NumPy does no arithmetic here, so it has no overflow to report

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> None:
        self.nodes = _live(nodes, outputs)
        self.outputs = list(outputs)
        self.inputs: list[Value] = []
        self.references: list[Value] = []
        self._roots: dict[Value, Value] = {}
        self._variables: dict[Value, _Variable] = {}
        self._find_inputs()
        self.lists = plan_lists(self.nodes)
        used = [self._variables[r] for r in self.references]
        self._used = used
        self._written = [i for i, v in enumerate(used) if v.written]
        self.effect = (
            Effect.WRITES if self._written else Effect.READS if self.references else Effect.PURE
        )
        self.has_loops = any(map(is_loop, self.nodes))
        self.asks_for = ("ctx", "step") if any(map(asks_for_step, self.nodes)) else ("ctx",)
        self._handles = any(r.dtype is resource for r in self.references)
        self._shapes = [v.shape for v in used]
        self._function: Callable[..., Any] | None = None
        self._order: tuple[list[Any], list[Any]] = [], []

    def reference(self, value: Value) -> Value:
        """Return the reference that enters the region for the same variable."""
        return self._roots.get(value, value)

    def _find_inputs(self) -> None:
        inside = set(self.nodes)
        seen: set[Value] = set()

        def enter(value: Value, node: Node | None) -> None:
            if is_reference(value):
                return  # `_use` finds those
            known = value.constant is not None or value.producer in inside
            if not known and value not in seen:
                seen.add(value)
                self.inputs.append(value)

        for node in self.nodes:
            passes = isinstance(node.definition.lower, Pass)
            for value in node.inputs:
                enter(value, node)
                if is_reference(value) and not passes:
                    self._use(value, node)
            for value in writes_of(node):
                self._variables[self.reference(value)].written = True
            for given, got in zip(node.inputs, node.outputs, strict=False):
                if is_reference(got) and is_reference(given):
                    self._roots[got] = self.reference(given)
        for value in self.outputs:
            enter(value, None)

    def _use(self, value: Value, node: Node) -> None:
        root = self.reference(value)
        if root not in self._variables:
            rule = node.definition.lower
            needed = not (isinstance(rule, Update) and rule.initializes)
            self._variables[root] = _Variable(value, node.origin, needed)
            self.references.append(root)

    def __str__(self) -> str:
        """The nodes, one a line."""
        return "\n".join(map(str, self.nodes))

    # -- Calls -------------------------------------------------------------------------------------

    def __call__(self, values: Sequence[Any], *, ctx: Any, step: Any = None) -> list[Any]:
        run = self._function or self._build(ctx)
        count = len(self.inputs)
        # DEAD: an earlier branch on the same predicate did not compute it.
        inputs = [_stand_in(v) if x is DEAD else x for v, x in zip(self.inputs, values)]
        if not self.references:
            return self._finished(run(*inputs), (), values, ctx)
        states = values[count:]
        if self._handles or DEAD in states:
            states = [v.find(s, ctx) for v, s in zip(self._used, states, strict=True)]
        locks = self._ordered([s.lock for s in states])
        if len(locks) < len(states):
            return self._interpret(values, ctx)  # two names of one variable
        # Ctrl-C may come after any call, so one call takes all locks, and one releases those that
        # were taken.
        held: list[bool] = []
        give_back = partial(deque, map(_RELEASE, compress(locks, held)), 0)
        try:
            held.extend(map(_ACQUIRE, locks))
            arrays = [v.array(s) for v, s in zip(self._used, states, strict=True)]
            results = run(*inputs, *arrays)
            return self._finished(results, states, values, ctx)
        finally:
            give_back()

    def _finished(
        self, results: Any, states: Sequence[Any], values: Sequence[Any], ctx: Any
    ) -> list[Any]:
        """Store the new values of variables, and return the outputs."""
        if results is None:
            return self._interpret(values, ctx)
        outputs, new, fault = results
        # Before anything that waits, and may be interrupted: the old arrays are gone.
        for i, array in zip(self._written, new, strict=True):
            _store(states[i], array, self._shapes[i])
        # A step is over when its effects are: feeds may be changed by their owner from then on.
        last = new[0] if new else outputs[0] if outputs else None
        if last is not None:
            last.block_until_ready()
        if fault is not None and np.asarray(fault):
            return self._interpret(values, ctx)
        return outputs

    def _ordered(self, locks: list[Any]) -> list[Any]:
        """Return the distinct locks in order; variables are the same in every step."""
        known, ordered = self._order
        if locks != known:
            ordered = in_order(locks)
            self._order = locks, ordered
        return ordered

    def _interpret(self, values: Sequence[Any], ctx: Any) -> list[Any]:
        """Run the nodes one by one by their own kernels."""
        known = dict(zip((*self.inputs, *self.references), map(on_host, values), strict=True))
        with np.errstate(all="ignore"):
            return run_nodes(self.nodes, known, self.outputs, ctx)

    # -- The function ------------------------------------------------------------------------------

    def _build(self, ctx: Any) -> Callable[..., Any]:
        from headrace._src.xla.compiled import compiled  # imports JAX

        if any(map(parts_of, self.nodes)):
            device = getattr(ctx.device, "jax_device", None)
            report_swapping(self.nodes, getattr(device, "platform", "cpu"), ctx.resources)
        self._function = compiled(self)
        return self._function

    def argument_types(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """The shapes and types of the function's arguments: inputs, then variables."""
        data = [(_sizes(v), np.dtype(v.dtype.base_dtype.numpy)) for v in self.inputs]
        return data + [(v.shape, np.dtype(v.dtype.numpy)) for v in self._used]

    @property
    def initializes(self) -> bool:
        """Whether it may be given variables that have no value yet."""
        return not all(v.needed for v in self._used)

    @property
    def written(self) -> list[int]:
        """The numbers of the references whose variables it writes."""
        return self._written


def _sizes(value: Value) -> tuple[int, ...]:
    sizes = value.type.sizes
    assert sizes is not None
    return sizes


def _stand_in(value: Value) -> np.ndarray:
    """Zeros for a value that only a branch that isn't taken would use."""
    return np.zeros(_sizes(value), value.dtype.base_dtype.numpy)


def _live(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """Return the nodes that have an effect or whose values are used."""
    needed, live = set(outputs), []
    for node in reversed(nodes):
        effect = node.definition.effect in (Effect.WRITES, Effect.LOCAL)
        if effect or any(v in needed or is_reference(v) for v in node.outputs):
            needed.update(node.inputs)
            live.append(node)
    return live[::-1]
