"""The ops of tensor arrays in old graphs: TensorFlow used the first version until 0.10, the second
(V2) until 0.12.

A handle was a reference to a string, later a string; here it is the same as for the current ops
(tensor_array_ops), whose rules and kernels these share. They exist for GraphDefs and, as in
TensorFlow 1.15, have no gradients; a graph that already contains gradient ops runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.tensor_arrays import TensorArrayState
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, lookup, register
from headrace._src.graph.schema import Argument, Schema
from headrace._src.ops.base import infer
from headrace._src.ops.control.tensor_array_ops import HANDLE, gradient_of, on_array
from headrace._src.ops.state.shared_state import keep_in_step

__all__: list[str] = []

# Ops of today, and what they were called in the first and in the second version.
_SHARED = {
    "TensorArrayCloseV3": ("TensorArrayClose", "TensorArrayCloseV2"),
    "TensorArrayConcatV3": ("TensorArrayConcat", "TensorArrayConcatV2"),
    "TensorArrayGatherV3": ("TensorArrayGather", "TensorArrayGatherV2"),
    "TensorArrayReadV3": ("TensorArrayRead", "TensorArrayReadV2"),
    "TensorArrayScatterV3": ("TensorArrayScatter", "TensorArrayScatterV2"),
    "TensorArraySizeV3": ("TensorArraySize", "TensorArraySizeV2"),
    "TensorArraySplitV3": ("TensorArraySplit", "TensorArraySplitV2"),
    "TensorArrayWriteV3": ("TensorArrayWrite", "TensorArrayWriteV2"),
}


def _array_kernel(
    size, *, ctx, step, dtype, element_shape, dynamic_size, clear_after_read, tensor_array_name
):
    array = TensorArrayState(
        TensorArrayState.unique_name(tensor_array_name or ctx.name),
        dtype,
        int(size),
        element_shape,
        grows=dynamic_size,
        clears=clear_after_read,
    )
    return keep_in_step(ctx, step, array.name, array)


@on_array
def _pack_kernel(array, flow, *, dtype, element_shape):
    return array.gather(np.arange(array.size, dtype=np.int32), dtype, element_shape)


@on_array
def _unpack_kernel(array, value, flow, *, T):
    array.scatter(np.arange(len(value), dtype=np.int32), value, T)
    return flow


def _define(op_type: str, signature: str, attributes: str, like: str, **rules: Any) -> None:
    """Define an op that has its own schema but is otherwise like another."""
    schema = Schema(op_type, signature, attributes)
    register(replace(_plain(like), schema=schema, **rules))


def _plain(op_type: str) -> Any:
    newer = lookup(op_type)
    return replace(newer, gradient=NOT_DIFFERENTIABLE, lower=None, fold=None, home=__name__)


def _older(argument: Argument, is_ref: bool) -> Argument:
    if argument.dtype is not dtypes.resource:
        return argument
    return replace(argument, dtype=dtypes.string, is_ref=is_ref)


def _define_version(version: int, array: str, gradient: str) -> None:
    is_ref = version == 1
    handle = "Ref(string)" if is_ref else "string"
    attributes = (
        "dtype: type; element_shape: shape = <unknown>; dynamic_size: bool = False; "
        "clear_after_read: bool = True; tensor_array_name: string = ''"
    )
    _define(
        array,
        f"size: int32 -> handle: {handle}",
        attributes,
        "TensorArrayV3",
        infer=lambda c, size: [HANDLE],
        kernel=_array_kernel,
    )
    _define(
        gradient,
        f"handle: string, flow_in: float32 -> grad_handle: {handle}",
        "source: string",
        "TensorArrayGradV3",
        infer=lambda c, handle, flow: [HANDLE],
        kernel=lambda handle, flow, *, ctx, source: gradient_of(ctx, handle, source),
    )
    for newer, names in _SHARED.items():
        definition = _plain(newer)
        inputs = tuple(_older(a, is_ref) for a in definition.schema.inputs)
        schema = definition.schema.changed(names[version - 1], inputs)
        register(replace(definition, schema=schema))


_define_version(1, "TensorArray", "TensorArrayGrad")
_define_version(2, "TensorArrayV2", "TensorArrayGradV2")
_define(
    "TensorArrayPack",
    "handle: Ref(string), flow_in: float32 -> value: dtype",
    "dtype: type; element_shape: shape = <unknown>",
    "TensorArrayGatherV3",
    infer=lambda c, handle, flow: TensorShape.of((None,)).concatenate(c.attrs["element_shape"]),
    kernel=_pack_kernel,
)
_define(
    "TensorArrayUnpack",
    "handle: Ref(string), value: T, flow_in: float32 -> flow_out: float32",
    "T: type",
    "TensorArrayScatterV3",
    infer=lambda c, handle, value, flow: infer.SCALAR,
    kernel=_unpack_kernel,
)
