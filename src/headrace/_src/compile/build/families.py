"""The kinds of anchors, and the tables that their declarations make.

In: a group whose head is an anchor. Out: calls in a builder's plan. Ahead of time, all kernels are
portable: plain layouts, vectors of any width, no library. A model's weights are known there, so
they are stored in the order in which kernels read them.
"""

from __future__ import annotations

from headrace._src.compile.build import structured_regions, tensor_list_buffers
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Family
from headrace._src.compile.kernels.conv import convolutions
from headrace._src.compile.kernels.gemm import matrix_products
from headrace._src.compile.kernels.images import pools
from headrace._src.compile.kernels.rows import (
    batch_norm_channels,
    cross_entropy_rows,
    local_response_rows,
    rows_and_indices,
)
from headrace._src.compile.kernels.singles import random_numbers, softmax_rows

__all__ = ["AHEAD", "FAMILIES", "KINDS", "Family"]

KINDS: tuple[AnchorKind, ...] = (
    *matrix_products.KINDS,
    *convolutions.KINDS,
    *pools.KINDS,
    *softmax_rows.KINDS,
    *cross_entropy_rows.KINDS,
    *batch_norm_channels.KINDS,
    *local_response_rows.KINDS,
    *rows_and_indices.KINDS,
    *random_numbers.KINDS,
    *tensor_list_buffers.KINDS,
    *structured_regions.KINDS,
)

# How groups around anchors are built, in a step and in models that are compiled ahead of time.
FAMILIES: dict[str, Family] = {k.name: k.family for k in KINDS if k.family is not None}
AHEAD: dict[str, Family] = FAMILIES | {k.name: k.ahead for k in KINDS if k.ahead is not None}
