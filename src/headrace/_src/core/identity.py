"""Reference: use a value as a key. In: any object. Out: a key that equals those of the same object.

A program may ask for tensors to be compared by their elements; they can't be keys then.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Reference"]


class Reference:
    """A reference to an object: hashable, and equal to other references to the very same one."""

    __slots__ = ("_wrapped",)

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def deref(self) -> Any:
        """Return the object."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reference):
            raise TypeError("Cannot compare wrapped object with unwrapped object")
        return self._wrapped is other._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"
