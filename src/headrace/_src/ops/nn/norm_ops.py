"""Bias, batch normalisation and local response normalisation.

The composed public functions (moments, batch_normalization, l2_normalize) are in `moments`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Kind, Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import anchors
from headrace._src.lowering.pointwise import rounded_once
from headrace._src.lowering.rules import Anchor, Elementwise, Reduce, Site, View, broadcast_view
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.math.sum_precision import widened
from headrace._src.ops.nn import norm_kernels

__all__ = ["bias_add", "local_response_normalization"]


# ---- bias ----------------------------------------------------------------------------------------


def _bias_add_infer(c: Any, value: TensorShape, bias: TensorShape) -> Any:
    axis = _bias_axis(c, value)
    bias = bias.with_rank(1)
    if value.sizes is None or axis is None:
        return None
    sizes = list(value.sizes)
    (own,) = bias.as_list()
    if None not in (own, sizes[axis]) and own != sizes[axis]:
        raise ValueError(f"Dimensions must be equal, but are {sizes[axis]} and {own}")
    sizes[axis] = own if sizes[axis] is None else sizes[axis]
    return tuple(sizes)


def _bias_axis(c: Any, value: TensorShape) -> int | None:
    """Return the axis of the channels; None if the rank is not known."""
    if c.attrs.get("data_format") == "NCHW":
        value.with_rank_at_least(3)
        return 1
    value.with_rank_at_least(2)
    return None if value.ndims is None else value.ndims - 1


def _bias_add_grad_infer(c: Any, out_backprop: TensorShape) -> Any:
    axis = _bias_axis(c, out_backprop)
    if out_backprop.sizes is None or axis is None:
        return (None,)
    return (out_backprop.sizes[axis],)


def _bias_add_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    data_format = op._attrs.get("data_format", "NHWC")
    return dy, b.bias_add_grad(dy, data_format=data_format)


@counted(lambda op, grad: 31 if op._attrs["data_format"] == "NCHW" else 20)
def _bias_add_grad_gradient(b: OpBuilder, op: Any, grad: Any) -> Any:
    zeros = b.zeros_like(op.inputs[0])
    return b.bias_add_op(zeros, grad, data_format=op.get_attr("data_format"))


def _channel_axis(site: Site) -> int:
    return 1 if site.attrs["data_format"] == "NCHW" else len(site.input_shapes[0]) - 1


def _bias_views(site: Site) -> list[View | None]:
    to, bias = site.input_shapes
    behind = len(to) - 1 - _channel_axis(site)
    return [broadcast_view(to, to), broadcast_view((*bias, *[1] * behind), to)]


def _bias_others(site: Site) -> tuple[int, ...]:
    return tuple(d for d in range(len(site.input_shapes[0])) if d != _channel_axis(site))


@define(
    "BiasAdd",
    "value: T, bias: T -> output: T",
    "T: {numbers}; data_format: {'NHWC'|'NCHW'} = 'NHWC'",
    infer=_bias_add_infer,
    kernel=norm_kernels.bias_add,
    gradient=_bias_add_gradient,
    kind=Kind.ELEMENTWISE,
    samples=[
        Sample(r(2, 3), r(3)),
        Sample(r(2, 2, 3, 4), r(4)),
        Sample(r(2, 3, 2), r(3), data_format="NCHW"),
        Sample(r(0, 2), r(2)),
    ],
    lower=Elementwise(lambda e, value, bias: value + bias, views=_bias_views),
    precision=Precision.EITHER,
)
def bias_add_op(value, bias, data_format="NHWC", name=None):
    """Return value with bias[c] added to every element of channel c."""


@define(
    "BiasAddV1",
    "value: T, bias: T -> output: T",
    "T: {numbers}",
    infer=_bias_add_infer,
    kernel=lambda value, bias: norm_kernels.bias_add(value, bias),
    gradient=counted(7, _bias_add_gradient),
    kind=Kind.ELEMENTWISE,
    samples=[Sample(r(2, 3), r(3)), Sample(r(2, 2, 4), r(4))],
    lower=Elementwise(lambda e, value, bias: value + bias),
    precision=Precision.EITHER,
)
def bias_add_v1(value, bias, name=None):
    """Return value with bias added along the last axis."""


@define(
    "BiasAddGrad",
    "out_backprop: T -> output: T",
    "T: {numbers}; data_format: {'NHWC'|'NCHW'} = 'NHWC'",
    infer=_bias_add_grad_infer,
    kernel=norm_kernels.bias_add_grad,
    gradient=_bias_add_grad_gradient,
    kind=Kind.REDUCTION,
    samples=[
        Sample(r(2, 3)),
        Sample(r(2, 2, 3, 4)),
        Sample(r(2, 3, 2), data_format="NCHW"),
        Sample(r(0, 2)),
    ],
    lower=Reduce("sum", lambda e, x: e.wide(x), axes=_bias_others),
)
def bias_add_grad(out_backprop, data_format="NHWC", name=None):
    """Return the sum of out_backprop over everything except the channels."""


@composed
@export("nn.bias_add")
def bias_add(
    value: Any, bias: Any, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Return value plus the vector `bias` along the channels: the last axis, or axis 1 for NC..."""
    with name_scope(name, "BiasAdd", [value, bias]) as scope:
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, dtype=value.dtype, name="bias")
        return bias_add_op(value, bias, data_format=_channel_order(data_format), name=scope)


