"""Softmax and log-softmax along the last axis by oneDNN (it has no fast code for other axes)."""

import math

import numpy as np

from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.onednn import library as c
from headrace._src.devices.onednn.primitive_chains import (
    PlanBuilder,
    PrimitiveChain,
    Shape,
    cached,
    common_dtype,
    ready,
    require,
)


@cached
def _softmax_plan(algorithm: int, dtype: int, shape: Shape) -> tuple[PrimitiveChain, Shape]:
    rank = len(shape)
    require(rank > 0 and 0 not in shape, "an array without rows")
    builder = PlanBuilder(estimate_ns=math.prod(shape))  # about 1 ns per element
    layout = builder.dense(shape, range(rank), dtype)
    desc = builder.primitive_desc(
        "softmax_forward", c.FORWARD_INFERENCE, algorithm, layout, layout, rank - 1
    )
    builder.execute(desc, {c.ARG_SRC: builder.array(layout), c.ARG_DST: builder.array(layout)})
    return builder.finish(), shape


def _run(algorithm: int, x: np.ndarray) -> np.ndarray:
    plan, shape = _softmax_plan(algorithm, common_dtype(x), x.shape)
    y = empty_aligned(shape, x.dtype)
    plan.run(ready(x), y)
    # oneDNN leaves a row's other entries as numbers when one is NaN or infinite; the definition
    # makes the whole row NaN. Such a row always holds one NaN, which a sum propagates. The sum of
    # squares is the fastest sum, because BLAS computes it.
    flat = y.reshape(-1)
    total = flat @ flat if y.dtype == np.float32 else y.min()
    require(total == total, "softmax of NaN or infinity")  # NaN is unequal to itself
    return y


def softmax(x: np.ndarray) -> np.ndarray:
    """Return exp(x) / sum(exp(x)) along the last axis."""
    return _run(c.SOFTMAX, x)


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Return x - log(sum(exp(x))) along the last axis."""
    return _run(c.LOG_SOFTMAX, x)
