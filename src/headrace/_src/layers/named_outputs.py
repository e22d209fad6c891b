"""Outputs of layers by name, and the other helpers of tf.contrib.slim.utils.

A layer that puts its outputs into collections also gives them its scope's name as an alias; such a
collection becomes a dictionary from aliases to tensors, the `end_points` of a network.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.ops.control.cond import smart_cond, smart_constant_value

__all__ = ["collect_named_outputs", "convert_collection_to_dict", "variable_collections"]


@export("contrib.slim.utils.collect_named_outputs")
def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """Return the outputs, after adding them to collections under an alias."""
    if collections:
        append_tensor_alias(outputs, alias)
        for key in _keys(collections):
            get_default_graph().add_to_collection(key, outputs)
    return outputs


@export("contrib.slim.utils.append_tensor_alias")
def append_tensor_alias(tensor: Any, alias: str) -> Any:
    """Return the tensor, after giving it one more alias."""
    alias = alias.removesuffix("/")
    tensor.aliases = [*getattr(tensor, "aliases", []), alias]
    return tensor


@export("contrib.slim.utils.get_tensor_aliases")
def get_tensor_aliases(tensor: Any) -> list[str]:
    """Return a tensor's aliases; if it has none, its name."""
    if hasattr(tensor, "aliases"):
        return tensor.aliases
    return [tensor.name.removesuffix(":0")]


@export("contrib.slim.utils.gather_tensors_aliases")
def gather_tensors_aliases(tensors: Any) -> list[str]:
    """Return the aliases of all tensors."""
    return [alias for tensor in tensors for alias in get_tensor_aliases(tensor)]


@export("contrib.slim.utils.convert_collection_to_dict")
def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> dict[str, Any]:
    """Return the tensors of a collection by their aliases; with `clear_collection`, empty it."""
    graph = get_default_graph()
    tensors = graph.get_collection(collection)
    if clear_collection:
        graph.clear_collection(collection)
    return OrderedDict((alias, t) for t in tensors for alias in get_tensor_aliases(t))


@export("contrib.slim.utils.get_variable_collections")
def variable_collections(collections: Any, name: str) -> Any:
    """Return the collections of a variable: all of them, or a dict's entry for its name."""
    return collections.get(name) if isinstance(collections, Mapping) else collections


def _keys(collections: Any) -> list[str]:
    return [collections] if isinstance(collections, str) else list(collections)


# -- Numbers, sizes and branches -------------------------------------------------------------------


@export("contrib.slim.utils.constant_value")
def constant_value(value_or_tensor_or_var: Any, dtype: Any = None) -> Any:
    """Return the value if it's known while the graph is built, else None."""
    value = value_or_tensor_or_var
    if value is None:
        raise ValueError("value_or_tensor_or_var cannot be None")
    if isinstance(value, bool):
        return value
    found = smart_constant_value(value)
    if dtype is not None and getattr(value, "dtype", dtype) != dtype:
        raise ValueError(f"It has the wrong type {value.dtype} instead of {dtype}")
    return found


@export("contrib.slim.utils.smart_cond")
def either(pred: Any, fn1: Callable[[], Any], fn2: Callable[[], Any], name: Any = None) -> Any:
    """Return fn1() if `pred`, else fn2(); only one branch is built if `pred` is known."""
    return smart_cond(pred, fn1, fn2, name=name)


@export("contrib.slim.utils.static_cond")
def static_cond(pred: Any, fn1: Callable[[], Any], fn2: Callable[[], Any]) -> Any:
    """Return fn1() if `pred`, a bool, else fn2()."""
    if not callable(fn1):
        raise TypeError("fn1 must be callable.")
    if not callable(fn2):
        raise TypeError("fn2 must be callable.")
    return fn1() if pred else fn2()


@export("contrib.slim.utils.last_dimension")
def last_dimension(shape: Any, min_rank: int = 1) -> int:
    """Return the size of the last axis, which must be known."""
    return _dimension(TensorShape(shape), -1, min_rank)


@export("contrib.slim.utils.channel_dimension")
def channel_dimension(shape: Any, data_format: str, min_rank: int = 1) -> int:
    """Return the size of the channels' axis, which must be known."""
    return _dimension(TensorShape(shape), 1 if data_format == "NCHW" else -1, min_rank)


def _dimension(shape: TensorShape, axis: int, min_rank: int) -> int:
    if shape.ndims is None:
        raise ValueError("dims of shape must be known but is None")
    if shape.ndims < min_rank:
        raise ValueError(f"rank of shape must be at least {min_rank} not: {shape.ndims}")
    size = shape[axis].value
    if size is None:
        what = "last dimension shape" if axis == -1 else f"dimension {axis}"
        raise ValueError(f"{what} must be known but is None")
    return size


@export("contrib.slim.utils.two_element_tuple")
def two_element_tuple(int_or_tuple: Any) -> tuple[int, int]:
    """Return two ints: those of a list, or a single int twice."""
    if isinstance(int_or_tuple, list | tuple):
        if len(int_or_tuple) != 2:
            raise ValueError(f"Must be a list with 2 elements: {int_or_tuple}")
        return int(int_or_tuple[0]), int(int_or_tuple[1])
    if isinstance(int_or_tuple, int):
        return int_or_tuple, int_or_tuple
    if isinstance(int_or_tuple, TensorShape) and int_or_tuple.ndims == 2:
        return _dimension(int_or_tuple, 0, 2), _dimension(int_or_tuple, 1, 2)
    raise ValueError("Must be an int, a list with 2 elements or a TensorShape of length 2")


@export("contrib.slim.utils.n_positive_integers")
def n_positive_integers(n: int, value: Any) -> tuple[int, ...]:
    """Return n positive ints: those of a list, or a single int n times."""
    if n <= 0 or int(n) != n:
        raise ValueError(f"n must be a positive integer: {n}")
    values = (int(value),) * n if isinstance(value, int) else tuple(int(v) for v in value)
    if len(values) != n:
        raise ValueError(f"Expected sequence of {n} positive integers: {value}")
    if any(v <= 0 for v in values):
        raise ValueError(f"expected positive integers: {value}")
    return values
