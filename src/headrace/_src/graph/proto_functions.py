"""How collections of objects are saved: for each, a message type and functions from and to it.

`register_proto_function("variables", "VariableDef", to_proto=..., from_proto=...)` registers
variables. The message type may be a name in `headrace._src.core.proto`, so that registering loads
no protobuf.

`to_proto(item, export_scope=...)` returns a message, or None to leave the item out;
`from_proto(message, import_scope=...)` returns the item for the collection. Scopes are None or
names without a trailing slash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headrace._src.core import proto

__all__ = ["ProtoFunctions", "proto_functions", "register_proto_function"]


class ProtoFunctions(NamedTuple):
    """The functions registered for one collection."""

    proto_type: Any
    to_proto: Callable[..., Any] | None
    from_proto: Callable[..., Any] | None

    @property
    def message(self) -> type:
        """The message class."""
        if isinstance(self.proto_type, str):
            return getattr(proto, self.proto_type)
        return self.proto_type


_registered: dict[str, ProtoFunctions] = {}


def register_proto_function(
    collection_name: str,
    proto_type: Any = None,
    to_proto: Callable[..., Any] | None = None,
    from_proto: Callable[..., Any] | None = None,
) -> None:
    """Register how the items of a collection are saved and restored; once per collection."""
    for function in (to_proto, from_proto):
        if function is not None and not callable(function):
            raise TypeError(f"to_proto and from_proto must be callable, not {function!r}")
    if from_proto is not None and proto_type is None:
        raise ValueError(f"collection {collection_name}: from_proto needs a proto_type")
    if collection_name in _registered:
        raise KeyError(f"collection {collection_name} is registered twice")
    _registered[collection_name] = ProtoFunctions(proto_type, to_proto, from_proto)


def proto_functions(collection_name: str) -> ProtoFunctions:
    """Return the functions registered for a collection (all None if there are none)."""
    return _registered.get(collection_name, _NOTHING)


_NOTHING = ProtoFunctions(None, None, None)
