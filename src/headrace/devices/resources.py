"""State that outlives a step: variables and whatever else kernels keep, in containers.

The default container ("") belongs to one session; named containers belong to the process, so that
sessions and disjoint graphs can share what is in them (white paper §4.7) until `reset_containers`
clears them.

Invariant on arrays: one that is referenced from elsewhere is never written. A variable updates its
array in place only while it holds the sole reference, and otherwise makes a new one; so a reader's
array stays what it was when it was read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from headrace.core.dtypes import DType
from headrace.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.core.locks import Lock, RLock
from headrace.core.shapes import TensorShape
from headrace.devices.blocks import private_copy
from headrace.devices.gate import Gate
from headrace.devices.resumable import Resumable

__all__ = [
    "OPERATION_STATE",
    "ResourceHandle",
    "Resources",
    "VariableState",
    "in_order",
    "removals",
    "reset_containers",
]

Resource = TypeVar("Resource")
Running = TypeVar("Running")

OPERATION_STATE = "_state_of/"  # with an operation's name: what it keeps for itself

_count, _Array = sys.getrefcount, np.ndarray  # asked for at every step

UNINITIALIZED_HINT = (
    "give it a value first: session.run(tf.global_variables_initializer()), or restore it"
)


def _references_when_alone() -> tuple[int, int]:
    """What getrefcount says, on this Python, of an array that one attribute holds, and of a base
    that one array holds.
    """
    holder = VariableState.__new__(VariableState)
    holder.value = private_copy(np.zeros(1))
    base = holder.value.base
    return _count(holder.value), _count(base)


def in_order(locks: Iterable[Any]) -> list[Any]:
    """The locks of several variables, once each, in the one order in which everybody takes them: so
    no two steps, be they compiled or not, wait for each other.
    """
    return sorted(set(locks), key=id)


class VariableState(Resumable):
    """The value of one variable: an array, None before it is initialised. `lock` guards it."""

    __slots__ = ("__weakref__", "dtype", "lock", "name", "shape", "value")

    def __init__(self, name: str, dtype: DType, shape: TensorShape) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.value: Any = None
        self.lock = RLock()

    def read(self) -> np.ndarray:
        """Return the value as it is now; it won't change under the reader."""
        with self.lock:
            value = self.value
        if value is None:
            raise FailedPreconditionError(
                None,
                None,
                f"Attempting to use uninitialized value {self.name}",
                hint=UNINITIALIZED_HINT,
            )
        return value

    def writable(self) -> np.ndarray:
        """Return the value's array, C-contiguous, for changing in place; call with `lock` held.

        A copy replaces the array if anyone else holds it.
        """
        if self.value is None:
            return self.read()  # which says so
        if self._is_shared():
            self.value = private_copy(self.value)
        return self.value

    def update(self, function: Callable[..., Any], operand: Any) -> None:
        """Replace the value by the ufunc `function(value, operand)`, in place if nobody looks."""
        with self.lock:
            self.read()
            if self._is_shared():
                self.value = np.asarray(function(self.value, operand))
            else:
                function(self.value, operand, out=self.value)

    def _is_shared(self) -> bool:
        """Whether a write to the value's array could be seen through anything but this variable."""
        # Views of our array hold its base: memory that is nobody's but the array's own.
        base = self.value.base
        return (
            _count(self.value) > _ALONE
            or (base is not None and (type(base) is not _Array or _count(base) > _BASE_ALONE))
            or not self.value.flags.writeable
        )

    def assign(self, value: Any) -> None:
        """Replace the value by a copy of `value`, reusing memory where nobody else looks at it."""
        with self.lock:
            old = self.value
            same = old is not None and old.shape == np.shape(value) and old.dtype == value.dtype
            del old
            if same and not self._is_shared():
                np.copyto(self.value, value)
            else:
                self.value = private_copy(np.asarray(value))

    def saved(self) -> dict[str, np.ndarray]:
        with self.lock:
            return {} if self.value is None else {"value": np.array(self.value)}

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


_ALONE, _BASE_ALONE = _references_when_alone()


class ResourceHandle:
    """The runtime value of a `resource` tensor: where to find a piece of state."""

    __slots__ = ("container", "kind", "name", "resources")

    def __init__(self, resources: Resources, container: str, name: str, kind: type) -> None:
        self.resources = resources
        self.container = container
        self.name = name
        self.kind = kind

    def get(self) -> Any:
        """Return the resource; NotFoundError if it isn't there, InvalidArgumentError if it's of
        another kind.
        """
        return self.resources.lookup(self.container, self.name, self.kind)

    def __repr__(self) -> str:
        return f"<ResourceHandle {self.container}/{self.name}>"


_named: dict[str, dict[str, Any]] = {}
_named_lock = Lock()
_removals = 0


