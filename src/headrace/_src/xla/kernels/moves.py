"""Ops that move elements, where JAX has a function that says more than views do, or where no rule
says it. In: inputs as an op's kernel has them; sizes and axes are NumPy arrays. Out: outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.xla.kernels.faults import check, check_indices
from headrace._src.xla.kernels.rows import scatter_rows

__all__ = ["KERNELS"]


def _concat(values: Sequence[Any], axis: Any) -> Any:
    return jnp.concatenate([jnp.asarray(v) for v in values], int(axis))


def _pack(values: Sequence[Any], *, axis: int) -> Any:
    return jnp.stack([jnp.asarray(v) for v in values], axis)


def _pad(x: Any, paddings: np.ndarray, fill: Any = 0) -> Any:
    x = jnp.asarray(x)
    return jax.lax.pad(x, jnp.asarray(fill, x.dtype), [(int(a), int(b), 0) for a, b in paddings])


def _mirror_pad(x: Any, paddings: np.ndarray, *, mode: str) -> Any:
    return jnp.pad(jnp.asarray(x), paddings.tolist(), mode.lower())


def _mirror_pad_gradient(x: Any, paddings: np.ndarray, *, mode: str) -> Any:
    sizes = [n - int(a) - int(b) for n, (a, b) in zip(x.shape, paddings, strict=True)]
    like = jax.ShapeDtypeStruct(tuple(sizes), x.dtype)
    (result,) = jax.linear_transpose(lambda y: _mirror_pad(y, paddings, mode=mode), like)(x)
    return result


def _space_to_batch(x: Any, sides: np.ndarray, paddings: np.ndarray) -> Any:
    block = [int(b) for b in sides]
    rest = x.ndim - len(block) - 1
    x = jnp.pad(x, [(0, 0), *paddings.tolist(), *[(0, 0)] * rest])
    batch, *sizes = x.shape
    inner = sizes[len(block) :]
    split = [n for size, b in zip(sizes, block, strict=False) for n in (size // b, b)]
    x = x.reshape(batch, *split, *inner)
    blocks = [2 * i + 2 for i in range(len(block))]
    outer = [2 * i + 1 for i in range(len(block))]
    kept = range(2 * len(block) + 1, x.ndim)
    counts = [size // b for size, b in zip(sizes, block, strict=False)]
    return x.transpose(*blocks, 0, *outer, *kept).reshape(batch * prod(block), *counts, *inner)


def _batch_to_space(x: Any, sides: np.ndarray, crops: np.ndarray) -> Any:
    block = [int(b) for b in sides]
    batch, *sizes = x.shape
    count, inner = len(block), sizes[len(block) :]
    x = x.reshape(*block, batch // prod(block), *sizes)
    mixed = [d for i in range(count) for d in (count + 1 + i, i)]
    x = x.transpose(count, *mixed, *range(2 * count + 1, x.ndim))
    full = [n * b for n, b in zip(sizes, block, strict=False)]
    x = x.reshape(batch // prod(block), *full, *inner)
    cut = [slice(int(a), n - int(b)) for n, (a, b) in zip(full, crops, strict=True)]
    return x[(slice(None), *cut)]


def _invert_permutation(x: Any) -> Any:
    x = jnp.asarray(x)
    check_indices(x, len(x))
    check(jnp.any(jnp.sort(x) != jnp.arange(len(x), dtype=x.dtype)))
    return jnp.zeros_like(x).at[x].set(jnp.arange(len(x), dtype=x.dtype))


def _roll(x: Any, shift: Any, axis: np.ndarray) -> Any:
    x = jnp.asarray(x)
    for by, along in zip(jnp.asarray(shift).reshape(-1), axis.reshape(-1), strict=True):
        x = jnp.roll(x, by, int(along))
    return x


def _reverse_sequence(x: Any, lengths: Any, *, seq_dim: int, batch_dim: int) -> Any:
    x, lengths = jnp.asarray(x), jnp.asarray(lengths)
    check(jnp.any((lengths < 0) | (lengths > x.shape[seq_dim])))
    at = jnp.arange(x.shape[seq_dim])
    ends = lengths[:, None]
    places = jnp.where(at < ends, ends - 1 - at, at)  # [batch, sequence]
    places = places if batch_dim < seq_dim % x.ndim else places.T
    axes = sorted((batch_dim % x.ndim, seq_dim % x.ndim))
    shape = [n if d in axes else 1 for d, n in enumerate(x.shape)]
    return jnp.take_along_axis(x, places.reshape(shape), seq_dim, mode="clip")


def _points(shape: Sequence[int], indices: Any) -> tuple[Any, ...]:
    """Indices for .at, one array per axis; each is checked."""
    indices = jnp.asarray(indices)
    for d in range(indices.shape[-1]):
        check_indices(indices[..., d], shape[d])
    return tuple(jnp.moveaxis(indices, -1, 0))


def _scatter_points(how: str) -> Callable[..., Any]:
    def run(x: Any, indices: Any, updates: Any) -> Any:
        x = jnp.asarray(x)
        updates = jnp.asarray(updates, x.dtype)
        return scatter_rows(how, x, _points(x.shape, indices), updates)

    return run


def _scatter_nd(indices: Any, updates: Any, shape: np.ndarray) -> Any:
    zeros = jnp.zeros([int(n) for n in shape], updates.dtype)
    return _scatter_points("Add")(zeros, indices, updates)


def _stitch(indices: Sequence[Any], data: Sequence[Any]) -> Any:
    """Rows by number; of several rows of one number, the last."""
    size = max((int(np.max(i)) + 1 for i in indices if np.size(i)), default=0)
    places = np.concatenate([np.reshape(i, -1) for i in indices])
    inner = data[0].shape[np.ndim(indices[0]) :]
    rows = jnp.concatenate([jnp.asarray(d).reshape(-1, *inner) for d in data])
    last = {int(p): k for k, p in enumerate(places)}
    chosen = np.fromiter(last.values(), np.int64, len(last))
    whole = jnp.zeros((size, *inner), rows.dtype)
    return whole.at[np.fromiter(last, np.int64, len(last))].set(rows[chosen])


def _set_diagonal(x: Any, diagonal: Any) -> Any:
    x = jnp.asarray(x)
    count = min(x.shape[-2:])
    at = np.arange(count)
    return x.at[..., at, at].set(jnp.asarray(diagonal, x.dtype))


def _tile_gradient(x: Any, multiples: np.ndarray) -> Any:
    counts = [int(m) for m in multiples]
    sizes = [n // m for n, m in zip(x.shape, counts, strict=True)]
    split = [n for pair in zip(counts, sizes, strict=True) for n in pair]
    return x.reshape(split).sum(tuple(range(0, 2 * x.ndim, 2)))


def _patches(x: Any, *, ksizes: Any, strides: Any, rates: Any, padding: str) -> Any:
    """Windows of images, each as one vector of its elements."""
    (h, w), (sh, sw), (rh, rw) = ksizes[1:3], strides[1:3], rates[1:3]
    x = jnp.asarray(x)
    eh, ew = (h - 1) * rh + 1, (w - 1) * rw + 1
    if padding == "SAME":
        outs = -(-x.shape[1] // sh), -(-x.shape[2] // sw)
        spare = [
            max((o - 1) * s + e - n, 0)
            for o, s, e, n in zip(outs, (sh, sw), (eh, ew), x.shape[1:3], strict=True)
        ]
        x = jnp.pad(x, [(0, 0), *((p // 2, p - p // 2) for p in spare), (0, 0)])
    else:
        outs = (x.shape[1] - eh) // sh + 1, (x.shape[2] - ew) // sw + 1
    pieces = [
        x[:, a * rh :: sh, b * rw :: sw][:, : outs[0], : outs[1]]
        for a, b in product(range(h), range(w))
    ]
    return jnp.concatenate(pieces, -1)


KERNELS: dict[str, Callable[..., Any]] = {
    "BatchToSpace": lambda x, crops, *, block_size: _batch_to_space(
        jnp.asarray(x), np.array([block_size] * 2), crops
    ),
    "BatchToSpaceND": lambda x, block, crops: _batch_to_space(jnp.asarray(x), block, crops),
    "Concat": lambda axis, values: _concat(values, axis),
    "ConcatV2": _concat,
    "DynamicStitch": _stitch,
    "ExtractImagePatches": _patches,
    "InvertPermutation": _invert_permutation,
    "MatrixSetDiag": _set_diagonal,
    "MirrorPad": _mirror_pad,
    "MirrorPadGrad": _mirror_pad_gradient,
    "Pack": _pack,
    "Pad": _pad,
    "PadV2": _pad,
    "ParallelDynamicStitch": _stitch,
    "ReverseSequence": _reverse_sequence,
    "Roll": _roll,
    "ScatterNd": _scatter_nd,
    "ScatterNdNonAliasingAdd": _scatter_points("Add"),
    "SpaceToBatch": lambda x, paddings, *, block_size: _space_to_batch(
        jnp.asarray(x), np.array([block_size] * 2), paddings
    ),
    "SpaceToBatchND": lambda x, block, paddings: _space_to_batch(jnp.asarray(x), block, paddings),
    "TensorScatterAdd": _scatter_points("Add"),
    "TensorScatterSub": _scatter_points("Sub"),
    "TensorScatterUpdate": _scatter_points("Update"),
    "TileGrad": _tile_gradient,
}
