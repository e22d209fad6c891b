"""Converting flat indices to coordinates."""

from __future__ import annotations

import numpy as np

from headrace._src.core.export import export
from headrace._src.graph.definition import Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define

__all__ = ["unravel_index"]


def _unravel(indices, dims):
    sizes = np.asarray(dims)
    if sizes.ndim != 1:
        raise ValueError(f"dims must be a vector, not of shape {list(sizes.shape)}")
    count = int(np.prod(sizes, dtype=np.int64))
    flat = np.asarray(indices)
    if flat.ndim > 1:
        raise ValueError(f"indices must be a scalar or a vector, not of shape {list(flat.shape)}")
    if flat.size and not (flat.min() >= 0 and flat.max() < count):
        raise ValueError(f"index is out of bound as with dims: {sizes.tolist()}")
    return np.stack(np.unravel_index(flat, sizes.tolist())).astype(sizes.dtype)


def _unravel_infer(c, indices, dims):
    infer.with_rank(dims, 1)
    if indices.sizes is None:
        return None
    return (*dims.with_rank(1).as_list(), *indices.sizes)


@export("unravel_index")
@define(
    "UnravelIndex",
    "indices: Tidx, dims: Tidx -> output: Tidx",
    "Tidx: {index} = int32",
    infer=_unravel_infer,
    kernel=_unravel,
    samples=[Sample([2, 5, 7], [3, 3]), Sample(4, [5])],
)
def unravel_index(indices, dims, name=None):
    """Return the coordinates, one row per dimension, of flat indices in an array of `dims`."""
