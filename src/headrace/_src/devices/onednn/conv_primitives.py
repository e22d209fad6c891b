"""Convolutions and their gradients by oneDNN; conventions as in the package's docstring."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace._src.devices.buffers import empty_aligned
from headrace._src.devices.onednn import library as c
from headrace._src.devices.onednn.onednn_window import OneDnnWindow, Pads, pairs
from headrace._src.devices.onednn.primitive_chains import (
    PlanBuilder,
    PrimitiveChain,
    Shape,
    Slot,
    cached,
    common_dtype,
    int64s,
    ready,
    require,
)


def _inner_order(window: OneDnnWindow) -> Shape:
    """Choose the layout in which the activations are computed.

    Filters always go to the layout that oneDNN prefers: reordering them costs little, and with
    plain filters the gradients fall back to im2col. Activations stay channels-last where the caller
    has them so: on nearly every shape tried that was 1.2 to 2.5 times as fast as blocking them,
    reorders counted (64->64 3x3 at 56x56, batch 8: 155, 151, 123 GF/s forward, input and filter
    gradient, against 104, 75, 68). Channels-first arrays are brought to channels-last and back,
    mostly 1.3 to 3 times as fast as im2col on them (161, 158, 147 against 82, 74, 54), except for
    1x1 windows, which need no im2col and lose half their speed to the reorders.
    """
    pointwise = max(window.ksize) == 1
    return window.order(window.channels_last or not pointwise)


class _Convolution:
    """The three primitives of a convolution share descriptors, and backward ones a forward hint."""

    def __init__(
        self,
        dtype: int,
        x_shape: Shape,
        w_shape: Shape,
        strides: Shape,
        dilations: Shape,
        pads: Any,
        data_format: str,
        groups: int,
    ):
        window = OneDnnWindow(len(x_shape), w_shape[:-2], strides, dilations, pads, data_format)
        require(0 not in x_shape + w_shape, "empty array")
        batch, cin, extents = window.split(x_shape)
        per_group, cout = w_shape[-2:]
        if groups == per_group == cin:  # a depthwise filter: `cout` outputs for every input channel
            per_group, cout = 1, cin * cout
        require(
            groups > 0 and per_group * groups == cin and cout % groups == 0,
            f"filter {w_shape} in {groups} groups does not fit {cin} input channels",
        )
        out = window.slide(extents)
        self.y_shape = window.join(batch, cout, out)

        n = window.spatial
        if groups == 1:
            w_dims, w_order = (cout, cin), (*range(2, 2 + n), 1, 0)
        else:
            w_dims, w_order = (groups, cout // groups, per_group), (*range(3, 3 + n), 2, 0, 1)
        w_dims += window.ksize
        # Two operations per multiplication, at the 100 operations per ns that one core may reach.
        products = math.prod((batch, cout, per_group, *out, *window.ksize))
        self.builder = builder = PlanBuilder(estimate_ns=products / 50)
        x_dims, y_dims, order = (
            (batch, cin, *extents),
            (batch, cout, *out),
            window.order(window.channels_last),
        )
        self.x = builder.dense(x_dims, order, dtype)
        self.w = builder.dense(w_dims, w_order, dtype)
        self.y = builder.dense(y_dims, order, dtype)
        inner = _inner_order(window)
        self.x_in = builder.dense(x_dims, inner, dtype)
        self.y_in = builder.dense(y_dims, inner, dtype)
        self.w_in = builder.any_layout(w_dims, dtype)
        self.geometry = (
            int64s(strides),
            int64s([dilation - 1 for dilation in dilations]),
            *window.padding(),
        )
        self.forward = builder.primitive_desc(
            "convolution_forward",
            c.FORWARD_TRAINING,
            c.CONVOLUTION_DIRECT,
            self.x_in,
            self.w_in,
            None,
            self.y_in,
            *self.geometry,
        )

    def finish(
        self,
        desc: int,
        inputs: Sequence[tuple[int, int, int]],
        output: tuple[int, int, int],
        shape: Shape,
    ) -> tuple[PrimitiveChain, Shape]:
        """Complete the plan. Arguments of the primitive are (number, caller's layout, query)."""
        builder = self.builder
        slots = [builder.array(layout) for _, layout, _ in inputs]
        number, layout, query = output
        target = builder.array(layout)
        arguments: dict[int, Slot] = {
            n: builder.as_input(slot, builder.query(desc, q))
            for slot, (n, _, q) in zip(slots, inputs, strict=True)
        }
        arguments[number] = builder.as_output(target, builder.query(desc, query))
        builder.execute(desc, arguments)
        builder.deliver(arguments[number], target)
        return builder.finish(), shape


@cached
def _conv_plan(*key: Any) -> tuple[PrimitiveChain, Shape]:
    conv = _Convolution(*key)
    return conv.finish(
        conv.forward,
        [(c.ARG_SRC, conv.x, c.QUERY_SRC), (c.ARG_WEIGHTS, conv.w, c.QUERY_WEIGHTS)],
        (c.ARG_DST, conv.y, c.QUERY_DST),
        conv.y_shape,
    )


@cached
def _conv_backward_input_plan(dy_shape: Shape, *key: Any) -> tuple[PrimitiveChain, Shape]:
    conv = _Convolution(*key)
    require(dy_shape == conv.y_shape, f"dy has shape {dy_shape}, the output {conv.y_shape}")
    desc = conv.builder.primitive_desc(
        "convolution_backward_data",
        c.CONVOLUTION_DIRECT,
        conv.x_in,
        conv.w_in,
        conv.y_in,
        *conv.geometry,
        conv.forward,
    )
    return conv.finish(
        desc,
        [(c.ARG_WEIGHTS, conv.w, c.QUERY_WEIGHTS), (c.ARG_DIFF_DST, conv.y, c.QUERY_DIFF_DST)],
        (c.ARG_DIFF_SRC, conv.x, c.QUERY_DIFF_SRC),
        key[1],
    )


@cached
def _conv_backward_filter_plan(dy_shape: Shape, *key: Any) -> tuple[PrimitiveChain, Shape]:
    conv = _Convolution(*key)
    require(dy_shape == conv.y_shape, f"dy has shape {dy_shape}, the output {conv.y_shape}")
    desc = conv.builder.primitive_desc(
        "convolution_backward_weights",
        c.CONVOLUTION_DIRECT,
        conv.x_in,
        conv.w_in,
        None,
        conv.y_in,
        *conv.geometry,
        conv.forward,
    )
    return conv.finish(
        desc,
        [(c.ARG_SRC, conv.x, c.QUERY_SRC), (c.ARG_DIFF_DST, conv.y, c.QUERY_DIFF_DST)],
        (c.ARG_DIFF_WEIGHTS, conv.w, c.QUERY_DIFF_WEIGHTS),
        key[2],
    )


def conv(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
    groups: int = 1,
) -> np.ndarray:
    """Return the convolution (TensorFlow's: the filter is not flipped) of x with w.

    With groups > 1 the filter is [*window, in / groups, out], or TensorFlow's depthwise filter
    [*window, in, multiplier] when groups == in.
    """
    dtype = common_dtype(x, w)
    plan, shape = _conv_plan(
        dtype, x.shape, w.shape, tuple(strides), tuple(dilations), pairs(pads), data_format, groups
    )
    y = empty_aligned(shape, x.dtype)
    plan.run(ready(x), ready(w), y)
    return y


def conv_backward_input(
    x_shape: Shape,
    w: np.ndarray,
    dy: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
    groups: int = 1,
) -> np.ndarray:
    """Return the gradient of `conv` with respect to its input, which had `x_shape`."""
    dtype = common_dtype(w, dy)
    plan, shape = _conv_backward_input_plan(
        dy.shape,
        dtype,
        tuple(x_shape),
        w.shape,
        tuple(strides),
        tuple(dilations),
        pairs(pads),
        data_format,
        groups,
    )
    dx = empty_aligned(shape, dy.dtype)
    plan.run(ready(w), ready(dy), dx)
    return dx


def conv_backward_filter(
    x: np.ndarray,
    w_shape: Shape,
    dy: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Pads,
    data_format: str = "NHWC",
    groups: int = 1,
) -> np.ndarray:
    """Return the gradient of `conv` with respect to its filter, which had `w_shape`."""
    dtype = common_dtype(x, dy)
    plan, shape = _conv_backward_filter_plan(
        dy.shape,
        dtype,
        x.shape,
        tuple(w_shape),
        tuple(strides),
        tuple(dilations),
        pairs(pads),
        data_format,
        groups,
    )
    dw = empty_aligned(shape, dy.dtype)
    plan.run(ready(x), ready(dy), dw)
    return dw
