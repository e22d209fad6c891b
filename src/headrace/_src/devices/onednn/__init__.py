"""Convolution, pooling, matrix product and softmax by oneDNN. In: NumPy arrays. Out: a fresh array.

Arrays are float32 or bfloat16 (products of bfloat16 are accumulated in float32); those that are not
C-contiguous are copied first. Results are 64-byte aligned. Every function is safe to call from many
threads at once and releases the GIL while it computes.

Cases that oneDNN does not support raise `Unsupported`: for example other dtypes, empty arrays,
shapes that do not fit together, or a machine without the library. The caller then falls back to its
NumPy kernel, which either computes the result or explains the mistake.

Conventions: `strides`, `dilations` (1 = dense) and `ksize` hold one entry per spatial dimension;
`pads` holds one (before, after) pair each. There may be one to three spatial dimensions.
`data_format` is 'NHWC' (channels last) or 'NCHW', or TensorFlow's names for other ranks. Filters
are [*window, in, out].

Reading order: library (loading), primitive_chains (plans and their cache), onednn_window
(geometry), then the operations: convolution, pooling, matmul, softmax.
"""

from headrace._src.devices.onednn.conv_primitives import (
    conv,
    conv_backward_filter,
    conv_backward_input,
)
from headrace._src.devices.onednn.library import Unsupported, available, why_not
from headrace._src.devices.onednn.matmul_primitives import gemm, matmul
from headrace._src.devices.onednn.pool_primitives import (
    avg_pool,
    avg_pool_backward,
    max_pool,
    max_pool_backward,
)
from headrace._src.devices.onednn.softmax_primitives import log_softmax, softmax

__all__ = [
    "Unsupported",
    "available",
    "avg_pool",
    "avg_pool_backward",
    "conv",
    "conv_backward_filter",
    "conv_backward_input",
    "gemm",
    "log_softmax",
    "matmul",
    "max_pool",
    "max_pool_backward",
    "softmax",
    "why_not",
]
