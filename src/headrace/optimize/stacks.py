"""Stacks for lists. In: a Dataflow with loops in structured form. Out: the same, with a stack in
the place of each list that one loop fills and another empties.

A list is a value, so a loop carries it as a variable, and gradients of any order have gradients of
their own (gradients.units). But most lists have one life: they begin empty, a loop adds an element
in each iteration, and the loop that goes backwards takes them off. Nobody sees such a list in
between; a stack that both loops know does as well, and native code has a place for it
(compile.lists).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headrace.core import dtypes
from headrace.graph.dataflow import Dataflow, Feed, Node, Value, ValueType, map_parts, rewrite
from headrace.graph.definition import lookup
from headrace.graph.structured import WHILE

__all__ = ["use_stacks"]

_HANDLE = ValueType(dtypes.resource, (2,))


def use_stacks(flow: Dataflow) -> Dataflow:
    """Put stacks in the place of lists, where that makes no difference."""
    flow = map_parts(flow, use_stacks)
    names = set(_replaceable(flow))
    return rewrite(flow, _Replacing(names)) if names else flow


# -- Which lists -----------------------------------------------------------------------------------


def _replaceable(flow: Dataflow) -> Iterator[str]:
    """The names of the nodes that make a list which is filled once and then emptied once."""
    lists = [n for n in flow.nodes if n.definition is lookup("EmptyTensorList")]
    if not lists:
        return
    readers = _readers(flow)
    for node in lists:
        filled = _through_loop(node.outputs[0], readers, "TensorListPushBack")
        if filled and _through_loop(filled[0], readers, "TensorListPopBack") == []:
            yield node.name


Readers = dict[Value, list[tuple[Node | None, int]]]


def _readers(flow: Dataflow) -> Readers:
    """Who reads each value, and as which input; None reads what is fetched."""
    found: Readers = {}
    for node in flow.nodes:
        for i, value in enumerate(node.inputs):
            found.setdefault(value, []).append((node, i))
    for i, value in enumerate(flow.fetches):
        found.setdefault(value, []).append((None, i))
    return found


def _through_loop(value: Value, readers: Readers, op_type: str) -> list[Value] | None:
    """What a list is after the loop that is its only reader and does nothing to it but this op,
    once in each iteration: one value, or none if nobody asks for it. None if that isn't so.
    """
    read = readers.get(value, [])
    if len(read) != 1:
        return None
    ((loop, i),) = read
    if loop is None or loop.definition.op_type != WHILE.op_type:
        return None
    cond, body, results = (loop.attrs[k] for k in ("cond", "body", "results"))
    if i >= len(body.fetches) or cond.feeds[i].value in _readers(cond):
        return None
    inside = _readers(body)
    used = inside.get(body.feeds[i].value, [])
    if len(used) != 1 or used[0][0] is None or used[0][0].definition is not lookup(op_type):
        return None
    if inside.get(used[0][0].outputs[0]) != [(None, i)]:
        return None
    return [loop.outputs[k] for k, variable in enumerate(results) if variable == i]


# -- Their replacement -----------------------------------------------------------------------------


class _Replacing:
    """The rule that rewrites a flow: what makes a list makes a stack, and the loops that carried
    the list as a variable know its handle as an invariant.
    """

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._filled: dict[Value, Node] = {}  # the loops that have filled stacks

    def __call__(self, node: Node) -> Node | list[Value] | None:
        if node.name in self._names and node.definition is lookup("EmptyTensorList"):
            return _stack(node)
        if node.definition.op_type != WHILE.op_type:
            return None
        feeds = node.attrs["body"].feeds
        count = len(node.attrs["body"].fetches)
        taken = [i for i in range(count) if node.inputs[i].dtype is not feeds[i].type.dtype]
        return self._loop(node, taken) if taken else None

    def _loop(self, node: Node, taken: list[int]) -> list[Value]:
        """A loop some of whose variables have become stacks."""
        handles = [node.inputs[i] for i in taken]
        kept = [i for i in range(len(node.attrs["body"].fetches)) if i not in taken]
        results = node.attrs["results"]
        leaving = [k for k, i in enumerate(results) if i not in taken]
        inputs = (*(v for i, v in enumerate(node.inputs) if i not in taken), *handles)
        # It empties what another loop has filled: which nothing else says any more.
        before = [self._filled[h] for h in handles if h in self._filled]
        loop = replace(
            node,
            inputs=inputs,
            controls=tuple(dict.fromkeys([*node.controls, *before])),
            types=tuple(node.types[k] for k in leaving),
            attrs={
                "Tin": tuple(v.dtype for v in inputs),
                "Tout": tuple(node.types[k].dtype for k in leaving),
                "cond": _with_handles(node.attrs["cond"], taken),
                "body": _with_stacks(node.attrs["body"], taken, kept),
                "results": tuple(kept.index(results[k]) for k in leaving),
            },
        )
        self._filled.update({h: loop for h in handles if h not in self._filled})
        outputs = dict(zip(leaving, loop.outputs, strict=True))
        return [outputs[k] if k in outputs else node.inputs[i] for k, i in enumerate(results)]


def _stack(node: Node) -> Node:
    limit = np.array(-1, np.int32)
    attrs = {"value": limit, "dtype": dtypes.int32}
    types = (ValueType(dtypes.int32, ()),)
    name = f"{node.name}/max_size"
    unlimited = Node(lookup("Const"), name, attrs, (), (), types, node.origin, (limit,))
    attrs = {"elem_type": node.attrs["element_dtype"], "stack_name": ""}
    inputs = (unlimited.outputs[0],)
    definition = lookup("StackV2")
    return Node(definition, node.name, attrs, inputs, node.controls, (_HANDLE,), node.origin)


def _handles(flow: Dataflow, taken: list[int]) -> dict[Value, Feed]:
    """For each feed that was a list, that of its stack's handle."""
    return {flow.feeds[i].value: Feed(flow.feeds[i].tensor, _HANDLE, local=True) for i in taken}


