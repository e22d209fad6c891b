"""Arguments of public functions that have changed their names over TensorFlow 1's releases."""

from __future__ import annotations

from typing import Any

__all__ = ["renamed_argument"]


def renamed_argument(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """The value of an argument that may be given by either name; ValueError if it is by both."""
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'")
    return old