def _channel_order(data_format: str | None) -> str:
    """Return NHWC or NCHW: the op only needs to know whether the channels are last."""
    if data_format is None:
        return "NHWC"
    if data_format.startswith("NC"):
        return "NCHW"
    if data_format.startswith("N") and data_format.endswith("C"):
        return "NHWC"
    raise ValueError("data_format must be of the form `N...C` or `NC...`")


# ---- local response normalisation ----------------------------------------------------------------

_LRN_ATTRIBUTES = (
    "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5; "
    "T: {float16|bfloat16|float32} = float32"
)


def _lrn_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    options = {k: op.get_attr(k) for k in ("depth_radius", "bias", "alpha", "beta")}
    return b.lrn_grad(dy, op.inputs[0], op.outputs[0], **options)


@export("nn.local_response_normalization", "nn.lrn")
@define(
    "LRN",
    "input: T -> output: T",
    _LRN_ATTRIBUTES,
    infer=lambda c, x: x.with_rank(4),
    kernel=norm_kernels.lrn,
    gradient=_lrn_gradient,
    samples=[
        Sample(r(1, 2, 2, 5)),
        Sample(r(2, 1, 2, 4), depth_radius=1, bias=2.0, alpha=0.3, beta=0.75),
        Sample(r(0, 2, 2, 3)),
    ],
    lower=Anchor("local_response", anchors.local_response),
    precision=Precision.WIDE,
)
def local_response_normalization(
    input,
    depth_radius=5,
    bias=1,
    alpha=1,
    beta=0.5,
    name=None,
):
    """Return input / (bias + alpha * sum of squares of channels within depth_radius) ** beta."""


@define(
    "LRNGrad",
    "input_grads: T, input_image: T, output_image: T -> output: T",
    _LRN_ATTRIBUTES,
    infer=lambda c, dy, x, y: dy.with_rank(4).merge_with(x).merge_with(y),
    kernel=norm_kernels.lrn_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(r(1, 2, 2, 5), r(1, 2, 2, 5), r(1, 2, 2, 5), depth_radius=1),
        Sample(r(1, 1, 2, 3), r(1, 1, 2, 3), r(1, 1, 2, 3), bias=2.0, alpha=0.3, beta=0.6),
    ],
    lower=Anchor("local_response", anchors.local_response),
    precision=Precision.WIDE,
)
def lrn_grad(
    input_grads, input_image, output_image, depth_radius=5, bias=1, alpha=1, beta=0.5, name=None
):
    """Return the gradient of local_response_normalization for its input."""


# ---- batch normalisation by given moments --------------------------------------------------------


def _global_norm(t, m, v, beta, gamma, *, variance_epsilon, scale_after_normalization):
    for name, vector in (("m", m), ("v", v), ("beta", beta), ("gamma", gamma)):
        if t.ndim != 4 or vector.shape != t.shape[-1:]:
            raise ValueError(f"t must be 4-D and {name} {t.shape[-1:]}, got {vector.shape}")
    dtype = t.dtype
    t, m, v, beta, gamma = map(widened, (t, m, v, beta, gamma))
    factor = 1 / np.sqrt(v + v.dtype.type(variance_epsilon))
    if scale_after_normalization:
        factor = factor * gamma
    return ((t - m) * factor + beta).astype(dtype)


