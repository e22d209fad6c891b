"""Tensors that stay in a session between steps: tf.get_session_handle and related functions.

The runtime value of a handle is a TensorHandle, and so is the fetched value; feed its text to use
the tensor again.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.devices.batches import own
from headrace._src.devices.resources import Resources
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import build, define
from headrace._src.ops.base.to_tensor import convert_to_tensor

__all__ = [
    "TensorHandle",
    "delete_session_tensor",
    "device_of",
    "get_session_handle",
    "get_session_tensor",
    "gives_handles",
]

_numbers = itertools.count()
_HERE = "/job:localhost/"


class _Kept:
    """A value that a session keeps."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _key(handle: str) -> str:
    return f"_session_tensor/{handle}"


def _missing(handle: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        None, None, f"The tensor with handle '{handle}' is not in the session store."
    )


class TensorHandle:
    """A tensor that a session keeps until the session is closed or `delete` is called.

    handle: the string by which get_session_tensor finds it.
    """

    def __init__(self, resources: Resources, handle: str, dtype: DType) -> None:
        self._resources = resources
        self._handle = handle
        self._dtype = dtype

    @property
    def handle(self) -> str:
        return self._handle

    @property
    def dtype(self) -> DType:
        return self._dtype

    def eval(self) -> Any:
        """Return the tensor's value."""
        place = "", self._resources.operations, _key(self._handle)
        if not self._resources.has(*place):
            raise _missing(self._handle)
        value = self._resources.lookup(*place, _Kept).value
        return np.array(value)[()] if isinstance(value, np.ndarray) else value

    def delete(self) -> None:
        """Delete the tensor."""
        if not self._resources.delete("", self._resources.operations, _key(self._handle)):
            raise _missing(self._handle)

    def get_raw_handle(self) -> str:
        """Return the string of the handle; the caller is now responsible for deleting
        the tensor.
        """
        return self._handle

    def __str__(self) -> str:
        return self._handle

    def __repr__(self) -> str:
        return f"<TensorHandle {self._handle}>"


def _keep_kernel(value, *, ctx, T):
    handle = f"{ctx.name};{next(_numbers)}"
    if not ctx.device.name.startswith(_HERE):
        handle += f";{ctx.device.name}"  # a task of a cluster: the others do not have the tensor
    place = "", ctx.resources.operations, _key(handle)
    ctx.resources.get_or_create(*place, _Kept, lambda: _Kept(own(value)))
    return TensorHandle(ctx.resources, handle, T)


def _text(handle: Any) -> str:
    if isinstance(handle, TensorHandle):
        return handle.handle
    if np.ndim(handle):
        raise InvalidArgumentError(None, None, "a handle must be a scalar")
    text = handle.item() if isinstance(handle, np.ndarray) else handle
    return text.handle if isinstance(text, TensorHandle) else text.decode(errors="replace")


def _find_kernel(handle, *, ctx, dtype):
    text = _text(handle)
    place = "", ctx.resources.operations, _key(text)
    if not ctx.resources.has(*place):
        raise _missing(text)
    value = ctx.resources.lookup(*place, _Kept).value
    if np.asarray(value).dtype != dtype.numpy:
        raise InvalidArgumentError(
            None, None, f"the tensor with handle '{text}' is not of type {dtype.name}"
        )
    return value


def _delete_kernel(handle, *, ctx):
    text = _text(handle)
    if not ctx.resources.delete("", ctx.resources.operations, _key(text)):
        raise _missing(text)


@define(
    "GetSessionHandle",
    "value: T -> handle: string",
    "T: type",
    infer=infer.scalar,
    kernel=_keep_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def get_session_handle_op(value, name=None):
    """Keep a tensor in the session, and return its handle."""


@define(
    "GetSessionHandleV2",
    "value: T -> handle: resource",
    "T: type",
    infer=infer.scalar,
    kernel=_keep_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def get_session_handle_v2(value, name=None):
    """Keep a tensor in the session, and return its handle."""


@define(
    "GetSessionTensor",
    "handle: string -> value: dtype",
    "dtype: type",
    infer=infer.unknown,
    kernel=_find_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.BLOCKS,
)
def get_session_tensor_op(handle, dtype, name=None):
    """Return a tensor that the session keeps."""


@define(
    "DeleteSessionTensor",
    "handle: string ->",
    infer=infer.no_outputs,
    kernel=_delete_kernel,
    effect=Effect.BLOCKS,
)
def delete_session_tensor_op(handle, name=None):
    """Delete a tensor that the session keeps."""


# -- Public functions ------------------------------------------------------------------------------


@export("get_session_handle")
def get_session_handle(data: Any, name: str | None = None) -> Tensor:
    """Return a tensor whose value is a TensorHandle; running it keeps `data` in the session."""
    if not isinstance(data, Tensor):
        raise TypeError("`data` must be of type Tensor.")
    return get_session_handle_v2(convert_to_tensor(data), name=name)


@export("get_session_tensor")
def get_session_tensor(handle: str, dtype: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Return a placeholder for a handle, and the tensor behind the handle that is fed.

    `handle` is the string of a handle to a tensor of the same type.
    """
    with _at(handle):
        holder = _holder(handle)
        return holder, get_session_tensor_op(holder, as_dtype(dtype), name=name)


@export("delete_session_tensor")
def delete_session_tensor(handle: str, name: str | None = None) -> tuple[Tensor, Operation]:
    """Return a placeholder for a handle, and an operation that deletes the tensor behind it."""
    with _at(handle):
        holder = _holder(handle)
        return holder, delete_session_tensor_op(holder, name=name)


def device_of(handle: str) -> str:
    """Return the device of a handle's tensor; "" if it is in this process."""
    return handle.split(";", 2)[2] if handle.count(";") > 1 else ""


def gives_handles(op: Operation) -> bool:
    """Return whether the value of an operation is a TensorHandle."""
    return op.definition.kernel is _keep_kernel


def _at(handle: Any) -> AbstractContextManager[Any]:
    """Place what uses a handle where its tensor is."""
    where = device_of(handle) if isinstance(handle, str) else ""
    return get_default_graph().device(where) if where else nullcontext()


def _holder(handle: Any) -> Tensor:
    if not isinstance(handle, str):
        raise TypeError(f"a handle is a string, such as TensorHandle.handle, not {handle!r}")
    return build("Placeholder", dtype=dtypes.string)
