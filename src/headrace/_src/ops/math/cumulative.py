"""Cumulative sums, products and logarithms of sums of exponentials along an axis.

`exclusive` leaves an element's own value out of its result; `reverse` accumulates from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import anchors
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r, typed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.sum_precision import lowest, widened

__all__ = ["cumprod", "cumsum", "cumulative_logsumexp"]


def _checked_axis(axis: Any, rank: int) -> int:
    if np.ndim(axis):
        raise ValueError(f"ScanOp: axis must be a scalar, not {np.shape(axis)}")
    if not -rank <= int(axis) < rank:
        raise ValueError(
            f"ScanOp: Expected scan axis in the range [{-rank}, {rank}), but got {int(axis)}"
        )
    return int(axis) % rank


def _running(
    accumulate: Callable[..., Any], first: Callable[[np.dtype], Any]
) -> Callable[..., Any]:
    """Return an accumulating kernel; `first` gives the initial value of an exclusive run."""

    def kernel(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
        axis = _checked_axis(axis, np.ndim(x))
        whole = (slice(None),) * axis
        backward = (*whole, slice(None, None, -1))
        source = x[backward] if reverse else x
        if exclusive and source.shape[axis]:
            result = np.empty(x.shape, x.dtype)
            result[(*whole, slice(0, 1))] = first(x.dtype)
            last = source[(*whole, slice(0, -1))]
            result[(*whole, slice(1, None))] = accumulate(widened(last), axis)
        else:
            wide = widened(source)
            result = accumulate(wide, axis).astype(x.dtype, copy=False)
        return result[backward] if reverse else result

    return kernel


def _infer(c: Any, x: TensorShape, axis: TensorShape) -> TensorShape:
    return x


_INCLUSIVE = [Sample(r(2, 3), 1), Sample(r(2, 3), -1, reverse=True)]
_EXCLUSIVE = [
    Sample(r(3, 2), 0, exclusive=True),
    Sample(r(2, 3, 2), 1, exclusive=True, reverse=True),
    Sample(r(2, 0), 1, exclusive=True),
]


def _scan_op(
    op_type: str,
    types: str,
    kernel: Callable[..., Any],
    gradient: Callable[..., Any],
    samples: list[Sample],
    lower: Anchor | None = None,
    precision: Precision | None = None,
) -> Any:
    return define(
        op_type,
        "x: T, axis: Tidx -> out: T",
        f"exclusive: bool = False; reverse: bool = False; T: {types}; Tidx: {{index}} = int32",
        infer=_infer,
        kernel=kernel,
        gradient=gradient,
        samples=samples,
        lower=lower,
        precision=precision,
    )


def _options(op: Any) -> dict[str, Any]:
    """Return the arguments of the run in the opposite direction."""
    return {
        "axis": op.inputs[1],
        "exclusive": op.get_attr("exclusive"),
        "reverse": not op.get_attr("reverse"),
    }


def _cumsum_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    return b.cumsum(dy, **_options(op)), None


@_scan_op(
    "Cumsum",
    "{numbers}",
    _running(lambda x, axis: np.cumsum(x, axis, x.dtype), lambda dtype: dtype.type(0)),
    _cumsum_gradient,
    _INCLUSIVE + _EXCLUSIVE,
    lower=Anchor("scan", anchors.running_sum),
    precision=Precision.WIDE,
)
def cumsum_op(x, axis, exclusive=None, reverse=None, name=None):
    """Return the running sum along an axis."""


@counted(4)
def _cumprod_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """Element i is a factor of every product that includes it: sum dy * product / x_i
    over those.
    """
    x, y = b.conj(op.inputs[0]), b.conj(op.outputs[0])
    return b.realdiv(b.cumsum(b.multiply(y, dy), **_options(op)), x), None


@_scan_op(
    "Cumprod",
    "{numbers}",
    _running(lambda x, axis: np.cumprod(x, axis, x.dtype), lambda dtype: dtype.type(1)),
    _cumprod_gradient,
    _INCLUSIVE + _EXCLUSIVE,
    lower=Anchor("scan", anchors.running_product),
    precision=Precision.WIDE,
)
def cumprod_op(x, axis, exclusive=None, reverse=None, name=None):
    """Return the running product along an axis."""


def _logsumexp_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    """Sum dy_j * exp(x_i - y_j): its positive and negative parts, each in log space."""
    x, y = op.inputs[0], op.outputs[0]
    nothing = b.fill(b.shape(dy), b.constant(dy.dtype.min, dy.dtype.base_dtype))
    zeros = b.zeros_like(dy)

    def part(chosen: Tensor, amount: Tensor) -> Tensor:
        logs = b.where(chosen, b.log(amount), nothing)
        run = b.cumulative_logsumexp(b.subtract(logs, y), **_options(op))
        return b.exp(b.add_v2(run, x))

    positive = part(b.greater(dy, zeros), dy)
    negative = part(b.less(dy, zeros), b.negative(dy))
    return b.subtract(positive, negative), None


_run_of_logs = _running(np.logaddexp.accumulate, lowest)


def _cumulative_logsumexp(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
    """The run starts from the lowest finite number, so that it is never -inf: the gradient
    subtracts from it.
    """
    finite = np.maximum(x, x.dtype.type(lowest(x.dtype)))
    return _run_of_logs(finite, axis, exclusive=exclusive, reverse=reverse)


@_scan_op(
    "CumulativeLogsumexp",
    "{float16|float32|float64}",
    _cumulative_logsumexp,
    _logsumexp_gradient,
    # Exclusive runs start with a number so low that finite differences lose all precision.
    _INCLUSIVE + typed(_EXCLUSIVE, "float32", "float16"),
)
def cumulative_logsumexp_op(x, axis, exclusive=None, reverse=None, name=None):
    """Return the logarithm of the running sum of exponentials along an axis."""


def _scan(
    op: Callable[..., Any], default: str, x: Any, axis: Any, name: str | None, **way: bool
) -> Tensor:
    with name_scope(name, default, [x]) as scope:
        return op(convert_to_tensor(x, name="x"), axis, name=scope, **way)


@composed
@export("cumsum", "math.cumsum")
def cumsum(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the running sum of x along an axis.

    exclusive: leave an element's own value out of its result. reverse: accumulate from the end.
    """
    return _scan(cumsum_op, "Cumsum", x, axis, name, exclusive=exclusive, reverse=reverse)


@composed
@export("cumprod", "math.cumprod")
def cumprod(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the running product of x along an axis.

    exclusive: leave an element's own value out of its result. reverse: accumulate from the end.
    """
    return _scan(cumprod_op, "Cumprod", x, axis, name, exclusive=exclusive, reverse=reverse)


@composed
@export("math.cumulative_logsumexp")
def cumulative_logsumexp(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the logarithm of the running sum of the exponentials of x along an axis.

    exclusive: leave an element's own value out of its result. reverse: accumulate from the end.
    """
    way = {"exclusive": exclusive, "reverse": reverse}
    return _scan(cumulative_logsumexp_op, "CumulativeLogsumexp", x, axis, name, **way)
