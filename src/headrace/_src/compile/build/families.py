"""The families of anchors: which geometries have kernels, and how a group around one is built.

In: a group whose head is an anchor. Out: calls in a builder's plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.build import (
    convolutions_and_pools,
    matrix_products,
    rows_and_indices,
    structured_regions,
    tensor_list_buffers,
)
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.regions.groups import Group

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
    """supports(geometry) tells whether there are kernels; build adds a group's calls to a plan."""

    supports: Callable[[Any], bool]
    build: Callable[[Builder, Group], None]


def _always(geometry: Any) -> bool:
    return True


FAMILIES: dict[str, Family] = {
    "contraction": Family(matrix_products.supports, matrix_products.build),
    "convolution": Family(
        convolutions_and_pools.supports_convolution, convolutions_and_pools.build_convolution
    ),
    "depthwise": Family(
        convolutions_and_pools.supports_convolution, convolutions_and_pools.build_convolution
    ),
    "pooling": Family(
        convolutions_and_pools.supports_pooling, convolutions_and_pools.build_pooling
    ),
    "softmax": Family(_always, rows_and_indices.build_softmax),
    "cross_entropy": Family(_always, rows_and_indices.build_cross_entropy),
    "batch_norm": Family(_always, rows_and_indices.build_batch_norm),
    "local_response": Family(
        rows_and_indices.supports_local_response, rows_and_indices.build_local_response
    ),
    "gather": Family(_always, rows_and_indices.build_gather),
    "cut": Family(_always, rows_and_indices.build_cut),
    "divisor": Family(_always, rows_and_indices.build_divisor),
    "segment_sum": Family(_always, rows_and_indices.build_segment_sum),
    "scatter": Family(_always, rows_and_indices.build_scatter),
    "row_update": Family(_always, rows_and_indices.build_row_update),
    "scan": Family(_always, rows_and_indices.build_scan),
    "generator": Family(_always, rows_and_indices.build_advance),
    "random": Family(rows_and_indices.supports_random, rows_and_indices.build_random),
    "list": Family(_always, tensor_list_buffers.build_list),
    "while": Family(_always, structured_regions.build_while),
    "if": Family(_always, structured_regions.build_if),
}
