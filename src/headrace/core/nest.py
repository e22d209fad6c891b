"""Nests of lists, tuples, named tuples and dicts (by sorted key): flatten them, map over them,
build them again.

optree does the work; what is ours is TensorFlow's idea of a leaf: None is one, and so is anything
that isn't a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headrace.core.export import export

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


@export("nest.is_nested")
def is_nested(seq: Any) -> bool:
    """Whether `seq` is a container of a nest: a list, tuple or dict."""
    return isinstance(seq, list | tuple | dict)


@export("nest.flatten")
def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Return the leaves of a nest, in order; composite tensors are leaves, or their parts if asked
    for.
    """
    import optree

    leaves = optree.tree_leaves(structure, none_is_leaf=True)
    return [part for leaf in leaves for part in _parts(leaf)] if expand_composites else leaves


def _parts(leaf: Any) -> list[Any]:
    if hasattr(leaf, "dense_shape") and hasattr(leaf, "indices"):
        shape = [] if leaf.dense_shape is None else [leaf.dense_shape]
        return [leaf.indices, leaf.values, *shape]
    return [leaf]


@export("nest.pack_sequence_as")
def pack_sequence_as(structure: Any, flat_sequence: Iterable[Any]) -> Any:
    """Return a nest like `structure` with the leaves of `flat_sequence`; ValueError if their count
    differs.
    """
    import optree

    flat = list(flat_sequence)
    treespec = optree.tree_structure(structure, none_is_leaf=True)
    if treespec.num_leaves != len(flat):
        raise ValueError(
            f"Could not pack sequence. Structure had {treespec.num_leaves} elements, but "
            f"flat_sequence had {len(flat)} elements."
        )
    return optree.tree_unflatten(treespec, flat)


@export("nest.map_structure")
def map_structure(func: Callable[..., Any], *structure: Any, check_types: bool = True) -> Any:
    """Return a nest of `func` of the corresponding leaves of nests of one structure."""
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types=check_types)
    results = [func(*leaves) for leaves in zip(*map(flatten, structure), strict=True)]
    return pack_sequence_as(structure[0], results)


@export("nest.assert_same_structure")
def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Raise ValueError if two nests differ in structure, TypeError if only in the types of
    containers.
    """
    if is_nested(nest1) != is_nested(nest2) or (
        is_nested(nest1)
        and (len(nest1) != len(nest2) or isinstance(nest1, dict) != isinstance(nest2, dict))
    ):
        raise ValueError(
            f"The two structures don't have the same nested structure.\n\n"
            f"First structure: {nest1}\n\nSecond structure: {nest2}"
        )
    if not is_nested(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise TypeError(
            f"The two structures don't have the same sequence type. First structure has type "
            f"{type(nest1)}, while second structure has type {type(nest2)}."
        )
    if isinstance(nest1, dict):
        if set(nest1) != set(nest2):
            raise ValueError(
                f"The two dictionaries don't have the same keys: {set(nest1) ^ set(nest2)}"
            )
        pairs = [(nest1[k], nest2[k]) for k in nest1]
    else:
        pairs = list(zip(nest1, nest2, strict=True))
    for a, b in pairs:
        assert_same_structure(a, b, check_types)
