"""The tasks of a cluster as actors of Ray. In: tasks, what each needs, what each runs. Out: their
addresses, and events: a task was lost, was started again, has ended.

Ray reserves resources (a placement group with one bundle for each task), finds hosts, starts the
processes and starts them again when they or their hosts die. Each task opens a port of ours and
reports its address, and from then on the tasks talk to each other without Ray. A task that was
started again gets the same work as before, at a new address.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace._src.server.ray_task import Directory, RayTask
from headrace._src.transport.connect import is_loopback
from headrace._src.transport.keys import configured_key, give_key
from headrace._src.transport.moves import set_moves

__all__ = ["Event", "RayTasks", "RayRequest", "TaskWork", "import_ray"]

_ASK_AGAIN = 0.2  # seconds until a task that is being started again is asked again
_SAY_WAITING = 5.0  # seconds after which a wait for resources is reported


@dataclass(frozen=True, slots=True)
class RayRequest:
    """What Ray is asked for.

    address: that of a Ray cluster, "auto" for the one of this host; None uses the cluster that this
    process is connected to, or starts one on this host. cpus, resources: what is reserved for each
    task. strategy: Ray's rule for placement, such as "SPREAD" or "PACK". environment: variables of
    the processes. working_dir: a directory that Ray copies to the hosts, where the tasks run.
    """

    address: str | None = None
    cpus: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)
    strategy: str = "SPREAD"
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None


class TaskWork(NamedTuple):
    """What a task does: a method of RayTask, and its arguments except for the moves."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened to a task. kind: "lost" (Ray starts it again), "restarted" or
    "ended". code: the exit code of one that has ended. reason: why it was lost, or where it is.
    """

    task: str
    kind: str
    reason: str = ""
    code: int | None = None


@dataclass(slots=True, eq=False)
class _Actor:
    name: str
    handle: Any
    work: TaskWork | None = None
    first: str = ""  # the address in the specification
    restarts: int = 0


def import_ray() -> Any:
    """Return the package ray; say how to get it if it is missing."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "clusters on Ray need the package ray: pip install 'headrace[ray]'"
        ) from error
    return ray


