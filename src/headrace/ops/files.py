"""Names of files."""

from __future__ import annotations

import glob
import os
from typing import Any

import numpy as np

from headrace.core.export import export
from headrace.graph.definition import Effect, Sample
from headrace.ops.define import define

__all__ = ["matching_files"]


def _matching_kernel(pattern):
    found = [p for text in np.ravel(pattern).tolist() for p in glob.glob(os.fsdecode(text))]
    names = np.empty(len(found), object)
    names[:] = [os.fsencode(p) for p in sorted(found)]
    return names


def _matching_infer(c: Any, pattern: Any) -> Any:
    if pattern.sizes is not None and len(pattern.sizes) > 1:
        raise ValueError(f"Shape must be at most rank 1 but is rank {len(pattern.sizes)}")
    return (None,)


@export("matching_files", "io.matching_files")
@define(
    "MatchingFiles",
    "pattern: string -> filenames: string",
    infer=_matching_infer,
    kernel=_matching_kernel,
    effect=Effect.READS,
    samples=[Sample(b"/no/such/place/*"), Sample([b"/no/such/place/*", b"/nor/this"])],
)
def matching_files(pattern, name=None):
    """Return the names of the files that match one of the patterns, sorted. `*` and `?` match
    within one part of a path.
    """
