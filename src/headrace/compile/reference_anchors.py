"""What the anchors' geometries mean, in NumPy. In: a geometry and the op's inputs. Out: arrays.

Everything that decides a result must be in the geometry: attributes aren't looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.graph.anchors import Contraction

__all__ = ["run_anchor"]

Arrays = list[np.ndarray]


def run_anchor(geometry: Any, inputs: Sequence[np.ndarray]) -> Arrays:
    """The outputs of an anchor."""
    return _RUN[type(geometry)](geometry, inputs)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _contraction(g: Contraction, inputs: Sequence[np.ndarray]) -> Arrays:
    x, y = (_wide(v) for v in inputs)
    x = np.broadcast_to(x, (*g.batch, *x.shape[-2:]))
    y = np.broadcast_to(y, (*g.batch, *y.shape[-2:]))
    x = np.swapaxes(x, -1, -2) if g.transpose_x else x
    y = np.swapaxes(y, -1, -2) if g.transpose_y else y
    assert x.shape == (*g.batch, g.m, g.k) and y.shape == (*g.batch, g.k, g.n)
    return [np.einsum("...mk,...kn->...mn", x, y).astype(inputs[0].dtype)]


_RUN: dict[type, Callable[..., Arrays]] = {Contraction: _contraction}
