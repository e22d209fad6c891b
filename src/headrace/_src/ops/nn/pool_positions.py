"""A max-pool that also returns where its maxima are, and its gradient from that alone.

The compiler makes them of a MaxPool and a MaxPoolGrad that are in different clusters. A position is
the tap of the window, one byte, so the gradient needs neither the pool's input nor its output.
"""

from __future__ import annotations

from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.dataflow import Node, ValueType
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition
from headrace._src.graph.schema import Schema
from headrace._src.lowering.window_anchors import pooling
from headrace._src.ops.nn import pool_kernels
from headrace._src.ops.nn.pool_ops import pool_infer

__all__ = ["gradient_at_positions", "pool_with_positions"]

_WINDOW = "ksize: list(int); strides: list(int); padding: string; data_format: string"
_NAMES = ("T", "ksize", "strides", "padding", "data_format")
_BYTES = as_dtype("uint8")


_POOL = Definition(
    schema=Schema("_MaxPool", "input: T -> output: T, positions: uint8", f"T: type; {_WINDOW}"),
    infer=lambda c, x: [pool_infer(c, x)] * 2,
    kernel=pool_kernels.max_pool_with_positions,
    fresh=True,
    gradient=NOT_DIFFERENTIABLE,
    lower=pooling("max", "forward", positions=True),
    doc="Return the largest element of each window, and the tap that its gradient goes to.",
)

_POOL_GRADIENT = Definition(
    schema=Schema(
        "_MaxPoolGrad",
        "positions: uint8, grad: T -> output: T",
        f"T: type; shape: shape; {_WINDOW}",
    ),
    infer=lambda c, positions, grad: c.attrs["shape"],
    kernel=pool_kernels.max_pool_grad_at_positions,
    gradient=NOT_DIFFERENTIABLE,
    lower=pooling("max", "gradient", positions=True),
    doc="Return zeros of `shape` with each window's grad added at its position.",
)


def pool_with_positions(pool: Node) -> Node:
    """Return a MaxPool that has the positions of its maxima as a second output."""
    (pooled,) = pool.types
    return Node(
        _POOL,
        pool.name,
        {name: pool.attrs[name] for name in _NAMES},
        pool.inputs,
        pool.controls,
        (pooled, ValueType(_BYTES, pooled.sizes)),
        pool.origin,
        device=pool.device,
    )


def gradient_at_positions(gradient: Node, pool: Node) -> Node:
    """Return a MaxPoolGrad that reads the positions that a pool has stored."""
    attrs = {name: gradient.attrs[name] for name in _NAMES}
    return Node(
        _POOL_GRADIENT,
        gradient.name,
        attrs | {"shape": gradient.types[0].sizes},
        (pool.outputs[1], gradient.inputs[2]),
        gradient.controls,
        gradient.types,
        gradient.origin,
        device=gradient.device,
    )
