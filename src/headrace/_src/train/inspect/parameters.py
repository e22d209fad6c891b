"""Count a model's parameters, scope by scope. In: variables, a graph, a GraphDef, a checkpoint or a
file of these. Out: a tree of scopes with counts and bytes.

This is the white paper's first advice for porting a model: compare the number of parameters, layer
by layer, before anything else; a wrong layer shows at once.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from headrace._src.core import proto
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import Sizes, TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_io import read_message
from headrace._src.graph.keys import GraphKeys
from headrace._src.ops.state.ref_variable_ops import REFERENCE_VARIABLES, RESOURCE_VARIABLES
from headrace._src.train.saving.checkpoint_reader import checkpoint_in
from headrace._src.train.saving.saved_model.loader import (
    maybe_saved_model_directory,
    parse_saved_model,
)
from headrace._src.variables.variable import Variable

__all__ = ["Parameter", "Scope", "count_parameters"]

# Files may hold ops that Headrace doesn't define, so op names are compared.
_VARIABLES = REFERENCE_VARIABLES | RESOURCE_VARIABLES
_CONSTANT = "Const"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One variable, or one constant of a frozen graph."""

    name: str
    dtype: DType
    sizes: Sizes | None

    @property
    def count(self) -> int:
        """The number of elements; 0 if unknown."""
        if self.sizes is None or None in self.sizes:
            return 0
        return math.prod(s for s in self.sizes if s is not None)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.count * self.dtype.size


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope, or a parameter if it has no parts. `label`: its name within the scope around it."""

    label: str
    parts: tuple[Scope, ...]
    parameter: Parameter | None
    count: int
    size: int

    def walk(self, depth: int | None = None) -> Iterator[tuple[int, Scope]]:
        """Yield all scopes and their depths, each before its parts, down to `depth`."""
        yield 0, self
        if depth is None or depth > 0:
            for part in self.parts:
                for level, found in part.walk(None if depth is None else depth - 1):
                    yield level + 1, found

    def find(self, name: str) -> Scope:
        """Return the scope of a name such as "encoder/layer_1"; KeyError if there is none."""
        if not name:
            return self
        for part in self.parts:
            if name == part.label:
                return part
        for part in self.parts:
            around = part.label.rstrip("/")
            if part.parts and name.startswith(f"{around}/"):
                return part.find(name[len(around) + 1 :])
        raise KeyError(f"no scope {name!r} in {self.label or 'the model'}")

    def __str__(self) -> str:
        rows = [(f"{'  ' * level}{s.label}", f"{s.count:,}") for level, s in self.walk()]
        rows[0] = ("all parameters", rows[0][1])
        wide, number = (max(map(len, column)) for column in zip(*rows, strict=True))
        return "\n".join(f"{name:<{wide}}  {count:>{number}}" for name, count in rows)


@export("train.count_parameters")
def count_parameters(source: Any = None, trainable: bool = False, match: str = "") -> Scope:
    """Return the parameters of `source` as a tree of scopes, which prints as a table.

    source: a list of variables, a Graph (the default graph if None), a GraphDef (its variables, or
    if it's frozen, its floating constants), a MetaGraphDef, or the path of a checkpoint, of a
    directory with checkpoints, of a SavedModel, of a MetaGraphDef (.meta) or of a GraphDef (.pb,
    .pbtxt).
    trainable: only trainable variables; ValueError if `source` doesn't tell which are. match: only
    names that contain a match of this regular expression.
    """
    found = _parameters(source, trainable)
    pattern = re.compile(match)
    return _tree("", "", [p for p in found if pattern.search(p.name)])


def _tree(label: str, prefix: str, parameters: list[Parameter]) -> Scope:
    """Return the scope of these parameters, whose names begin with `prefix`."""
    groups: dict[str, list[Parameter]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.name[len(prefix) :].partition("/")[0], []).append(parameter)
    parts = []
    for name, inside in groups.items():
        exact = [p for p in inside if p.name == prefix + name]
        deeper = [p for p in inside if p.name != prefix + name]
        parts += [Scope(name, (), p, p.count, p.size) for p in exact]
        if deeper:  # a scope with the name of a variable: that of its slots
            inner = f"{name}/" if exact else name
            parts.append(_joined(_tree(inner, f"{prefix}{name}/", deeper)))
    count, size = sum(p.count for p in parts), sum(p.size for p in parts)
    return Scope(label, tuple(parts), None, count, size)


def _joined(scope: Scope) -> Scope:
    """Return the scope, or its only part if it has just one."""
    if len(scope.parts) != 1:
        return scope
    (only,) = scope.parts
    label = f"{scope.label.rstrip('/')}/{only.label}"
    return Scope(label, only.parts, only.parameter, only.count, only.size)


# -- Where parameters are found --------------------------------------------------------------------


def _parameters(source: Any, trainable: bool) -> list[Parameter]:
    if source is None:
        source = get_default_graph()
    if isinstance(source, Graph):
        key = GraphKeys.TRAINABLE_VARIABLES if trainable else GraphKeys.GLOBAL_VARIABLES
        return _of_variables(source.get_collection(key))
    if isinstance(source, proto.MetaGraphDef):
        return _of_meta_graph(source, trainable)
    if isinstance(source, proto.GraphDef):
        return _of_nodes(source, trainable)
    if isinstance(source, str | os.PathLike):
        return _of_file(os.fspath(source), trainable)
    return _of_variables(source, trainable)


def _of_variables(variables: Iterable[Any], trainable: bool = False) -> list[Parameter]:
    found = []
    for v in variables:
        if not isinstance(v, Variable):
            raise TypeError(f"count_parameters needs variables, but got {v!r}")
        if v.trainable or not trainable:
            found.append(Parameter(v.op.name, v.dtype.base_dtype, v.shape.sizes))
    return found


def _unknown(what: str) -> ValueError:
    return ValueError(f"{what} doesn't say which of its variables are trainable")


def _of_nodes(graph_def: Any, trainable: bool) -> list[Parameter]:
    if trainable:
        raise _unknown("a GraphDef")
    variables = [n for n in graph_def.node if n.op in _VARIABLES]
    if variables:
        return [
            Parameter(
                n.name, as_dtype(n.attr["dtype"].type), TensorShape(n.attr["shape"].shape).sizes
            )
            for n in variables
        ]
    constants = [(n.name, n.attr["value"].tensor) for n in graph_def.node if n.op == _CONSTANT]
    held = [Parameter(n, as_dtype(t.dtype), _sizes(t)) for n, t in constants]
    return [p for p in held if p.dtype.is_floating and p.sizes]


def _sizes(tensor: Any) -> Sizes:
    return tuple(d.size for d in tensor.tensor_shape.dim)


def _of_meta_graph(meta_graph: Any, trainable: bool) -> list[Parameter]:
    held = _of_nodes(meta_graph.graph_def, False)
    if not trainable:
        return held
    listed = meta_graph.collection_def[GraphKeys.TRAINABLE_VARIABLES].bytes_list.value
    names = {proto.VariableDef.FromString(v).variable_name.partition(":")[0] for v in listed}
    return [p for p in held if p.name in names]


def _of_file(path: str, trainable: bool) -> list[Parameter]:
    if path.endswith(".meta"):
        return _of_meta_graph(read_message(path, proto.MetaGraphDef), trainable)
    if maybe_saved_model_directory(path):
        return _of_meta_graph(parse_saved_model(path).meta_graphs[0], trainable)
    if path.endswith((".pb", ".pbtxt")):
        return _of_nodes(read_message(path, proto.GraphDef), trainable)
    return _of_checkpoint(checkpoint_in(path.removesuffix(".index")), trainable)


def _of_checkpoint(prefix: str, trainable: bool) -> list[Parameter]:
    with open_checkpoint(prefix) as checkpoint:
        held = [Parameter(n, s.dtype, s.shape) for n, s in sorted(checkpoint.stored.items())]
    if not trainable:
        return held
    if not os.path.isfile(f"{prefix}.meta"):
        raise _unknown(f"checkpoint {prefix} (there is no {prefix}.meta)")
    wanted = {p.name for p in _of_file(f"{prefix}.meta", True)}
    return [p for p in held if p.name in wanted]
