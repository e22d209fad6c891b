"""Batch normalisation in one op, in its three versions, with gradients to second order.

Version 2 allows 16-bit x while the statistics (of type U) stay float32; version 3 passes one more
reserved space from the op to its gradient, which a CPU does not use.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.lowering import anchors
from headrace._src.lowering.rules import Anchor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import broadcast_nodes, counted, reduce_nodes
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.nn import norm_kernels

__all__ = ["fused_batch_norm"]

_OPTIONS = (
    "epsilon: float = 0.0001; data_format: {'NHWC'|'NCHW'} = 'NHWC'; is_training: bool = True"
)
_ONE_TYPE = f"T: {{float32}}; {_OPTIONS}"
_TWO_TYPES = f"T: {{float16|bfloat16|float32}}; U: {{float32}}; {_OPTIONS}"
_LEAST_EPSILON = 1.001e-5  # cuDNN's minimum, which TensorFlow applies on all devices


def _channels(c: Any, x: TensorShape, *vectors: TensorShape) -> tuple[TensorShape, TensorShape]:
    """Return the shapes of x and of the vectors with an entry per channel."""
    x = x.with_rank(4)
    axis = 1 if c.attrs["data_format"] == "NCHW" else 3
    channel = x[axis : axis + 1]
    for vector in vectors:
        channel = channel.merge_with(vector.with_rank(1))
    return x[:axis].concatenate(channel).concatenate(x[axis + 1 :]), channel


def _infer(
    c: Any,
    x: TensorShape,
    scale: TensorShape,
    offset: TensorShape,
    mean: TensorShape,
    variance: TensorShape,
) -> list[Any]:
    given = () if c.attrs["is_training"] else (mean, variance)
    x, channel = _channels(c, x, scale, offset, *given)
    outputs = [x, channel, channel, channel, channel]
    if len(c.op._outputs) < 6:
        return outputs
    # The last one is the scalar 0 here; TensorFlow leaves its shape unknown because of GPUs.
    return [*outputs, () if c.settled else None]


def _grad_infer(
    c: Any, dy: TensorShape, x: TensorShape, scale: TensorShape, *statistics: TensorShape
) -> list[Any]:
    x, channel = _channels(c, x.merge_with(dy), scale, *statistics[:2])
    return [x, channel, channel, (), ()]


def _options(op: Any) -> dict[str, Any]:
    return {k: op.get_attr(k) for k in ("epsilon", "data_format", "is_training")}


def _is_transposed(op: Any) -> bool:
    """Whether TensorFlow transposes for the gradient of this operation."""
    return op._attrs["data_format"] == "NCHW" and not op._attrs["is_training"]


def _gradient(name: str) -> Any:
    """Return the gradient of a version, given the name of its gradient op's builder.

    It needs the moments that x was normalised by: in training those of the batch, which the op
    returned as reserved spaces, else those it was given.
    """

    @counted(lambda op, *grads: 7 if _is_transposed(op) else 1)
    def gradient(b: OpBuilder, op: Any, dy: Any, *_: Any) -> Any:
        x, scale, _, mean, variance = op.inputs
        spaces = list(op.outputs[3:])
        if not op.get_attr("is_training"):
            spaces[:2] = [mean, variance]
        found = getattr(b, name)(dy, x, scale, *spaces, **_options(op))
        return *found[:3], None, None

    return gradient


def _grad_nodes(op: Any, *grads: Any) -> int:
    """Return how many operations TensorFlow adds for second derivatives; some only once
    per shape.
    """
    graph, shape, channels = op.graph, op.inputs[1].shape, op.inputs[2].shape
    first, training = op._attrs["data_format"] == "NCHW", op._attrs["is_training"]
    more = (11 if training else 18) if first else 0
    if not (shape.is_fully_defined() and channels.is_fully_defined()):
        if not training:
            return 80 + more
        known = shape.ndims is not None and shape[1 if first else -1].value is not None
        return more + (258 if channels.is_fully_defined() else 265 if known else 279)
    along = (1, *channels.sizes, 1, 1) if first else channels.sizes
    asked = broadcast_nodes(graph, shape.sizes, along)
    asked += reduce_nodes(graph, shape.sizes, (0, 2, 3) if first else (0, 1, 2))
    if training:
        asked += broadcast_nodes(graph, along, shape.sizes)
    return asked + more + (114 if training else 31)


@counted(_grad_nodes)
def _grad_gradient(
    b: OpBuilder, op: Any, grad_dx: Any, grad_dscale: Any, grad_doffset: Any, *_: Any
):
    """The second derivatives, for the incoming gradient, x and scale.

    With n = (x - mean) * s, s = 1 / sqrt(variance + epsilon), and <> the mean over all but the
    channels, the first ones are dx = scale * s * (dy - <dy> - n <dy n>), dscale = sum(dy n) and
    doffset = sum(dy); without training, dx = scale * s * dy.
    """
    dy, x, scale, mean, variance, *rest = op.inputs
    sizes, axes, count = _layout(b, op, x)

    def along(vector: Any) -> Any:
        return b.reshape(vector, sizes)

    def total(t: Any) -> Any:
        return b.reduce_sum(t, axes, keepdims=True)

    def average(t: Any) -> Any:
        return total(t) / count

    inner = scale.dtype
    dy, x, g = (b.cast(t, inner) for t in (dy, x, grad_dx))
    s = along(b.rsqrt(variance + op.get_attr("epsilon")))
    n = (x - along(mean)) * s
    weight, grad_scale = along(scale), along(grad_dscale)
    if op.get_attr("is_training"):
        dy_n, g_n = average(dy * n), average(g * n)
        for_dy = weight * s * (g - average(g) - n * g_n) + grad_scale * n + along(grad_doffset)
        bilinear = total(g * dy) - count * (average(g) * average(dy) + g_n * dy_n)
        h = grad_scale * dy - weight * s * (g * dy_n + dy * g_n)  # the gradient for n
        for_x = s * (h - average(h) - n * average(h * n)) - weight * bilinear * s * s * n / count
        for_scale = s * bilinear
    else:
        for_dy = weight * s * g + grad_scale * n + along(grad_doffset)
        for_x = s * grad_scale * dy
        for_scale = s * total(g * dy)
    narrow = op.inputs[1].dtype
    return (
        b.cast(for_dy, narrow),
        b.cast(for_x, narrow),
        b.reshape(for_scale, [-1]),
        None,
        None,
        *(None for _ in rest),
    )


def _layout(b: OpBuilder, op: Any, x: Any) -> tuple[list[int], list[int], Any]:
    """Return the shape of a vector along the channels, the other axes, and their number of
    elements.
    """
    first = op.get_attr("data_format") == "NCHW"
    axes = [0, 2, 3] if first else [0, 1, 2]
    count = b.cast(b.reduce_prod(b.gather(b.shape(x), axes)), "float32")
    return ([1, -1, 1, 1] if first else [1, 1, 1, -1]), axes, count


def _samples(*, training: bool, **attrs: Any) -> list[Sample]:
    statistics = ([], []) if training else (r(3), r(3, low=0.5, high=1.5))
    attrs = {**attrs, "is_training": training}
    return [
        Sample(r(2, 2, 3, 3), r(3), r(3), *statistics, **attrs),
        Sample(r(1, 3, 2, 2), r(3), r(3), *statistics, **attrs, data_format="NCHW"),
    ]


def _grad_samples(*reserved: Any, **attrs: Any) -> list[Sample]:
    vectors = (r(3), r(3), r(3, low=0.5, high=1.5), *reserved)
    return [
        Sample(r(2, 2, 3, 3), r(2, 2, 3, 3), *vectors, **attrs, is_training=training)
        for training in (True, False)
    ]


@define(
    "FusedBatchNorm",
    "x: T, scale: T, offset: T, mean: T, variance: T -> "
    "y: T, batch_mean: T, batch_variance: T, reserve_space_1: T, reserve_space_2: T",
    _ONE_TYPE,
    infer=_infer,
    kernel=norm_kernels.fused_batch_norm,
    fresh=True,
    gradient=_gradient("fused_batch_norm_grad"),
    samples=[*_samples(training=True), *_samples(training=False)],
    lower=Anchor("batch_norm", anchors.batch_norm),
    precision=Precision.WIDE,
)
def fused_batch_norm_v1(
    x, scale, offset, mean, variance, epsilon=1e-4, data_format="NHWC", is_training=True, name=None
):
    """Return x, normalised per channel, scaled and shifted, and the moments that were used."""


@define(
    "FusedBatchNormV2",
    "x: T, scale: U, offset: U, mean: U, variance: U -> "
    "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U",
    _TWO_TYPES,
    infer=_infer,
    kernel=norm_kernels.fused_batch_norm,
    fresh=True,
    gradient=_gradient("fused_batch_norm_grad_v2"),
    samples=[*_samples(training=True), *_samples(training=False)],
    lower=Anchor("batch_norm", anchors.batch_norm),
    precision=Precision.WIDE,
)
def fused_batch_norm_v2(
    x, scale, offset, mean, variance, epsilon=1e-4, data_format="NHWC", is_training=True, name=None
):
    """As FusedBatchNorm, with a separate type for the statistics."""


@define(
    "FusedBatchNormV3",
    "x: T, scale: U, offset: U, mean: U, variance: U -> y: T, batch_mean: U, batch_variance: U, "
    "reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
    _TWO_TYPES,
    infer=_infer,
    kernel=norm_kernels.fused_batch_norm_v3,
    fresh=True,
    gradient=_gradient("fused_batch_norm_grad_v3"),
    samples=[*_samples(training=True), *_samples(training=False)],
    lower=Anchor("batch_norm", anchors.batch_norm),
    precision=Precision.WIDE,
)
def fused_batch_norm_v3(
    x, scale, offset, mean, variance, epsilon=1e-4, data_format="NHWC", is_training=True, name=None
):
    """As FusedBatchNormV2, with a third reserved space."""


@define(
    "FusedBatchNormGrad",
    "y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T -> x_backprop: T, "
    "scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T",
    _ONE_TYPE,
    infer=_grad_infer,
    kernel=norm_kernels.fused_batch_norm_grad,
    gradient=_grad_gradient,
    samples=_grad_samples(),
    lower=Anchor("batch_norm", anchors.batch_norm_gradient),
    precision=Precision.WIDE,
)
def fused_batch_norm_grad(
    y_backprop,
    x,
    scale,
    reserve_space_1,
    reserve_space_2,
    epsilon=1e-4,
    data_format="NHWC",
    is_training=True,
    name=None,
):
    """Return the gradients of FusedBatchNorm for x, scale and offset, and two unused scalars."""


@define(
    "FusedBatchNormGradV2",
    "y_backprop: T, x: T, scale: float32, reserve_space_1: U, reserve_space_2: U -> "
    "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U",
    _TWO_TYPES,
    infer=_grad_infer,
    kernel=norm_kernels.fused_batch_norm_grad,
    gradient=_grad_gradient,
    samples=_grad_samples(),
    lower=Anchor("batch_norm", anchors.batch_norm_gradient),
    precision=Precision.WIDE,
)
def fused_batch_norm_grad_v2(
    y_backprop,
    x,
    scale,
    reserve_space_1,
    reserve_space_2,
    epsilon=1e-4,
    data_format="NHWC",
    is_training=True,
    name=None,
):
    """Return the gradients of FusedBatchNormV2."""


@define(
    "FusedBatchNormGradV3",
    "y_backprop: T, x: T, scale: float32, reserve_space_1: U, reserve_space_2: U, "
    "reserve_space_3: U -> x_backprop: T, scale_backprop: U, offset_backprop: U, "
    "reserve_space_4: U, reserve_space_5: U",
    _TWO_TYPES,
    infer=_grad_infer,
    kernel=norm_kernels.fused_batch_norm_grad_v3,
    gradient=_grad_gradient,
    samples=_grad_samples(r()),
    lower=Anchor("batch_norm", anchors.batch_norm_gradient),
    precision=Precision.WIDE,
)
def fused_batch_norm_grad_v3(
    y_backprop,
    x,
    scale,
    reserve_space_1,
    reserve_space_2,
    reserve_space_3,
    epsilon=1e-4,
    data_format="NHWC",
    is_training=True,
    name=None,
):
    """Return the gradients of FusedBatchNormV3."""


@composed
@export("nn.fused_batch_norm")
def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, mean, variance): x normalised per channel, scaled and shifted.

    In training the moments are the batch's own, and the returned variance is the unbiased estimate;
    otherwise `mean` and `variance` are used. data_format: 'NHWC' or 'NCHW'.

    scale and offset: vectors with an element per channel. epsilon: added to the variance.
    is_training: whether to use the batch's moments.
    """
    x = convert_to_tensor(x, name="input")
    scale = convert_to_tensor(scale, name="scale")
    offset = convert_to_tensor(offset, name="offset")
    if is_training:
        if mean is not None or variance is not None:
            raise ValueError("Both 'mean' and 'variance' must be None if is_training is True.")
        mean, variance = b.constant([]), b.constant([])
    elif mean is None or variance is None:
        raise ValueError("Both 'mean' and 'variance' must be given if is_training is False.")
    found = fused_batch_norm_v3(
        x,
        scale,
        offset,
        mean,
        variance,
        epsilon=max(epsilon, _LEAST_EPSILON),
        data_format=data_format,
        is_training=is_training,
        name=name,
    )
    return found.y, found.batch_mean, found.batch_variance
