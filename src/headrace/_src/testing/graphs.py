"""Compare two graphs. In: GraphDefs. Out: an AssertionError that says where they differ."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export

__all__ = ["assert_equal_graph_def"]


@export("test.assert_equal_graph_def")
def assert_equal_graph_def(
    actual: Any,
    expected: Any,
    checkpoint_v2: bool = False,
    hash_table_shared_name: bool = False,
) -> None:
    """Raise AssertionError unless two GraphDefs have the same nodes, in any order.

    checkpoint_v2: ignore the names of temporary checkpoints. hash_table_shared_name: ignore the
    shared names of tables.
    """
    found, wanted = ({node.name: node for node in graph.node} for graph in (actual, expected))
    for name in found.keys() - wanted.keys():
        raise AssertionError(f"Found unexpected node '{name}': {_line(found[name])}")
    for name, node in wanted.items():
        if name not in found:
            raise AssertionError(f"Did not find expected node '{name}': {_line(node)}")
        _compare(found[name], node, checkpoint_v2, hash_table_shared_name)


def _compare(found: Any, wanted: Any, checkpoint_v2: bool, shared_names: bool) -> None:
    for field in ("op", "device"):
        has, should = getattr(found, field), getattr(wanted, field)
        if has != should:
            raise AssertionError(
                f"Node named '{wanted.name}' has {field} '{has}' that is not '{should}'"
            )
    if _edges(found) != _edges(wanted):
        raise AssertionError(
            f"Node named '{wanted.name}' has inputs {list(found.input)} that do not match "
            f"expected: {list(wanted.input)}"
        )
    for name in sorted({*found.attr, *wanted.attr}):
        if (shared_names and name == "shared_name" and "HashTable" in wanted.op) or (
            checkpoint_v2 and name == "value" and _is_temporary(found) and _is_temporary(wanted)
        ):
            continue
        if name not in found.attr or name not in wanted.attr:
            has = "has" if name in found.attr else "lacks"
            raise AssertionError(f"Node named '{wanted.name}' {has} attr '{name}'")
        if found.attr[name] != wanted.attr[name]:
            raise AssertionError(
                f"Node named '{wanted.name}' has attr '{name}' with value: "
                f"{_line(found.attr[name])} that does not match expected: "
                f"{_line(wanted.attr[name])}"
            )


def _edges(node: Any) -> tuple[list[str], set[str]]:
    """Return the inputs in order, and the set of control inputs."""
    data = [name for name in node.input if not name.startswith("^")]
    return data, {name for name in node.input if name.startswith("^")}


def _is_temporary(node: Any) -> bool:
    texts = node.attr["value"].tensor.string_val if node.op == "Const" else ()
    return any(b"_temp" in text for text in texts)


def _line(message: Any) -> str:
    return " ".join(str(message).split())