class RayTasks:
    """Tasks of a cluster on Ray: a context manager, which ends them.

    names: the tasks, such as "worker 1". say: gets what users should know.
    """

    def __init__(
        self, names: Iterable[str], request: RayRequest, say: Callable[[str], Any] | None = None
    ) -> None:
        self._ray = ray = import_ray()
        self._say = say or (lambda text: print(f"headrace: {text}", file=sys.stderr))
        address = request.address
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            ray.init(address=address, log_to_driver=True)
        elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
            raise ValueError(
                f"this process is already connected to the Ray cluster at "
                f"{ray.get_runtime_context().gcs_address}, and not to {address}"
            )
        self._name = f"headrace directory {secrets.token_hex(8)}"
        self._key = configured_key() or secrets.token_bytes(32)
        self._running: dict[Any, _Actor] = {}  # by the promise of the work's result
        self._opening: dict[Any, _Actor] = {}  # by the promise of the address
        self._asking: list[tuple[float, _Actor]] = []  # when to ask for an address again
        self._moves: dict[str, str] = {}
        self._group: Any = None
        self._actors: dict[str, _Actor] = {}
        try:
            self._directory = self._start_directory()
            self._start(list(names), request)
        except BaseException:
            self.close()
            raise

    def _start_directory(self) -> Any:
        """Start the directory on the host of this process: if that dies, nothing can go on."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self._ray.get_runtime_context().get_node_id()
        options = self._ray.remote(Directory).options(
            num_cpus=0,
            name=self._name,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        return options.remote()

    def _start(self, names: list[str], request: RayRequest) -> None:
        ray = self._ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = {"CPU": request.cpus, **request.resources}
        self._group = placement_group([bundle] * len(names), strategy=request.strategy)
        self._await_resources(bundle, len(names))
        threads = {"HEADRACE_NUM_THREADS": str(max(1, int(request.cpus)))}  # Ray would allow one
        runtime: dict[str, Any] = {"env_vars": {**threads, **request.environment}}
        if request.working_dir is not None:
            runtime["working_dir"] = request.working_dir
        made = ray.remote(RayTask)
        for place, name in enumerate(names):
            options = made.options(
                num_cpus=request.cpus,
                resources=dict(request.resources),
                max_restarts=-1,
                runtime_env=runtime,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, place),
            )
            handle = options.remote(name, self._name, self._key)
            self._actors[name] = _Actor(name, handle)

    def _await_resources(self, bundle: Mapping[str, float], count: int) -> None:
        """Wait until Ray has room for all tasks; an autoscaler may have to start hosts first."""
        told = False
        while not self._group.wait(_SAY_WAITING):
            if not told:
                there = self._ray.cluster_resources()
                known = {name: there.get(name, 0.0) for name in bundle}
                self._say(
                    f"waiting until Ray has {count} times {dict(bundle)}; its hosts have {known} "
                    "in total. Start more of them (ray start --address=...), or ask for less."
                )
            told = True

    def addresses(self, names: Iterable[str]) -> list[str]:
        """Let tasks choose their ports; return their addresses, in order."""
        actors = [self._actors[name] for name in names]
        found = self._ray.get([actor.handle.address.remote() for actor in actors])
        for actor, address in zip(actors, found, strict=True):
            actor.first = address
        if not all(map(is_loopback, found)):
            give_key(self._key)
        return found

    def begin(self, name: str, work: TaskWork) -> None:
        """Let a task do its work. It does it again each time that Ray starts it again."""
        actor = self._actors[name]
        actor.work = work
        method = getattr(actor.handle, work.method)
        self._running[method.remote(*work.arguments, self._moves)] = actor

    def poll(self, timeout: float) -> list[Event]:
        """Wait up to `timeout` seconds for something to happen, and return what has."""
        now = time.monotonic()
        due = [actor for when, actor in self._asking if when <= now]
        self._asking = [each for each in self._asking if each[0] > now]
        for actor in due:
            self._opening[actor.handle.address.remote()] = actor
        promises = [*self._running, *self._opening]
        if not promises:
            time.sleep(timeout)
            return []
        ready, _ = self._ray.wait(promises, num_returns=1, timeout=timeout)
        found = [
            self._ended(each) if each in self._running else self._opened(each) for each in ready
        ]
        return [event for event in found if event is not None]

    def _ended(self, promise: Any) -> Event:
        """Handle the result of a task's work, or its loss."""
        actor = self._running.pop(promise)
        try:
            return Event(actor.name, "ended", code=self._ray.get(promise))
        except self._ray.exceptions.RayActorError as error:
            self._asking.append((time.monotonic(), actor))
            return Event(actor.name, "lost", _reason(error))
        except self._ray.exceptions.RayTaskError as error:
            return Event(actor.name, "ended", str(error), code=1)

    def _opened(self, promise: Any) -> Event | None:
        """Handle the new address of a task that was started again."""
        actor = self._opening.pop(promise)
        try:
            address = self._ray.get(promise)
        except self._ray.exceptions.ActorUnavailableError:
            self._asking.append((time.monotonic() + _ASK_AGAIN, actor))
            return None
        except self._ray.exceptions.RayActorError as error:
            return Event(actor.name, "ended", _reason(error), code=1)
        actor.restarts += 1
        if actor.first:
            self._moves = self._ray.get(self._directory.move.remote(actor.first, address))
            set_moves(self._moves)
        assert actor.work is not None
        self.begin(actor.name, actor.work)
        return Event(actor.name, "restarted", f"at {address}")

    def restart(self, name: str) -> None:
        """Kill a task; Ray starts it again."""
        actor = self._actors[name]
        self._ray.kill(actor.handle, no_restart=False)
        if actor not in self._running.values():
            self._asking.append((time.monotonic(), actor))

    def kill(self, name: str) -> None:
        """Kill a task for good."""
        self._ray.kill(self._actors[name].handle)

    def end(self) -> None:
        """Let all tasks end as after a Ctrl-C."""
        self._directory.end.remote()

    def steps(self) -> dict[str, int]:
        """Return how many steps have ended on each task."""
        try:
            return self._ray.get(self._directory.steps.remote(), timeout=1.0)
        except self._ray.exceptions.RayError:
            return {}

    def close(self) -> None:
        """Kill what still runs, and give the resources back."""
        if not self._ray.is_initialized():
            return
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors.clear()
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
            self._group = None
        if self._owns_ray:
            self._ray.shutdown()

    def __enter__(self) -> RayTasks:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _reason(error: BaseException) -> str:
    """Return the first line of what Ray says about the death of an actor."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