def removals() -> int:
    """How often something was removed from any container: while this stays the same, whoever has
    found a resource by its name would find the same one again.
    """
    return _removals


def _count_removal() -> None:
    global _removals
    with _named_lock:
        _removals += 1


def reset_containers(names: Iterable[str] | None = None) -> None:
    """Forget the state in these named containers, or in all of them."""
    with _named_lock:
        for name in names or list(_named):
            _named.pop(name, None)
    _count_removal()


class Resources:
    """What kernels keep: the session's own default container and the process's named ones.

    `functions.call(function, args)` is how a kernel calls a function of the graph.
    """

    def __init__(self, functions: Any = None) -> None:
        self.functions = functions  # runs the functions that kernels call
        self.gate = Gate()
        self._own: dict[str, Any] = {}
        self._resumed: dict[str, Mapping[str, np.ndarray]] = {}  # for what isn't there yet
        self._lock = RLock()
        self._steps: set[Any] = set()
        self._closed: BaseException | None = None

    @contextmanager
    def running(self, step: Running) -> Iterator[Running]:
        """Let `close` stop a step while it runs."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._steps.add(step)
        try:
            yield step
        finally:
            with self._lock:
                self._steps.discard(step)

    def close(self, error: BaseException) -> None:
        """Stop the steps that wait or loop, with an error; no such step can begin any more."""
        with self._lock:
            self._closed = error
            steps = list(self._steps)
        for step in steps:
            step.cancel(error)

    def _container(self, name: str) -> dict[str, Any]:
        if not name:
            return self._own
        with _named_lock:
            return _named.setdefault(name, {})

    def get_or_create(
        self, container: str, name: str, kind: type[Resource], make: Callable[[], Resource]
    ) -> Resource:
        """Return the resource of that name, making it if there is none."""
        found = self._container(container).get(name)
        if found is None:
            with self._lock:
                found = self._container(container).get(name)
                if found is None:
                    found = make()
                    if not container and isinstance(found, Resumable) and name in self._resumed:
                        _resume(name, found, self._resumed[name])
                        del self._resumed[name]
                    self._container(container)[name] = found
        return _checked(found, container, name, kind)

    def lookup(self, container: str, name: str, kind: type[Resource]) -> Resource:
        """Return the resource of that name; NotFoundError if there is none."""
        found = self._container(container).get(name)
        if found is None:
            raise NotFoundError(
                None,
                None,
                f"Resource {container or 'localhost'}/{name}/{kind.__name__} does not exist.",
            )
        return _checked(found, container, name, kind)

    def variables(self) -> list[VariableState]:
        """The variables of the session's own container, by name."""
        with self._lock:
            own = list(self._own.values())
        return sorted((s for s in own if isinstance(s, VariableState)), key=lambda s: s.name)

    def has(self, container: str, name: str) -> bool:
        return name in self._container(container)

    def delete(self, container: str, name: str) -> bool:
        """Remove a resource; False if it wasn't there."""
        found = self._container(container).pop(name, None)
        _count_removal()
        return found is not None

    # -- Going on in another process ---------------------------------------------------------------

    def saved(self, variables: Collection[str]) -> dict[str, dict[str, np.ndarray]]:
        """What a restarted program needs of the session's own container: generators, samplers,
        queues, and of the variables those that are named.
        """
        with self._lock:
            found = {name: dict(arrays) for name, arrays in self._resumed.items()}
            own = dict(self._own)
        for name, state in own.items():
            wanted = name in variables or not isinstance(state, VariableState)
            if wanted and isinstance(state, Resumable):
                found[name] = state.saved()
        return found

    def resume(self, saved: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Go on from what `saved` returned; what isn't there yet does when it's made."""
        with self._lock:
            for name, arrays in saved.items():
                state = self._own.get(name)
                if state is None:
                    self._resumed[name] = arrays
                elif isinstance(state, Resumable):
                    _resume(name, state, arrays)

    def sleepers(self) -> set[int]:
        """The threads whose steps wait, with nothing yet to go on with."""
        with self._lock:
            steps = list(self._steps)
        found = (step.sleeper() for step in steps if hasattr(step, "sleeper"))
        return {thread for thread in found if thread is not None}


def _resume(name: str, state: Resumable, saved: Mapping[str, np.ndarray]) -> None:
    name = name.removeprefix(OPERATION_STATE)
    try:
        state.resume(saved)
    except KeyError as error:
        raise ValueError(
            f"what was saved of {name} is of another kind: there is no {error}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _checked(found: Any, container: str, name: str, kind: type[Resource]) -> Resource:
    if not isinstance(found, kind):
        raise InvalidArgumentError(
            None,
            None,
            f"Resource {container}/{name} is a {type(found).__name__}, not a {kind.__name__}",
        )
    return found
