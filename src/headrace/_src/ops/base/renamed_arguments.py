"""Arguments of public functions that were renamed during TensorFlow 1's releases."""

from __future__ import annotations

from typing import Any

__all__ = ["renamed_argument"]


def renamed_argument(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """Return the value of an argument given by its old or its new name; ValueError if both are."""
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"Cannot specify both '{old_name}' and '{new_name}'")
    return old
