"""Check gradients by finite differences. In: tensors x and y, where y depends on x. Out: the
Jacobian matrix of y, once from tf.gradients and once from running y for slightly different x.

A complex element counts as two real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.gradients.gradients import gradients
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import default_session
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.to_tensor import constant, convert_to_tensor

__all__ = ["compute_gradient", "compute_gradient_error"]

_SUPPORTED = (
    *(dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
    *(dtypes.complex64, dtypes.complex128),
)


@export("test.compute_gradient")
def compute_gradient(
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Sequence[int],
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> Any:
    """Return two Jacobian matrices of `y`, a row per element of `x` and a column per element of
    `y`: from its gradient, and from differences; a list of such pairs if `x` is a list.

    x_shape, y_shape: the shapes, or a list of them for a list of `x`. x_init_value: the point at
    which to differentiate; random numbers by default. delta: how far `x` is moved. init_targets:
    operations to run first. extra_feed_dict: further feeds. The default session runs everything.
    """
    session = default_session()
    if session is None:
        raise ValueError("compute_gradient runs steps: open a session first")
    for target in init_targets if isinstance(init_targets, list | tuple) else [init_targets]:
        if target is not None:
            session.run(target)
    many = isinstance(x, list)
    tensors = x if many else [x]
    shapes = x_shape if many else [x_shape]
    if x_init_value is None:
        values = [_anywhere(t, s) for t, s in zip(tensors, shapes, strict=True)]
    else:
        values = x_init_value if many else [x_init_value]
    feeds = dict(extra_feed_dict or {})
    for tensor, value in zip(tensors, values, strict=True):
        feeds[tensor] = np.array(value, convert_to_tensor(tensor).dtype.as_numpy_dtype)
    found = [
        (
            _by_gradient(session, t, y, y_shape, feeds),
            _by_differences(session, t, y, y_shape, feeds, delta),
        )
        for t in tensors
    ]
    return found if many else found[0]


@export("test.compute_gradient_error")
def compute_gradient_error(
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Sequence[int],
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> float:
    """Return the largest difference between the Jacobian matrices of `compute_gradient`."""
    found = compute_gradient(
        x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict
    )
    pairs = found if isinstance(found, list) else [found]
    return max((np.abs(a - b).max() for a, b in pairs if a.size), default=0.0)


def _anywhere(tensor: Tensor, shape: Sequence[int]) -> np.ndarray:
    value = np.random.random_sample(tuple(shape))
    if tensor.dtype.base_dtype.is_complex:
        value = value + 1j * np.random.random_sample(tuple(shape))
    return value


def _real(array: np.ndarray) -> np.ndarray:
    """Flatten an array to real numbers; each complex number becomes its two parts."""
    return _real_view(np.ascontiguousarray(array))


def _checked(tensor: Tensor, name: str) -> np.dtype:
    dtype = tensor.dtype.base_dtype
    if dtype not in _SUPPORTED:
        raise AssertionError(f"Don't support type {dtype.name} for {name}")
    return np.dtype(dtype.as_numpy_dtype)


def _by_gradient(session: Any, x: Tensor, y: Tensor, y_shape: Any, feeds: Any) -> np.ndarray:
    kind, wanted = _checked(x, "x"), _checked(y, "y")
    start = constant(np.ones(tuple(y_shape), wanted))
    (gradient,) = gradients(y, [x], grad_ys=start)
    x_count = _real(feeds[x]).size
    y_count = _real(np.empty(tuple(y_shape), wanted)).size
    jacobian = np.zeros((x_count, y_count), _real(np.empty(0, kind)).dtype)
    if gradient is None:
        return jacobian
    for column in range(y_count):
        one = np.zeros(tuple(y_shape), wanted)
        _real_view(one)[column] = 1
        value = session.run(gradient, {**feeds, start: one})
        is_rows = isinstance(gradient, IndexedSlices)
        jacobian[:, column] = _real(_dense(value, feeds[x]) if is_rows else value)
    return jacobian


def _real_view(array: np.ndarray) -> np.ndarray:
    """Return a flat view of the same memory."""
    flat = array.reshape(-1)
    return flat.view(f"f{flat.itemsize // 2}") if flat.dtype.kind == "c" else flat


def _dense(rows: Any, like: np.ndarray) -> np.ndarray:
    found = np.zeros_like(like)
    np.add.at(found, rows.indices, rows.values)
    return found


def _by_differences(
    session: Any, x: Tensor, y: Tensor, y_shape: Any, feeds: Any, delta: float
) -> np.ndarray:
    wanted = _checked(y, "y")
    base = _real_view(feeds[x])
    y_count = _real(np.empty(tuple(y_shape), wanted)).size
    jacobian = np.zeros((base.size, y_count), base.dtype)
    for row in range(base.size):
        ends = []
        for step in (-delta, delta):
            moved = feeds[x].copy()
            _real_view(moved)[row] += step
            ends.append(_real(session.run(y, {**feeds, x: moved})))
        jacobian[row] = (ends[1] - ends[0]) / (2 * delta)
    return jacobian
