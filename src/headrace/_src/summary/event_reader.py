"""Reading event files. In: the path of one. Out: its Events."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.records import tf_record_iterator

__all__ = ["summary_iterator"]


@export("train.summary_iterator")
def summary_iterator(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yield the Events of a file; DataLossError where it is damaged."""
    for record in tf_record_iterator(path):
        yield proto.Event.FromString(record)
