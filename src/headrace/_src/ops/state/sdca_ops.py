"""Parts of stochastic dual coordinate ascent (SDCA). In: names of examples, or weights. Out:
fingerprints of the names; smaller weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import Effect, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.state.ref_variable_ops import state_of
from headrace._src.ops.strings.fingerprint128 import fingerprint128
from headrace._src.ops.strings.string_arrays import string_array

__all__ = ["sdca_fprint", "sdca_shrink_l1"]


def _fprint_kernel(input):
    texts = string_array(input)
    if texts.ndim > 1:
        raise ValueError(f"Input must be a vector, got shape {show_shape(texts.shape)}")
    words = [fingerprint128(text) for text in texts.ravel().tolist()]
    return np.array(words, np.uint64).view(np.int64).reshape(-1, 2)


def _fprint_infer(c: Any, texts: Any) -> Any:
    infer.with_rank(texts, 1)
    return (None if texts.sizes is None else texts.sizes[0], 2)


@export("train.sdca_fprint")
@define(
    "SdcaFprint",
    "input: string -> output: int64",
    infer=_fprint_infer,
    kernel=_fprint_kernel,
    samples=[Sample(["", "a", "longer text, of more than a few bytes"]), Sample(r(0))],
)
def sdca_fprint(input, name=None):
    """Return the fingerprint of 128 bits of each string, as int64[n, 2]."""


def _shrink_kernel(weights, *, l1, l2):
    least = np.float32(l1) / np.float32(l2)
    for ref in weights:
        state = state_of(ref)
        with state.lock:
            value = state.look()
            state.assign(np.sign(value) * np.maximum(np.abs(value) - least, np.float32(0)))


@export("train.sdca_shrink_l1")
@define(
    "SdcaShrinkL1",
    "weights: Ref(num_features*float32) ->",
    "num_features: int >= 0; l1: float; l2: float",
    infer=infer.no_outputs,
    kernel=_shrink_kernel,
    effect=Effect.WRITES,
    samples=[Sample([r(2, 3), r(2)], l1=0.5, l2=1.0)],
)
def sdca_shrink_l1(weights, l1, l2, name=None):
    """Move the weights towards zero by l1 / l2, and no further than zero."""
