"""The value of a variable, which outlives steps. In: values, and functions that update them. Out:
arrays that do not change after they were read.

A variable owns its memory and never hands it out: readers are lent a read-only view. Invariant: as
long as a reader holds the view, or an array that shares memory with it, nothing is written there,
and the next update goes to new memory. While nothing is lent, updates are made in place.

A value that is sent to another process of the host moves to memory that this process can read, too
(`shared`), if the device has some. A process that reads it counts like a reader here.

Whether the view is still held is observed, not counted. In NumPy a view of a view refers to the
first array of *its own type*. An array made from the lent view therefore refers to that view and
keeps it alive; it doesn't refer to the array behind the view, which is of another type. A weak
reference tells when the view is gone.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import ref

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import FailedPreconditionError
from headrace._src.core.locks import RLock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.allocator import SHARED_FROM, Allocator, Shared
from headrace._src.devices.blocks import empty_block, sparse_copy
from headrace._src.devices.resumable import Resumable

__all__ = ["UNINITIALIZED_HINT", "VariableState", "in_order", "new_memory", "shared"]

UNINITIALIZED_HINT = (
    "give it a value first: session.run(tf.global_variables_initializer()), or restore it"
)

_Array = np.ndarray
_COPIED_BELOW = 1 << 16  # bytes: copying a smaller array is faster than taking it over


class _Storage(np.ndarray):
    """A variable's memory. It has a type of its own, so that NumPy stops there when it follows the
    bases of plain views.

    is_shared: whether other processes can read it. owner: the variable, if it could move there.
    """

    is_shared = False
    owner: ref[VariableState] | None = None


def new_memory(shape: tuple[int, ...], dtype: np.dtype, shared: Shared | None = None) -> np.ndarray:
    """Return an array, not initialised, that a variable can adopt; in shared memory, if there is
    enough of it.
    """
    if shared is not None and not dtype.hasobject:
        try:
            memory = shared.allocate(math.prod(shape) * dtype.itemsize)
        except MemoryError:
            pass
        else:
            storage = _stored(memory, shape, dtype)
            storage.is_shared = True
            return storage.view(_Array)
    return empty_block(shape, dtype, _Storage).view(_Array)


def _taken_over(value: np.ndarray) -> np.ndarray:
    """Return an array that a variable can adopt, in the memory of `value`, which owns it."""
    flat = value.reshape(-1).view(np.uint8)
    return _stored(flat, value.shape, value.dtype).view(_Array)


def _stored(flat: Any, shape: tuple[int, ...], dtype: np.dtype) -> _Storage:
    """Return a _Storage in the memory of an array of bytes."""
    # A _Storage based on a plain array would not do, because its views refer to that array. Bases
    # end at an object that is not an array, such as this one, which keeps the array alive.
    memory: Any = (ctypes.c_char * flat.nbytes).from_buffer(flat)
    return _Storage(shape, dtype, memory)


def shared(value: np.ndarray) -> np.ndarray:
    """Return a value that is about to be sent to another process. If it is a variable's, the
    variable moves to shared memory, where it is sent without copies from then on.
    """
    base = value.base
    if type(base) is not _Storage or base.owner is None or value.nbytes < SHARED_FROM:
        return value
    variable = base.owner()
    return value if variable is None else variable.share(value)


def in_order(locks: Iterable[Any]) -> list[Any]:
    """Return the locks of several variables, once each, in the order in which all steps take them.
    This prevents deadlocks between steps, compiled or not.
    """
    return sorted(set(locks), key=id)


class VariableState(Resumable):
    """The value of one variable: an array, or None before it is initialised. `lock` guards it.

    shape: the declared shape
    sizes: the shape of the value; None before the variable is initialised
    """

    __slots__ = (
        "__weakref__",
        "_allocator",  # of the device that holds the variable
        "_lender",  # a read-only view of the memory, from which lent views are made
        "_lent",  # the view that readers get; None after an update
        "_own",  # the value, writable for the holder of the lock
        "_shared",  # the shared memory, once the value has been there
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
        self._shared: Shared | None = None
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
        """Return the current value, read-only; later updates don't change it.

        A thread that holds the lock and has begun to write must not read before it has finished.
        """
        lent = self._lent  # None during a write
        if lent is None:
            with self.lock:
                lent = self._lent
                if lent is None:
                    if self._lender is None:
                        raise self._uninitialized()
                    lent = self._lent = self._lender.view(_Array)
        return lent

    def look(self) -> np.ndarray:
        """Return the value for reading as long as `lock` is held; call with `lock` held. The value
        isn't lent: it may be written in place as soon as the lock is free.
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
        call with `lock` held. A copy replaces the array if a reader holds the lent view of it.
        """
        own = self.look()
        if self._is_lent():
            copy = new_memory(own.shape, own.dtype, self._shared)
            np.copyto(copy, own)
            self.adopt(copy)
        return self._own

    def update(self, function: Callable[..., Any], operand: Any) -> None:
        """Replace the value by the ufunc `function(value, operand)`."""
        with self.lock:
            self.change(function, operand)

    def change(self, function: Callable[..., Any], operand: Any) -> None:
        """Do as `update`; call with `lock` held."""
        own = self.look()
        if self._is_lent():
            new = new_memory(own.shape, own.dtype, self._shared)
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
                sparse = None if value.dtype.hasobject else sparse_copy(value)
                if sparse is not None:
                    own = _taken_over(sparse)
                else:
                    own = new_memory(value.shape, value.dtype, self._shared)
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
        lender: Any = storage.view()
        lender.setflags(write=False)
        if not storage.is_shared and self._allocator and self._allocator.shared:
            lender.owner = ref(self)
        with self.lock:
            self._lent, self._lender, self._own = None, lender, value
            self.sizes = value.shape

    def share(self, lent: np.ndarray) -> np.ndarray:
        """Move the value to shared memory, unless it has changed since this view of it was lent;
        return the view, or one of the new memory.
        """
        with self.lock:
            shared = None if self._allocator is None else self._allocator.shared
            if self._lent is not lent or shared is None:
                return lent
            copy = new_memory(lent.shape, lent.dtype, shared)
            if not copy.base.is_shared:  # type: ignore[union-attr]
                return lent  # none of it is left
            np.copyto(copy, lent)
            self._shared = shared
            self.adopt(copy)
            return self.read()

    def _is_lent(self) -> bool:
        """Return whether a reader, here or in another process, holds the lent view, or an array
        made from it. No new view of this memory is lent until the lock is free.
        """
        if self._shared is not None and self._shared.leased(self._own):
            self._lent = None
            return True
        if self._lent is None:
            return False
        held = ref(self._lent)
        self._lent = None
        return held() is not None

    # -- Resuming in another process ---------------------------------------------------------------

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
