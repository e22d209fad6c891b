"""tf.contrib.slim.model_analyzer: the number of elements and bytes of variables and operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core.export import export

__all__ = ["analyze_ops", "analyze_vars", "tensor_description"]


@export("contrib.slim.model_analyzer.tensor_description")
def tensor_description(var: Any) -> str:
    """Return the type and shape of a tensor or variable, as `(float32 ?x3)`."""
    sizes = "x".join("?" if size is None else str(size) for size in _sizes(var))
    return f"({var.dtype.name} {sizes})"


def _sizes(var: Any) -> list[int | None]:
    return [] if var.shape.ndims is None else var.shape.as_list()


@export("contrib.slim.model_analyzer.analyze_vars")
def analyze_vars(variables: Iterable[Any], print_info: bool = False) -> tuple[int, int]:
    """Return the total number of elements and bytes of variables; print them if `print_info`."""
    total_size = total_bytes = 0
    lines = ["---------", "Variables: name (type shape) [size]", "---------"]
    for var in variables:
        size = var.shape.num_elements() or 0
        in_bytes = size * var.dtype.base_dtype.size
        total_size += size
        total_bytes += in_bytes
        lines.append(f"{var.name} {tensor_description(var)} [{size}, bytes: {in_bytes}]")
    lines += [f"Total size of variables: {total_size}", f"Total bytes of variables: {total_bytes}"]
    if print_info:
        print("\n".join(lines))
    return total_size, total_bytes


@export("contrib.slim.model_analyzer.analyze_ops")
def analyze_ops(graph: Any, print_info: bool = False) -> int:
    """Return the total number of elements of the outputs of a graph's operations, as far as they
    are known; print them if `print_info`.
    """
    total = 0
    lines = ["---------", "Operations: name -> (type shapes) [size]", "---------"]
    for op in graph.get_operations():
        sizes = [output.shape.num_elements() or 0 for output in op.outputs]
        total += sum(sizes)
        shapes = ", ".join(tensor_description(output) for output in op.outputs)
        lines.append(f"{op.name} \t-> {shapes} [{sum(sizes)}]")
    if print_info:
        print("\n".join(lines))
    return total
