"""tf.import_graph_def. In: a GraphDef, values for inputs, names. Out: operations of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.versions_and_text import as_text
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.import_graph import (
    Imported,
    InputMap,
    all_or_nothing,
    import_nodes,
    parse_tensor_name,
)
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.to_tensor import convert_to_tensor

__all__ = ["as_message", "import_graph_def", "import_under"]


@export("import_graph_def", "graph_util.import_graph_def")
def import_graph_def(
    graph_def: Any,
    input_map: Mapping[str, Any] | None = None,
    return_elements: Iterable[str | bytes] | None = None,
    name: str | None = None,
    op_dict: Any = None,
    producer_op_list: Any = None,
) -> list[Operation | Tensor] | None:
    """Add the nodes of a GraphDef to the default graph under `name` ("import"; "" for no prefix).

    `input_map` replaces outputs `x:0` or control inputs `^x` of the file's nodes by tensors (or
    values). `return_elements` are names in the file; their tensors and operations are returned in
    that order. `producer_op_list` describes the producer's ops: attributes that are unknown here
    and have the producer's default value are dropped. A failed import adds nothing.
    """
    if op_dict is not None:
        raise ValueError("op_dict is not supported: ops are found among the defined ones")
    wanted = None if return_elements is None else _as_names(return_elements)
    if isinstance(input_map, Mapping):
        input_map = {k.decode() if isinstance(k, bytes) else k: v for k, v in input_map.items()}
    graph = get_default_graph()
    with all_or_nothing(graph):
        _, imported = import_under(graph, graph_def, input_map, name, producer_op_list)
        return None if wanted is None else [imported.element(n) for n in wanted]


def import_under(
    graph: Graph,
    graph_def: Any,
    input_map: Mapping[str, Any] | None,
    name: str | None,
    producer_op_list: Any,
) -> tuple[str, Imported]:
    """Import within `all_or_nothing(graph)`; return the name prefix and the operations."""
    message = as_message(graph_def, proto.GraphDef, "graph_def must be a GraphDef proto.")
    graph._check_not_finalized()
    producer_ops = {}
    if producer_op_list is not None:
        wrong = "producer_op_list must be an OpList proto."
        producer_ops = {op.name: op for op in as_message(producer_op_list, proto.OpList, wrong).op}
    _check_keys(input_map)
    with graph.as_default(), graph.name_scope("import" if name is None else name) as scope:
        mapped = _as_input_map(graph, input_map or {}, scope)
        return scope[:-1], import_nodes(graph, message, scope[:-1], mapped, producer_ops)


def as_message(value: Any, message_type: Any, wrong: str) -> Any:
    """Return `value` as one of our messages; it may be TensorFlow's own message of the
    same name.
    """
    if isinstance(value, message_type):
        return value
    descriptor = getattr(value, "DESCRIPTOR", None)
    if descriptor is None or descriptor.name != message_type.DESCRIPTOR.name:
        raise TypeError(wrong)
    return message_type.FromString(value.SerializeToString())


def _as_names(elements: Iterable[str | bytes]) -> list[str]:
    names = [] if isinstance(elements, str | bytes) else list(elements)
    if isinstance(elements, str | bytes) or not all(isinstance(n, str | bytes) for n in names):
        raise TypeError("return_elements must be a list of strings.")
    return list(map(as_text, names))


def _check_keys(input_map: Any) -> None:
    if input_map is not None and not (
        isinstance(input_map, Mapping) and all(isinstance(k, str) for k in input_map)
    ):
        raise TypeError("input_map must be a dictionary mapping strings to Tensor objects.")


def _as_input_map(graph: Graph, input_map: Mapping[str, Any], scope: str) -> InputMap:
    if not scope and not all(isinstance(v, Tensor) for v in input_map.values()):
        raise ValueError(
            "tf.import_graph_def() requires a non-empty `name` if `input_map` contains non-Tensor "
            "values. Try calling tf.convert_to_tensor() on `input_map` values before calling "
            "tf.import_graph_def()."
        )
    tensors = {}
    controls = {}
    with graph.name_scope(f"{scope}_inputs/" if scope else ""):
        for key, value in input_map.items():
            tensor = convert_to_tensor(value)
            if tensor.graph is not graph:
                raise ValueError(f"input_map: {tensor} for '{key}' is from another graph")
            if key.startswith("^"):
                controls[key[1:]] = tensor.op
            else:
                tensors[parse_tensor_name(key)] = tensor
    return InputMap(tensors, controls)
