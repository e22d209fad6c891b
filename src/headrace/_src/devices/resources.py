"""State that outlives a kernel: variables and whatever else kernels keep, in containers of devices.

The default container ("") of a device belongs to one session. Named containers belong to the
device, so that sessions and disjoint graphs can share what is in them (white paper §4.7) until
`reset_containers` clears them. What lives as long as a step is in a container of that step.
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

OPERATION_STATE = "_state_of/"  # with an operation's name: what it keeps for itself
_PRIVATE = "_"  # begins the names of containers that a session has for itself
_ON_DEVICE = "@/job:"  # between a name and its device, where that isn't the session's default


@dataclass(frozen=True, slots=True)
class ResourceHandle:
    """The runtime value of a `resource` tensor: where a piece of state is, and of what kind it is.
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
    """How often something was removed from any container: while this stays the same, a resource
    that was found by its name would be found again.
    """
    return _removals


def _count_removal() -> None:
    global _removals
    with _removals_lock:
        _removals += 1


def reset_containers(names: Iterable[str] | None = None) -> None:
    """Forget the state in these named containers of all devices, or in all of them."""
    for device in known_devices():
        device.containers.clear(list(names) if names else None)
    _count_removal()


class Resources:
    """The state that a session sees on its devices: its own containers, and the named containers
    of the devices.

    Its own are, on each device, the default container ("") and those whose names begin with "_":
    one for each step that runs.
    devices: those of the session, the default one first. functions: `functions.call(function,
    args)` is how a kernel calls a function of the graph.
    """

    def __init__(self, devices: Sequence[Device] = (), functions: Any = None) -> None:
        devices = devices or local_devices()
        self.functions = functions
        self.gate = Gate()
        self._devices = {device.name: device for device in devices}
        self._first = devices[0]
        self._own: dict[tuple[str, str], dict[str, Any]] = {}  # by device and container
        self._resumed: dict[str, Mapping[str, np.ndarray]] = {}  # for what isn't there yet
        self._lock = RLock()
        self._steps: set[Any] = set()
        self._closed: BaseException | None = None

    def device(self, name: str) -> Device:
        """The device that a node was placed on; the default one if it wasn't placed."""
        return self._devices.get(name, self._first)

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

    def _container(self, device: str, name: str) -> dict[str, Any]:
        if not name or name[0] == _PRIVATE:
            found = self._own.get((device, name))
            return self._own.setdefault((device, name), {}) if found is None else found
        return self.device(device).containers[name]

    def get_or_create(
        self,
        device: str,
        container: str,
        name: str,
        kind: type[Resource],
        make: Callable[[], Resource],
    ) -> Resource:
        """Return the resource of that name, making it if there is none."""
        found = self._container(device, container).get(name)
        if found is None:
            with self._lock:
                found = self._container(device, container).get(name)
                if found is None:
                    found = make()
                    if not container and isinstance(found, Resumable):
                        self._resume_new(self._saved_name(device, name), found)
                    self._container(device, container)[name] = found
        return _checked(found, container, name, kind)

    def lookup(self, device: str, container: str, name: str, kind: type[Resource]) -> Resource:
        """Return the resource of that name; NotFoundError if there is none."""
        found = self._container(device, container).get(name)
        if found is None:
            raise NotFoundError(
                None,
                None,
                f"Resource {container or 'localhost'}/{name}/{kind.__name__} does not exist.",
            )
        return _checked(found, container, name, kind)

    def find(self, handle: ResourceHandle) -> Any:
        """Return the state that a handle leads to; NotFoundError if it isn't there,
        InvalidArgumentError if it's of another kind.
        """
        found = self._container(handle.device, handle.container).get(handle.name)
        if type(found) is handle.kind:
            return found
        return self.lookup(handle.device, handle.container, handle.name, handle.kind)

    def variables(self) -> list[VariableState]:
        """The variables in the session's default containers, by name."""
        own = [state for _, state in self._default_state()]
        return sorted((s for s in own if isinstance(s, VariableState)), key=lambda s: s.name)

    def has(self, device: str, container: str, name: str) -> bool:
        return name in self._container(device, container)

    def peek(self, handle: ResourceHandle) -> Any:
        """What is where a handle leads to, of whatever kind; None if nothing is."""
        return self._container(handle.device, handle.container).get(handle.name)

    def delete(self, device: str, container: str, name: str) -> bool:
        """Remove a resource; False if it wasn't there."""
        found = self._container(device, container).pop(name, None)
        _count_removal()
        return found is not None

    @contextmanager
    def step(self) -> Iterator[StepContext]:
        """The step that this thread runs in this session: the one that is current, or a new one,
        which `close` can stop.
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
        """Forget what is in a container of the session's own, such as that of a step."""
        for device in self._devices:
            self._own.pop((device, container), None)

    def _default_state(self) -> list[tuple[str, Any]]:
        """What the session's default containers hold, each with the name it is saved by."""
        with self._lock:
            return [
                (self._saved_name(device, name), state)
                for (device, container), found in self._own.items()
                if not container
                for name, state in found.items()
            ]

    # -- Going on in another process ---------------------------------------------------------------

    def saved(self, variables: Collection[str]) -> dict[str, dict[str, np.ndarray]]:
        """What a restarted program needs of the session's own container: generators, samplers,
        queues, and of the variables those that are named.
        """
        with self._lock:
            found = {name: dict(arrays) for name, arrays in self._resumed.items()}
        for name, state in self._default_state():
            wanted = without_device(name) in variables or not isinstance(state, VariableState)
            if wanted and isinstance(state, Resumable):
                found[name] = state.saved()
        return found

    def resume(self, saved: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Go on from what `saved` returned; what isn't there yet does when it's made."""
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
        """The threads whose steps wait, with nothing yet to go on with."""
        with self._lock:
            steps = list(self._steps)
        found = (step.sleeper() for step in steps if hasattr(step, "sleeper"))
        return {thread for thread in found if thread is not None}


def without_device(saved_name: str) -> str:
    """The name of what was saved, on whatever device it was."""
    name, mark, _ = saved_name.rpartition(_ON_DEVICE)
    return name if mark else saved_name


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