def _global_norm_lowered(
    e: Any,
    t: Any,
    m: Any,
    v: Any,
    beta: Any,
    gamma: Any,
    *,
    variance_epsilon: float,
    scale_after_normalization: bool,
) -> Any:
    factor = 1 / e.sqrt(v + variance_epsilon)
    return (t - m) * (factor * gamma if scale_after_normalization else factor) + beta


def _global_norm_infer(c: Any, t: TensorShape, *vectors: TensorShape) -> Any:
    t = t.with_rank(4)
    for vector in vectors:
        t = t[:3].concatenate(t[3:].merge_with(vector.with_rank(1)))
    return t


def _global_norm_gradient(b: OpBuilder, op: Any, dy: Any) -> Any:
    t, m, v, _, gamma = op.inputs
    dx, dm, dv, db, dg = b.batch_norm_with_global_normalization_grad(
        t,
        m,
        v,
        gamma,
        dy,
        variance_epsilon=op.get_attr("variance_epsilon"),
        scale_after_normalization=op.get_attr("scale_after_normalization"),
    )
    return dx, dm, dv, db, dg


_POSITIVE = {"low": 0.6, "high": 1.4}


@define(
    "BatchNormWithGlobalNormalization",
    "t: T, m: T, v: T, beta: T, gamma: T -> result: T",
    "T: {numbers}; variance_epsilon: float; scale_after_normalization: bool",
    infer=_global_norm_infer,
    kernel=_global_norm,
    gradient=_global_norm_gradient,
    samples=[
        Sample(
            r(1, 2, 2, 3),
            r(3),
            r(3, **_POSITIVE),
            r(3),
            r(3),
            variance_epsilon=0.01,
            scale_after_normalization=scale,
            T=dtype,
        )
        for scale in (True, False)
        for dtype in ("float32", "float64", "bfloat16")
    ],
    lower=Elementwise(rounded_once(_global_norm_lowered)),
)
def batch_norm_with_global_normalization_op(
    t, m, v, beta, gamma, variance_epsilon, scale_after_normalization, name=None
):
    """Return (t - m) / sqrt(v + variance_epsilon), optionally times gamma, plus beta."""


def _global_norm_grad(t, m, v, gamma, dy, *, variance_epsilon, scale_after_normalization):
    dtype = t.dtype
    if t.shape != dy.shape or t.ndim != 4 or any(a.shape != t.shape[-1:] for a in (m, v, gamma)):
        raise ValueError(f"t {t.shape} and backprop {dy.shape} must be 4-D and alike")
    t, m, v, gamma, dy = map(widened, (t, m, v, gamma, dy))
    inverse = 1 / np.sqrt(v + v.dtype.type(variance_epsilon))
    scale = gamma if scale_after_normalization else np.ones_like(gamma)
    db = dy.sum(axis=(0, 1, 2))
    along = (dy * (t - m)).sum(axis=(0, 1, 2))
    dg = along * inverse if scale_after_normalization else np.zeros_like(gamma)
    results = (
        dy * (inverse * scale),
        -db * inverse * scale,
        along * scale * inverse**3 / -2,
        db,
        dg,
    )
    return tuple(x.astype(dtype) for x in results)


def _global_norm_grad_infer(c: Any, t: TensorShape, *rest: TensorShape) -> Any:
    *vectors, dy = rest
    t = _global_norm_infer(c, t.merge_with(dy), *vectors)
    channel = t[3:]
    return [t, channel, channel, channel, channel]


@define(
    "BatchNormWithGlobalNormalizationGrad",
    "t: T, m: T, v: T, gamma: T, backprop: T -> dx: T, dm: T, dv: T, db: T, dg: T",
    "T: {numbers}; variance_epsilon: float; scale_after_normalization: bool",
    infer=_global_norm_grad_infer,
    kernel=_global_norm_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(
            r(1, 2, 2, 3),
            r(3),
            r(3, **_POSITIVE),
            r(3),
            r(1, 2, 2, 3),
            variance_epsilon=0.01,
            scale_after_normalization=scale,
            T="float32",
        )
        for scale in (True, False)
    ],
)
def batch_norm_with_global_normalization_grad(
    t, m, v, gamma, backprop, variance_epsilon, scale_after_normalization, name=None
):
    """Return the gradients of batch normalisation by given moments for each of its inputs."""
