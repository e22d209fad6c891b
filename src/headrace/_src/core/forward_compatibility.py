"""Questions of programs that want graphs to be readable by older releases: tf.compat's functions.

In: dates. Out: whether ops of that date may be used. State: the horizon, TensorFlow 1.15.5's date
unless a program moves it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace._src.core.export import export

__all__ = ["forward_compatibility_horizon", "forward_compatible", "path_to_str"]

_HORIZON = [datetime.date(2019, 8, 21)]


@export("compat.forward_compatible")
def forward_compatible(year: int, month: int, day: int) -> bool:
    """Return whether graphs may contain what was added by a date."""
    return _HORIZON[-1] > datetime.date(year, month, day)


@export("compat.forward_compatibility_horizon")
@contextmanager
def forward_compatibility_horizon(year: int, month: int, day: int) -> Iterator[None]:
    """Let another date be the horizon inside."""
    _HORIZON.append(datetime.date(year, month, day))
    try:
        yield
    finally:
        _HORIZON.pop()


@export("compat.path_to_str")
def path_to_str(path: Any) -> Any:
    """Return a path object as a string, and anything else unchanged."""
    return str(path) if isinstance(path, os.PathLike) else path
