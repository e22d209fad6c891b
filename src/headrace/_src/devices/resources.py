"""State that outlives a kernel: variables and other resources, in containers of devices.

The default container ("") of a device belongs to one session, or to all sessions of a server. Named
containers belong to the device, so that sessions and disjoint graphs can share their contents
(white paper §4.7) until `reset_containers` or `Resources.reset` clears them. State that lives as
long as a step is in a container of that step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, NotFoundError
from headrace._src.core.locks import Lock, RLock
from headrace._src.devices.device import Device, known_devices, local_devices
from headrace._src.devices.gate import Gate
from headrace._src.devices.resumable import Resumable
from headrace._src.devices.step_context import StepContext, active, current
from headrace._src.devices.variable_state import VariableState

__all__ = [
    "OPERATION_STATE",
    "ResourceHandle",
    "Resources",
    "removals",
    "reset_containers",
    "without_device",
]

Resource = TypeVar("Resource")
Running = TypeVar("Running")

OPERATION_STATE = "_state_of/"  # prefix of an operation's name: the operation's private state
_PRIVATE = "_"  # prefix of the names of a session's own containers
_OPERATIONS = "_operations"  # for operations' private state, where sessions share the default one
_DEFAULT = "localhost"  # TensorFlow's name of the default container
_ON_DEVICE = "@/job:"  # separates a name from its device, if that isn't the session's default


@dataclass(frozen=True, slots=True)
class ResourceHandle:
    """The runtime value of a `resource` tensor: the place and the kind of a piece of state.
    The session that uses a handle finds the state (`Resources.find`).
    """

    device: str
    container: str
    name: str
    kind: type

    def __str__(self) -> str:
        return f"{self.container or 'localhost'}/{self.name}"


_removals = 0
_removals_lock = Lock()


def removals() -> int:
    """Return how often a resource was removed from any container. While this number stays the
    same, looking up a name finds the same resource again.
    """
    return _removals


def _count_removal() -> None:
    global _removals
    with _removals_lock:
        _removals += 1


def reset_containers(names: Iterable[str] | None = None) -> None:
    """Drop the state in these named containers of all devices; without names, in all of them."""
    asked = list(names or ()) or None
    for device in known_devices():
        device.containers.clear(asked)
    _count_removal()


class Resources:
    """The state that a session sees on its devices: its own containers, and the named containers
    of the devices.

    On each device, a session owns the default container ("") and the containers whose names begin
    with "_": one for each running step.
    devices: the session's devices, the default one first; "" as a device's name means that one.
    functions: kernels call functions of the graph with `functions.call(function, args)`.
    shared: the state of a server, of which this is one session: it has the server's devices and
    default containers. Its steps and the private state of its operations are its own.
    """

    def __init__(
        self,
        devices: Sequence[Device] = (),
        functions: Any = None,
        shared: Resources | None = None,
    ) -> None:
        if shared is not None:
            devices = tuple(shared._devices.values())
        devices = devices or local_devices()
        self.functions = functions
        self.gate = Gate() if shared is None else shared.gate
        self._devices = {device.name: device for device in devices}
        self._first = devices[0]
        self._own: dict[tuple[str, str], dict[str, Any]] = {}  # by device and container
        self._resumed: dict[str, Mapping[str, np.ndarray]] = {}  # for resources not made yet
        self._lock = RLock()
        self._steps: set[Any] = set()
        self._closed: BaseException | None = None
        self.operations = ""  # the container of operations' private state
        if shared is not None:
            self._lock, self._resumed = shared._lock, shared._resumed
            self._own = {(name, ""): shared._container(name, "") for name in self._devices}
            self.operations = _OPERATIONS

    def device(self, name: str) -> Device:
        """Return the device that a node was placed on; the default one if it wasn't placed."""
        return self._devices.get(name, self._first)

    @contextmanager
    def running(self, step: Running) -> Iterator[Running]:
        """Register a step within the with-block, so that `close` can stop it."""
        self.enlist(step)
        try:
            yield step
        finally:
            self.dismiss(step)

    def enlist(self, step: Any) -> None:
        """Register a step, until `dismiss`, so that `close` can stop it."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._steps.add(step)

    def dismiss(self, step: Any) -> None:
        """Forget a step that was registered, if it was."""
        with self._lock:
            self._steps.discard(step)

    def close(self, error: BaseException) -> None:
        """Stop the registered steps with an error. Steps that are registered later raise it."""
        with self._lock:
            self._closed = error
            steps = list(self._steps)
        for step in steps:
            step.cancel(error)

    def reset(self, names: Iterable[str] | None = None) -> None:
        """Drop the state in these containers of the devices; without names, in all of them. The
        default container, which the sessions of a server share, has the name "localhost".
        """
        asked = list(names or ())
        named = [name for name in asked if name not in ("", _DEFAULT)]
        with self._lock:
            if not asked or len(named) < len(asked):
                for device in self._devices:
                    self._container(device, "").clear()  # others have the same dict
                self._resumed.clear()
        for device in self._devices.values():
            if named or not asked:
                device.containers.clear(named or None)
        _count_removal()

    def _container(self, device: str, name: str) -> dict[str, Any]:
        if not name or name[0] == _PRIVATE:
            key = device or self._first.name, name
            found = self._own.get(key)
            return self._own.setdefault(key, {}) if found is None else found
        return self.device(device).containers[name]

    def get_or_create(
        self,
        device: str,
        container: str,
        name: str,
        kind: type[Resource],
        make: Callable[[], Resource],
    ) -> Resource:
        """Return the resource of that name; make it if there is none."""
        found = self._container(device, container).get(name)
        if found is None:
            with self._lock:
                found = self._container(device, container).get(name)
                if found is None:
                    found = make()
                    if container in ("", self.operations) and isinstance(found, Resumable):
                        self._resume_new(self._saved_name(device, name), found)
                    self._container(device, container)[name] = found
        return _checked(found, container, name, kind)

    def lookup(self, device: str, container: str, name: str, kind: type[Resource]) -> Resource:
        """Return the resource of that name; raise NotFoundError if there is none."""
        found = self._container(device, container).get(name)
        if found is None:
            raise NotFoundError(
                None,
                None,
                f"Resource {container or 'localhost'}/{name}/{kind.__name__} does not exist.",
            )
        return _checked(found, container, name, kind)

    def find(self, handle: ResourceHandle) -> Any:
        """Return the state that a handle names. Raise NotFoundError if it doesn't exist, and
        InvalidArgumentError if it's of another kind.
        """
        found = self.peek(handle)
        if type(found) is handle.kind:
            return found
        return self.lookup(handle.device, handle.container, handle.name, handle.kind)

    def variables(self) -> list[VariableState]:
        """Return the variables in the session's default containers, sorted by name."""
        own = [state for _, state in self._default_state()]
        return sorted((s for s in own if isinstance(s, VariableState)), key=lambda s: s.name)

    def has(self, device: str, container: str, name: str) -> bool:
        return name in self._container(device, container)

    def peek(self, handle: ResourceHandle) -> Any:
        """Return the state that a handle names, of any kind; None if it doesn't exist."""
        own = self._own.get((handle.device, handle.container))
        if own is None:
            own = self._container(handle.device, handle.container)
        return own.get(handle.name)

    def delete(self, device: str, container: str, name: str) -> bool:
        """Remove a resource; return whether it existed."""
        found = self._container(device, container).pop(name, None)
        _count_removal()
        return found is not None

    @contextmanager
    def step(self) -> Iterator[StepContext]:
        """Yield the step that this thread runs in this session: the current one, or a new one that
        `close` can stop.
        """
        outer = current()
        if outer is not None and outer.resources is self:
            yield outer
            return
        with self.running(StepContext(self, outer and outer.cancellation)) as step, active(step):
            try:
                yield step
            finally:
                self.drop(step.container)

    def drop(self, container: str) -> None:
        """Drop one of the session's own containers, such as that of a step."""
        for device in self._devices:
            self._own.pop((device, container), None)

    def _default_state(self) -> list[tuple[str, Any]]:
        """Return the contents of the session's default containers, by the names to save them."""
        with self._lock:
            return [
                (self._saved_name(device, name), state)
                for (device, container), found in self._own.items()
                if container in ("", self.operations)
                for name, state in found.items()
            ]

    # -- Resuming in another process ---------------------------------------------------------------

    def saved(self, variables: Collection[str]) -> dict[str, dict[str, np.ndarray]]:
        """Return the state of the default containers that a restarted program needs: generators,
        samplers, queues, and those variables that are named.
        """
        with self._lock:
            found = {name: dict(arrays) for name, arrays in self._resumed.items()}
        for name, state in self._default_state():
            wanted = without_device(name) in variables or not isinstance(state, VariableState)
            if wanted and isinstance(state, Resumable):
                found[name] = state.saved()
        return found

    def resume(self, saved: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Restore the state that `saved` returned. A resource that doesn't exist yet is restored
        when it is made.
        """
        with self._lock:
            states = dict(self._default_state())
            for name, arrays in saved.items():
                state = states.get(name)
                if state is None:
                    self._resumed[name] = arrays
                elif isinstance(state, Resumable):
                    _resume(name, state, arrays)

    def _resume_new(self, name: str, state: Resumable) -> None:
        if name in self._resumed:
            _resume(name, state, self._resumed[name])
            del self._resumed[name]

    def _saved_name(self, device: str, name: str) -> str:
        return name if device in ("", self._first.name) else f"{name}@{device}"

    def sleepers(self) -> set[int]:
        """Return the threads whose steps are blocked and can't continue yet."""
        with self._lock:
            steps = list(self._steps)
        found = (step.sleeper() for step in steps if hasattr(step, "sleeper"))
        return {thread for thread in found if thread is not None}


def without_device(saved_name: str) -> str:
    """Return the name of a saved resource without its device."""
    name, mark, _ = saved_name.rpartition(_ON_DEVICE)
    return name if mark else saved_name


def _resume(name: str, state: Resumable, saved: Mapping[str, np.ndarray]) -> None:
    name = name.removeprefix(OPERATION_STATE)
    try:
        state.resume(saved)
    except KeyError as error:
        raise ValueError(
            f"the saved state of {name} is of another kind: there is no {error}"
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
