"""Nests of sequences, named tuples, mappings and their views: flatten, map over and rebuild them.

The leaves come in order; those of a mapping are ordered by sorted key, not by the mapping's own
order. None is a leaf, and so is anything that isn't a container. Values that are made of several
tensors are leaves too, unless their parts are asked for.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from typing import Any

from headrace._src.core.export import export

__all__ = [
    "assert_same_structure",
    "flatten",
    "flatten_dict_items",
    "is_nested",
    "map_structure",
    "pack_sequence_as",
]

# Lists and tuples come first: most nests consist of them.
_CONTAINERS = (list, tuple, Mapping, Sequence, MappingView)


@export("nest.is_nested", "contrib.framework.nest.is_nested", "contrib.framework.nest.is_sequence")
def is_nested(seq: Any) -> bool:
    """Return whether `seq` is a container of a nest: a sequence, a mapping, a view of one, or an
    object of a class that attrs made.

    Strings, bytes and arrays are leaves, and so are sets, which have no order.
    """
    if isinstance(seq, _CONTAINERS):
        return not isinstance(seq, str | bytes | array)
    return hasattr(type(seq), "__attrs_attrs__")


@export("nest.flatten", "contrib.framework.nest.flatten")
def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Return the leaves of a nest, in order; with `expand_composites`, the parts of composites."""
    return list(_leaves(structure, expand_composites))


def _leaves(structure: Any, expand: bool) -> Iterator[Any]:
    if is_nested(structure):
        for child in _children(structure):
            yield from _leaves(child, expand)
    elif expand and hasattr(structure, "components"):
        yield from structure.components()
    else:
        yield structure


def _children(structure: Any) -> list[Any]:
    if isinstance(structure, Mapping):
        return [structure[key] for key in sorted(structure)]
    if hasattr(type(structure), "__attrs_attrs__"):
        return [getattr(structure, field.name) for field in type(structure).__attrs_attrs__]
    return list(structure)


@export("nest.pack_sequence_as", "contrib.framework.nest.pack_sequence_as")
def pack_sequence_as(
    structure: Any, flat_sequence: Iterable[Any], expand_composites: bool = False
) -> Any:
    """Return a nest like `structure` whose leaves are the elements of `flat_sequence`."""
    if not is_nested(flat_sequence):
        raise TypeError("flat_sequence must be a sequence")
    flat, count = list(flat_sequence), len(flatten(structure, expand_composites))
    if count != len(flat):
        raise ValueError(
            f"Could not pack sequence. Structure had {count} elements, but flat_sequence had "
            f"{len(flat)} elements.  Structure: {structure}, flat_sequence: {flat_sequence}."
        )
    return _pack(structure, iter(flat), expand_composites)


def _pack(structure: Any, leaves: Iterator[Any], expand: bool) -> Any:
    if not is_nested(structure):
        if expand and hasattr(structure, "components"):
            return structure.with_components([next(leaves) for _ in structure.components()])
        return next(leaves)
    children = [_pack(child, leaves, expand) for child in _children(structure)]
    if isinstance(structure, Mapping):
        found = dict(zip(sorted(structure), children, strict=True))
        pairs = [(key, found[key]) for key in structure]
        if isinstance(structure, defaultdict):
            return defaultdict(structure.default_factory, pairs)
        return type(structure)(pairs)  # type: ignore[call-arg]
    if isinstance(structure, MappingView | range):  # neither type can be built from its elements
        return children
    kind: Any = type(structure)
    takes_parts = hasattr(structure, "_fields") or hasattr(kind, "__attrs_attrs__")
    return kind(*children) if takes_parts else kind(children)


@export("nest.map_structure", "contrib.framework.nest.map_structure")
def map_structure(
    func: Callable[..., Any],
    *structure: Any,
    check_types: bool = True,
    expand_composites: bool = False,
) -> Any:
    """Return a nest of `func` of the corresponding leaves of nests of one structure."""
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types, expand_composites)
    leaves = zip(*(flatten(s, expand_composites) for s in structure), strict=True)
    return pack_sequence_as(structure[0], [func(*args) for args in leaves], expand_composites)


@export("nest.assert_same_structure", "contrib.framework.nest.assert_same_structure")
def assert_same_structure(
    nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Raise ValueError if two nests differ in structure, TypeError if only in their containers."""
    if is_nested(nest1) != is_nested(nest2):
        raise _differ(ValueError, nest1, nest2)
    if not is_nested(nest1):
        if expand_composites and _kind(nest1) != _kind(nest2):
            raise _differ(ValueError, nest1, nest2)
        return
    mappings = isinstance(nest1, Mapping), isinstance(nest2, Mapping)
    children1, children2 = _children(nest1), _children(nest2)
    if len(children1) != len(children2) or mappings[0] != mappings[1]:
        raise _differ(ValueError, nest1, nest2)
    if mappings[0]:
        if set(nest1) != set(nest2):
            raise _differ(ValueError, nest1, nest2)
    elif check_types and type(nest1) is not type(nest2):
        raise _differ(TypeError, nest1, nest2, "the same sequence type")
    for a, b in zip(children1, children2, strict=True):
        assert_same_structure(a, b, check_types, expand_composites)


@export("contrib.framework.nest.flatten_dict_items")
def flatten_dict_items(dictionary: Any) -> dict[Any, Any]:
    """Return a dict in which a key that is a nest is replaced by its leaves, each mapped to the
    corresponding leaf of the value. Values of other keys don't change.
    """
    if not isinstance(dictionary, Mapping):
        raise TypeError("input must be a dictionary")
    flat: dict[Any, Any] = {}
    for key, value in dictionary.items():
        keys, values = (flatten(key), flatten(value)) if is_nested(key) else ([key], [value])
        if len(keys) != len(values):
            raise ValueError(
                f"Could not flatten dictionary. Key had {len(keys)} elements, but value had "
                f"{len(values)} elements. Key: {keys}, value: {values}."
            )
        for k, v in zip(keys, values, strict=True):
            if k in flat:
                raise ValueError(f"Could not flatten dictionary: key {k} is not unique.")
            flat[k] = v
    return flat


def _kind(leaf: Any) -> Any:
    """Return the property that two leaves must share for their parts to correspond."""
    return (type(leaf), len(leaf.components())) if hasattr(leaf, "components") else None


def _differ(
    kind: type[Exception], nest1: Any, nest2: Any, what: str = "the same nested structure"
) -> Exception:
    return kind(
        f"The two structures don't have {what}.\n\nFirst structure: type={type(nest1).__name__} "
        f"str={nest1}\n\nSecond structure: type={type(nest2).__name__} str={nest2}"
    )
