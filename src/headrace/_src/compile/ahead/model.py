"""Read a frozen graph as a model to compile. In: a GraphDef, and the command line's inputs and
outputs. Out: a Model, whose tensors have known sizes.

    --input NAME          a tensor, sizes from the graph     x, layer/x:0
    --input NAME:SIZES    with these sizes                   x:1,784, layer/x:0:1,784, scalar:
    --output NAME         a tensor                           probabilities, split:1

Without --input, the inputs are the placeholders that the outputs need; without --output, the
outputs are the tensors that no operation of the graph reads. --batch is the first size where the
graph leaves it open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace._src.compile.ahead.interface import Port
from headrace._src.core import proto
from headrace._src.core.errors import OpError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.import_graph_def import import_graph_def

__all__ = ["Model", "read_model"]

# These are names in files.
_PLACEHOLDERS = {"Placeholder", "PlaceholderV2"}


@dataclass(frozen=True)
class Model:
    """A model to compile: the graph, its inputs with their sizes, its outputs."""

    graph: Graph
    inputs: tuple[Tensor, ...]
    sizes: tuple[tuple[int, ...], ...]
    outputs: tuple[Tensor, ...]

    @property
    def input_ports(self) -> tuple[Port, ...]:
        return tuple(
            Port(port_name(t), t.dtype.name, s)
            for t, s in zip(self.inputs, self.sizes, strict=True)
        )


def port_name(tensor: Tensor) -> str:
    """Return a tensor's public name: that of its operation, with the output's number unless 0."""
    return tensor.name.removesuffix(":0")


def read_model(
    graph_def: proto.GraphDef,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    batch: int | None = None,
) -> Model:
    """Find a model's inputs and outputs; ValueError says what is missing or wrong."""
    if batch is not None and batch < 1:
        raise ValueError(f"a batch has at least one element, not {batch}")
    graph = Graph()
    try:
        with graph.as_default():
            import_graph_def(graph_def, name="")
    except OpError as error:
        raise ValueError(f"the graph can't be imported: {error.message}") from error
    fetched = tuple(_tensor(graph, name) for name in outputs) or _sinks(graph)
    given = [_parse_input(graph, text) for text in inputs]
    if not given:
        given = [(t, None) for t in _placeholders(graph_def, graph, fetched)]
    repeated = {t.name for t, _ in given if [u for u, _ in given].count(t) > 1}
    if repeated:
        raise ValueError(f"given more than once as an input: {', '.join(sorted(repeated))}")
    return Model(
        graph,
        tuple(t for t, _ in given),
        tuple(_sizes(t, sizes, batch) for t, sizes in given),
        fetched,
    )


def _tensor(graph: Graph, name: str) -> Tensor:
    try:
        return graph.get_tensor_by_name(name if re.search(r":\d+$", name) else f"{name}:0")
    except (KeyError, ValueError):
        raise ValueError(f"the graph has no tensor {name!r}") from None


def _parse_input(graph: Graph, text: str) -> tuple[Tensor, tuple[int, ...] | None]:
    """The tensor of `NAME[:index][:sizes]` and its sizes."""
    match = re.fullmatch(r"([^:]+)(:0)?(?::((?:\d+(?:,\d+)*)?))?", text)
    if match is None:
        raise ValueError(f"an input is given as NAME or NAME:SIZE,SIZE,…; not as {text!r}")
    name, index, sizes = match.groups()
    tensor = _tensor(graph, f"{name}{index or ''}")
    if sizes is None:
        return tensor, None
    return tensor, tuple(int(size) for size in sizes.split(",") if size)


def _sinks(graph: Graph) -> tuple[Tensor, ...]:
    """Return the tensors that the graph computes and doesn't use."""
    operations = graph.get_operations()
    used = {t.op for op in operations for t in op.inputs}
    used |= {c for op in operations for c in op.control_inputs}
    found = [t for op in operations if op not in used and op.inputs for t in _values(op)]
    if not found:
        raise ValueError("the graph's outputs can't be determined: name them with --output")
    return tuple(found)


def _values(op: Operation) -> Sequence[Tensor]:
    """Return an operation's results, without the index of the branch that reached a Merge."""
    return op.outputs[:1] if op.definition.flow is Flow.MERGE else op.outputs


def _placeholders(
    graph_def: proto.GraphDef, graph: Graph, outputs: Sequence[Tensor]
) -> list[Tensor]:
    """The placeholders that the outputs need, in the file's order."""
    needed: set[Operation] = set()
    waiting = [t.op for t in outputs]
    while waiting:
        op = waiting.pop()
        if op not in needed:
            needed.add(op)
            waiting += [t.op for t in op.inputs]
    names = [n.name for n in graph_def.node if n.op in _PLACEHOLDERS]
    found = [graph.get_operation_by_name(n) for n in names]
    return [op.outputs[0] for op in found if op in needed]


def _sizes(tensor: Tensor, given: tuple[int, ...] | None, batch: int | None) -> tuple[int, ...]:
    """All sizes of an input: those that are given, the graph's, and the batch's."""
    name, static = port_name(tensor), tensor.shape
    if given is not None:
        if not static.is_compatible_with(TensorShape(given)) or 0 in given:
            raise ValueError(f"input {name!r} of shape {static} can't have the sizes {given}")
        return given
    how = f"say --input {name}:SIZE,SIZE,…"
    if static.ndims is None:
        raise ValueError(f"the shape of input {name!r} is unknown: {how}")
    sizes = list(static.as_list())
    if sizes and sizes[0] is None:
        sizes[0] = batch
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise ValueError(f"the shape of input {name!r} is {static}: {how}, or --batch N")
    return known
