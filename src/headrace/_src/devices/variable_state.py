"""The value of a variable, which outlives steps. In: values, and functions that update them. Out:
arrays that stay what they were when they were read.

A variable owns its memory and never hands it out: readers are lent a read-only view. Invariant: as
long as a reader holds the view, or an array that shares memory with it, nothing is written there,
and the next update goes to new memory. While nothing is lent, updates are made in place.

Whether the view is still held is observed, not counted: NumPy lets a view of a view refer to the
first array of *its own type*, so that whatever is made of the lent view keeps that view alive, but
does not see the array behind it, which is of another type. A weak reference tells when it's gone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import ref

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import FailedPreconditionError
from headrace._src.core.locks import RLock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.allocator import Allocator
from headrace._src.devices.blocks import empty_block
from headrace._src.devices.resumable import Resumable

__all__ = ["UNINITIALIZED_HINT", "VariableState", "in_order", "new_memory"]

UNINITIALIZED_HINT = (
    "give it a value first: session.run(tf.global_variables_initializer()), or restore it"
)

_Array = np.ndarray
_COPIED_BELOW = 1 << 16  # bytes: it takes longer to take over an array that is smaller


class _Storage(np.ndarray):
    """A variable's memory: of a type of its own, at which NumPy stops following the bases of
    plain views.
    """


def new_memory(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array, not initialised, that a variable can adopt."""
    return empty_block(shape, dtype, _Storage).view(_Array)


def _taken_over(value: np.ndarray) -> np.ndarray:
    """An array that a variable can adopt, in the memory of one that has its own."""
    # A _Storage of a plain array would not do: its views refer to that array. Bases end at an
    # object that is no array, such as this, which keeps the array alive.
    flat: Any = value.reshape(-1).view(np.uint8)
    memory: Any = (ctypes.c_char * value.nbytes).from_buffer(flat)
    return _Storage(value.shape, value.dtype, memory).view(_Array)


def in_order(locks: Iterable[Any]) -> list[Any]:
    """The locks of several variables, once each, in the one order in which everybody takes them: so
    no two steps, be they compiled or not, wait for each other.
    """
    return sorted(set(locks), key=id)


class VariableState(Resumable):
    """The value of one variable: an array, none before it is initialised. `lock` guards it.

    shape: what was declared
    sizes: the shape of the value; None before the variable is initialised
    """

    __slots__ = (
        "__weakref__",
        "_allocator",  # of the device whose memory it takes
        "_lender",  # a read-only view of the memory, which makes those that are lent
        "_lent",  # what readers get; None after an update
        "_own",  # the value, writable: for whoever holds the lock
        "dtype",
        "lock",
        "name",
        "shape",
        "sizes",
    )

    def __init__(
        self, name: str, dtype: DType, shape: TensorShape, allocator: Allocator | None = None
    ) -> None:
        self._allocator = allocator
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.sizes: tuple[int, ...] | None = None
        self.lock = RLock()
        self._own: Any = None
        self._lender: Any = None
        self._lent: Any = None

    @property
    def is_initialized(self) -> bool:
        return self.sizes is not None

    # -- Reading -----------------------------------------------------------------------------------

    def read(self) -> np.ndarray:
        """Return the value as it is now, read-only; it won't change under the reader.

        Whoever holds the lock and has begun to write must not read before the end.
        """
        lent = self._lent  # there is none while somebody writes
        if lent is None:
            with self.lock:
                lent = self._lent
                if lent is None:
                    if self._lender is None:
                        raise self._uninitialized()
                    lent = self._lent = self._lender.view(_Array)
        return lent

    def look(self) -> np.ndarray:
        """Return the value for reading as long as `lock` is held; call with `lock` held. It isn't
        lent: it may be written in place as soon as the lock is free.
        """
        own = self._own
        if own is None:
            raise self._uninitialized()
        return own

    def _uninitialized(self) -> FailedPreconditionError:
        message = f"Attempting to use uninitialized value {self.name}"
        return FailedPreconditionError(None, None, message, hint=UNINITIALIZED_HINT)

    # -- Writing -----------------------------------------------------------------------------------

    def writable(self) -> np.ndarray:
        """Return the value's array, C-contiguous, for changing in place as long as `lock` is held;
        call with `lock` held. A copy replaces the array if a reader holds what was lent of it.
        """
        own = self.look()
        if self._is_lent():
            copy = new_memory(own.shape, own.dtype)
            np.copyto(copy, own)
            self.adopt(copy)
        return self._own

    def update(self, function: Callable[..., Any], operand: Any) -> None:
        """Replace the value by the ufunc `function(value, operand)`."""
        with self.lock:
            own = self.look()
            if self._is_lent():
                new = new_memory(own.shape, own.dtype)
                function(own, operand, out=new)
                self.adopt(new)
            else:
                function(own, operand, out=own)

    def assign(self, value: Any) -> None:
        """Replace the value by a copy of `value`."""
        value = np.asarray(value)
        with self.lock:
            own = self._own
            if (
                own is None
                or own.shape != value.shape
                or own.dtype != value.dtype
                or self._is_lent()
            ):
                own = new_memory(value.shape, value.dtype)
                np.copyto(own, value)
                self.adopt(own)
            else:
                np.copyto(own, value)

    def replace(self, value: Any) -> None:
        """Replace the value by an array that the caller has made for it and does not keep."""
        flags = value.flags
        own = flags.owndata and flags.c_contiguous and flags.writeable
        if not own or value.nbytes < _COPIED_BELOW or value.dtype.hasobject:
            self.assign(value)
        else:
            # Large results stay where they are: if each were copied and freed, the allocator would
            # return its pages to the system after every step, and fault them in for the next.
            self.adopt(_taken_over(value))

    def adopt(self, value: np.ndarray) -> None:
        """Replace the value by an array from `new_memory`, which becomes the variable's own."""
        storage = value.base
        if type(storage) is not _Storage:
            raise TypeError("a variable adopts no memory that others may hold")
        if self._allocator is not None:
            self._allocator.count(storage)
        lender = storage.view()
        lender.setflags(write=False)
        with self.lock:
            self._lent, self._lender, self._own = None, lender, value
            self.sizes = value.shape

    def _is_lent(self) -> bool:
        """Whether a reader holds what was lent, or an array made of it. Nothing new is lent of this
        memory until the lock is free.
        """
        if self._lent is None:
            return False
        held = ref(self._lent)
        self._lent = None
        return held() is not None

    # -- Going on in another process ---------------------------------------------------------------

    def saved(self) -> dict[str, np.ndarray]:
        with self.lock:
            return {} if self._own is None else {"value": np.array(self._own)}

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        value = saved.get("value")
        if value is None:
            return
        if value.dtype != self.dtype.numpy or not self.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"{value.dtype}{value.shape} was saved for a variable that is "
                f"{self.dtype.name}{self.shape}"
            )
        self.assign(value)

    def __repr__(self) -> str:
        return f"<VariableState {self.name} {self.dtype.name}{self.shape}>"
