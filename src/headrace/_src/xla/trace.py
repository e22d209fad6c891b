"""Trace nodes as a JAX function. In: nodes of a specialised step, in order, and arrays. Out:
arrays.

A trace keeps the arrays of values, and the current arrays of variables: reads take them, updates
replace them, so the traced function is pure. Parts of loops and branches are traced by traces of
their own; the variables that they write are carried through lax.while_loop and lax.cond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.graph.dataflow import Dataflow, Node, Value, is_local
from headrace._src.graph.definition import bind_kernel
from headrace._src.graph.structured import is_loop, is_undefined, parts_of
from headrace._src.lowering.anchors import Advance
from headrace._src.lowering.list_anchors import ListUse
from headrace._src.lowering.references import is_reference, writes_of
from headrace._src.lowering.row_anchors import Gather, RowUpdate, Scatter
from headrace._src.lowering.rules import Pass, Read, Update, update_of
from headrace._src.xla.kernels import lists, philox, rows
from headrace._src.xla.kernels.faults import any_of, check, collected
from headrace._src.xla.kernels.functions import function_of
from headrace._src.xla.kernels.pointwise import evaluate
from headrace._src.xla.kernels.rules import run_rule
from headrace._src.xla.list_plan import ListRows
from headrace._src.xla.uses import by_function

__all__ = ["Trace"]


class Trace:
    """Nodes under way.

    values: the array of each value; roots: the key of the state that a reference stands for;
    states: the array of each variable, and the contents of tensor arrays (kernels.lists); lists:
    how large these become; declared: the tensor arrays whose rows have a declared shape.
    """

    def __init__(
        self, values: dict[Value, Any], states: dict[Any, Any], lists: dict[Node, ListRows]
    ) -> None:
        self.values = values
        self.states = states
        self.lists = lists
        self.roots: dict[Value, Any] = {}
        self.declared: set[Value] = set()

    def root(self, reference: Value) -> Any:
        """The key in `states` of the variable or tensor array behind a reference: the first one."""
        return self.roots.get(reference, reference)

    def value(self, value: Value) -> Any:
        """The array of a value; a NumPy array if it's a constant."""
        known = value.constant
        return self.values[value] if known is None else np.asarray(known)

    def run(self, nodes: Iterable[Node]) -> None:
        """Trace nodes in order."""
        for node in nodes:
            if node.constant is None:
                self._run(node)

    def _run(self, node: Node) -> None:
        rule, geometry = node.definition.lower, None
        if is_undefined(node):
            results = [_zeros(v) for v in node.outputs]
        elif parts_of(node):
            results = self._loop(node) if is_loop(node) else self._branch(node)
        elif isinstance(rule, Pass):
            results = self._passed(node)
        elif isinstance(rule, Read):
            results = [self.states[self.root(node.inputs[0])]]
        elif isinstance(rule, Update):
            results = self._update(node, rule)
        elif isinstance(geometry := node.geometry, ListUse):
            results = lists.use(self, node, geometry)
        elif isinstance(geometry, Scatter | RowUpdate | Advance):
            results = self._change(node, geometry)
        elif isinstance(geometry, Gather) and geometry.variable:
            table = self.states[self.root(node.inputs[0])]
            results = rows.gather(geometry, table, jnp.asarray(self.value(node.inputs[1])))
        else:
            results = computed(node, [self.value(v) for v in node.inputs])
        for value, result in zip(node.outputs, results, strict=False):
            if result is not None:
                self.values[value] = _shaped(value, result)

    def _passed(self, node: Node) -> list[Any]:
        results: list[Any] = []
        for given, got in zip(node.inputs, node.outputs, strict=False):
            if is_reference(given) or is_local(given):
                self.roots[got] = self.root(given)
            passed = given.constant is not None or given in self.values
            results.append(self.value(given) if passed else None)
        return results

    def _update(self, node: Node, rule: Update) -> list[Any]:
        program = update_of(rule, node)
        assert program is not None, f"{node} was let into a region without a program"
        references = node.inputs[: rule.variables]
        old = [self.states[self.root(v)] for v in references]
        operands = [self.value(v) for v in node.inputs[rule.variables :]]
        new = evaluate(program, [*old, *operands])
        self._replace(references, [jnp.broadcast_to(x, o.shape) for x, o in zip(new, old)])
        return self._references(node)

    def _change(self, node: Node, geometry: Any) -> list[Any]:
        """An op on rows of variables, or on a generator."""
        if isinstance(geometry, Advance):
            root = self.root(node.inputs[0])
            stream = self.states[root]
            self.states[root] = philox.advanced(stream, geometry.count)
            return [stream]
        count = geometry.variables if isinstance(geometry, RowUpdate) else 1
        references = node.inputs[:count]
        old = [self.states[self.root(v)] for v in references]
        operands = [self.value(v) for v in node.inputs[count:]]
        run = rows.row_update if isinstance(geometry, RowUpdate) else rows.scatter
        self._replace(references, run(geometry, *old, *operands))  # type: ignore[arg-type]
        return self._references(node)

    def _replace(self, references: Sequence[Value], new: Sequence[Any]) -> None:
        for reference, array in zip(references, new, strict=True):
            self.states[self.root(reference)] = array

    def _references(self, node: Node) -> list[Any]:
        """Let the outputs of an update stand for its variables."""
        for given, got in zip(node.inputs, node.outputs, strict=False):
            self.roots[got] = self.root(given)
        return []

    # -- Loops and branches ------------------------------------------------------------------------

    def _inner(self, part: Dataflow, given: Sequence[Value], values: Sequence[Any]) -> Trace:
        """The trace of a part: its feeds are references of this trace, or values."""
        inner = Trace({}, self.states.copy(), self.lists)
        inner.declared = self.declared
        for feed, outer, value in zip(part.feeds, given, values, strict=True):
            if is_reference(outer) or is_local(outer):
                inner.roots[feed.value] = self.root(outer)
            if value is not None:
                inner.values[feed.value] = value
        return inner

    def _given(self, inputs: Sequence[Value]) -> list[Any]:
        """The values of a structured node's inputs; None for references."""
        known = [v.constant is not None or v in self.values for v in inputs]
        return [self.value(v) if k else None for v, k in zip(inputs, known, strict=True)]

    def _carried(self, node: Node) -> list[Any]:
        """The keys of the states that a structured node may write."""
        written = [self.root(v) for v in writes_of(node)]
        arrays = {_array_of(self.root(v)) for v in node.inputs if is_local(v)}
        return list(dict.fromkeys([*written, *(k for k in self.states if _array_of(k) in arrays)]))

    def _branch(self, node: Node) -> list[Any]:
        inputs = node.inputs[1:]
        values, carried = self._given(inputs), self._carried(node)
        counted: list[bool] = []

        data = [not (is_reference(v) or _is_handle(v)) for v in node.outputs]

        def taken(part: Dataflow) -> Any:
            def run() -> Any:
                with collected() as faults:
                    inner = self._inner(part, inputs, values)
                    inner.run(part.nodes)
                    results = [
                        _shaped(o, jax.tree.map(jnp.asarray, inner.value(v))) if d else None
                        for o, v, d in zip(node.outputs, part.fetches, data, strict=True)
                    ]
                counted.append(bool(faults))
                return results, [inner.states[k] for k in carried], any_of(faults)

            return run

        predicate = jnp.asarray(self.value(node.inputs[0])).reshape(())
        results, states, fault = jax.lax.cond(
            predicate, taken(node.attrs["then"]), taken(node.attrs["otherwise"])
        )
        self.states.update(zip(carried, states, strict=True))
        if any(counted):
            check(fault)
        return list(results)

    def _loop(self, node: Node) -> list[Any]:
        cond, body = node.attrs["cond"], node.attrs["body"]
        count = len(body.fetches)
        carried = self._carried(node)
        values = self._given(node.inputs)
        moving = [i for i in range(count) if values[i] is not None]
        counted: list[bool] = []

        def inner(part: Dataflow, variables: Sequence[Any], states: Sequence[Any]) -> Trace:
            given = list(values)
            for i, value in zip(moving, variables, strict=True):
                given[i] = value
            trace = self._inner(part, node.inputs, given)
            trace.states.update(zip(carried, states, strict=True))
            trace.run(part.nodes)
            return trace

        def goes_on(carry: Any) -> Any:
            with collected():  # what a condition looks up, the body or the next step checks
                trace = inner(cond, *carry[:2])
                more = jnp.asarray(trace.value(cond.fetches[0])).reshape(())
            return more & ~carry[2]

        def iterate(carry: Any) -> Any:
            with collected() as faults:
                trace = inner(body, *carry[:2])
                new = [
                    _like(carry[0][k], trace.value(body.fetches[i])) for k, i in enumerate(moving)
                ]
            counted.append(bool(faults))
            return new, [trace.states[k] for k in carried], carry[2] | any_of(faults)

        first = [jax.tree.map(jnp.asarray, values[i]) for i in moving]
        start = first, [self.states[k] for k in carried], jnp.asarray(False)
        variables, states, fault = jax.lax.while_loop(goes_on, iterate, start)
        self.states.update(zip(carried, states, strict=True))
        if any(counted):
            check(fault)
        last = dict(zip(moving, variables, strict=True))
        for output, i in zip(node.outputs, node.attrs["results"], strict=True):
            if i not in last:
                self.roots[output] = self.root(node.inputs[i])
        return [last.get(i) for i in node.attrs["results"]]


