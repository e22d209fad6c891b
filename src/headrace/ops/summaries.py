"""Summaries: numbers about a step, as the protocol buffers that event files are made of."""

from __future__ import annotations

import numpy as np

from headrace.core import proto
from headrace.core.errors import InvalidArgumentError
from headrace.core.shapes import show_shape
from headrace.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace.ops import infer
from headrace.ops.define import define
from headrace.ops.samples import r

__all__ = ["scalar_summary"]


def _scalar_kernel(tags, values):
    if np.shape(tags) != np.shape(values):
        raise InvalidArgumentError(
            None,
            None,
            f"tags and values not the same shape: {show_shape(np.shape(tags))} != "
            f"{show_shape(np.shape(values))}",
        )
    summary = proto.Summary()
    numbers = np.asarray(values).astype(np.float32)
    for tag, number in zip(np.ravel(tags).tolist(), np.ravel(numbers).tolist(), strict=True):
        summary.value.add(tag=tag.decode("utf-8", "replace"), simple_value=number)
    return np.array(summary.SerializeToString(), object)


@define(
    "ScalarSummary",
    "tags: string, values: T -> summary: string",
    "T: {reals}",
    infer=infer.scalar,
    kernel=_scalar_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(b"a", r()), Sample([b"a", b"b"], r(2))],
)
def scalar_summary(tags, values, name=None):
    """Return a serialised Summary with a number for each tag."""