def _with_handles(
    flow: Dataflow, taken: list[int], handles: dict[Value, Feed] | None = None
) -> Dataflow:
    """A part of a loop that gets handles after all else."""
    handles = handles or _handles(flow, taken)
    kept = (f for f in flow.feeds if f.value not in handles)
    return replace(flow, feeds=(*kept, *handles.values()))


def _with_stacks(flow: Dataflow, taken: list[int], kept: list[int]) -> Dataflow:
    """The body of a loop that pushes on stacks and pops from them, and passes no lists on."""
    handles = _handles(flow, taken)

    def rule(node: Node) -> Node | list[Value] | None:
        handle = handles.get(node.inputs[0]) if node.inputs else None
        if handle is None:
            return None
        dtype = node.attrs["element_dtype"]
        if node.definition is lookup("TensorListPopBack"):
            attrs, inputs = {"elem_type": dtype}, (handle.value,)
            pop = replace(
                node,
                definition=lookup("StackPopV2"),
                attrs=attrs,
                inputs=inputs,
                types=node.types[1:],
            )
            return [handle.value, *pop.outputs]
        value = node.inputs[1]
        attrs = {"T": dtype, "swap_memory": False}
        push = lookup("StackPushV2")
        inputs = (handle.value, value)
        return replace(node, definition=push, attrs=attrs, inputs=inputs, types=(value.type,))

    flow = _with_handles(rewrite(flow, rule), taken, handles)
    pushes = [n for n in flow.nodes if n.definition is lookup("StackPushV2")]
    own = [n for n in pushes if n.inputs[0].producer in handles.values()]
    return replace(
        flow,
        fetches=tuple(flow.fetches[i] for i in kept),
        targets=tuple(dict.fromkeys([*flow.targets, *own])),
        tensors=tuple(flow.tensors[i] for i in kept) if flow.tensors else (),
    )