def computed(node: Node, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a node that touches no state: by a function of its own, or by its rule."""
    if all(0 in (v.type.sizes or ()) for v in node.outputs) and node.outputs:
        return [_zeros(v) for v in node.outputs]
    if by_function(node):
        results = bind_kernel(node, None, function_of(node.type))(*inputs)
        return list(results) if isinstance(results, tuple | list) else [results]
    results = run_rule(node, inputs)
    assert results is not None, f"{node} was let into a region without a function"
    return results


def _is_handle(value: Value) -> bool:
    """Whether a value is the handle of a tensor array or a stack; lists are values."""
    return value.dtype.name == "resource"


def _array_of(key: Any) -> Any:
    """The tensor array that a gradient's key belongs to."""
    return key[0] if isinstance(key, tuple) else key


def _like(start: Any, value: Any) -> Any:
    """A loop variable with the type and shape of the last iteration's."""
    return jax.tree.map(lambda s, v: jnp.asarray(v, s.dtype).reshape(s.shape), start, value)


def _zeros(value: Value) -> Any:
    return jnp.zeros(value.type.sizes or (), value.dtype.base_dtype.numpy)


def _shaped(value: Value, result: Any) -> Any:
    """An array in the shape that is known for it."""
    sizes = value.type.sizes
    if sizes is None or not hasattr(result, "reshape") or result.shape == sizes:
        return result
    return result.reshape(sizes)
