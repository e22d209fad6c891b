"""Pass random generators to loops and branches. In: a Dataflow whose random ops in parts are split
in two (`rewrites.reserve_samples`). Out: the same flow, with the generators found before the loop
or branch begins.

A node that reserves samples looks up its generator, which is state of the session that only the
interpreter can find. This pass replaces it, inside parts, by a node that advances a generator it is
given. The loop then writes a variable of three words like any other variable, and all of it can be
native.
"""

from __future__ import annotations

from dataclasses import replace

from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.dataflow import (
    Dataflow,
    Feed,
    Node,
    Value,
    ValueType,
    origin_of,
    rewrite,
)
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import parts_of, with_effect
from headrace._src.ops.base.internal import ADVANCE, GENERATOR, RESERVE

__all__ = ["find_generators"]

_STREAM = ValueType(as_dtype("uint64"), (3,))
_STATE = ValueType(as_dtype("uint64")._as_ref, (3,))


def find_generators(flow: Dataflow) -> Dataflow:
    """Give loops and branches the generators of the random ops in them."""
    found: dict[str, Node] = {}  # by name: a function's body may be there several times

    def rule(node: Node) -> Node | None:
        names = {n.name: n for part in parts_of(node).values() for n in part.nodes if _is_random(n)}
        return _with_generators(node, [found.setdefault(k, _generator(names[k])) for k in names])

    return rewrite(flow, rule)


def _is_random(node: Node) -> bool:
    """Return whether a node of a part needs a generator, for itself or for an inner part."""
    return node.definition in (RESERVE, GENERATOR)


def _generator(node: Node) -> Node:
    """The node that finds the generator of a random op."""
    seeds = {k: node.attrs[k] for k in ("seed", "seed2")}
    return Node(GENERATOR, node.name, seeds, (), (), (_STATE,), node.origin)


def _with_generators(node: Node, generators: list[Node]) -> Node | None:
    """Return the loop or branch with the generators as further inputs."""
    if not generators:
        return None
    inputs = (*node.inputs, *(g.outputs[0] for g in generators))
    parts = {name: _given(part, generators) for name, part in parts_of(node).items()}
    types = {"Tin": tuple(v.dtype for v in inputs)}
    return replace(
        node,
        definition=with_effect(node.definition, Effect.WRITES),
        attrs={**node.attrs, **parts, **types},
        inputs=inputs,
    )


def _given(part: Dataflow, generators: list[Node]) -> Dataflow:
    """A part whose last feeds are generators."""
    feeds = [Feed(origin_of(g)._outputs[0], _STATE) for g in generators]
    states = {g.name: f.value for g, f in zip(generators, feeds, strict=True)}

    def rule(node: Node) -> Node | list[Value] | None:
        if not _is_random(node):
            return None
        state = states[node.name]
        if node.definition is GENERATOR:
            return [state]
        attrs = {"count": node.attrs["count"]}
        return Node(ADVANCE, node.name, attrs, (state,), node.controls, (_STREAM,), node.origin)

    return replace(rewrite(part, rule), feeds=(*part.feeds, *feeds))
