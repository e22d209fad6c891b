"""The families of anchors: which geometries have kernels, and how a group around one is built.

In: a group whose head is an anchor. Out: calls in a builder's plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._src.compile.build import convolutions_and_pools as images, tensor_list_buffers as lists, matrix_products as matrices, rows_and_indices as prepared, structured_regions as structures
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
    "contraction": Family(matrices.supports, matrices.build),
    "convolution": Family(images.supports_convolution, images.build_convolution),
    "depthwise": Family(images.supports_convolution, images.build_convolution),
    "pooling": Family(images.supports_pooling, images.build_pooling),
    "softmax": Family(_always, prepared.build_softmax),
    "cross_entropy": Family(_always, prepared.build_cross_entropy),
    "batch_norm": Family(_always, prepared.build_batch_norm),
    "local_response": Family(prepared.supports_local_response, prepared.build_local_response),
    "gather": Family(_always, prepared.build_gather),
    "cut": Family(_always, prepared.build_cut),
    "divisor": Family(_always, prepared.build_divisor),
    "segment_sum": Family(_always, prepared.build_segment_sum),
    "scatter": Family(_always, prepared.build_scatter),
    "row_update": Family(_always, prepared.build_row_update),
    "scan": Family(_always, prepared.build_scan),
    "generator": Family(_always, prepared.build_advance),
    "random": Family(prepared.supports_random, prepared.build_random),
    "list": Family(_always, lists.build_list),
    "while": Family(_always, structures.build_while),
    "if": Family(_always, structures.build_if),
}
