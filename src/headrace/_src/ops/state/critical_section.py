"""Critical sections: subgraphs that never run concurrently with themselves. The mutex ops, and
tf.CriticalSection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.export import export
from headrace._src.devices.mutex import Mutex, MutexLock
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.grouping import group
from headrace._src.ops.state.shared_state import find_state, on, state_behind

__all__ = ["CriticalSection"]


def _mutex_kernel(*, ctx, container, shared_name):
    return find_state(ctx, Mutex, (container, shared_name or ctx.name), Mutex)[0]


@define(
    "MutexV2",
    "-> resource: resource",
    "container: string = ''; shared_name: string = ''",
    infer=infer.scalar,
    kernel=_mutex_kernel,
    effect=Effect.READS,
    samples=[Sample()],
)
def mutex_v2(container="", shared_name="", name=None):
    """Return a mutex."""


@define(
    "MutexLock",
    "mutex: resource -> mutex_lock: variant",
    infer=infer.scalar,
    kernel=on(Mutex, lambda mutex: mutex.acquire()),
    gradient=NOT_DIFFERENTIABLE,
    # A step orders the operations on a variable. Sections must run in the same order; otherwise the
    # holder of the lock could wait for a section that waits for the lock.
    effect=Effect.WRITES,
    waits=True,
)
def mutex_lock(mutex, name=None):
    """Return the lock of a mutex; block while it is held elsewhere."""


def _consume_kernel(lock, *, ctx):
    state_behind(ctx, lock, MutexLock).release()


@define(
    "ConsumeMutexLock",
    "mutex_lock: variant ->",
    infer=infer.no_outputs,
    kernel=_consume_kernel,
    effect=Effect.BLOCKS,
)
def consume_mutex_lock(mutex_lock, name=None):
    """Release a lock."""


@export("CriticalSection")
class CriticalSection:
    """Code that is passed to `execute` never runs concurrently with another call, in any step.

    shared_name: sections of the same name are one section, in whatever graph.
    """

    def __init__(
        self,
        name: str | None = None,
        shared_name: str | None = None,
        critical_section_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if critical_section_def is not None or import_scope is not None:
            raise NotImplementedError("saved critical sections can't be read: make a new one")
        with (
            name_scope(name, "CriticalSection", []) as scope,
            get_default_graph().control_dependencies(None),
        ):
            self._handle: Tensor = mutex_v2(shared_name=shared_name or scope, name=scope)
        self._building = False

    @property
    def name(self) -> str:
        return self._handle.op.name

    def execute(
        self,
        fn: Callable[[], Any],
        exclusive_resource_access: bool = True,
        name: str | None = None,
    ) -> Any:
        """Build `fn()` inside the section and return its result. Another section may not use the
        same resources, unless `exclusive_resource_access` is false.
        """
        with name_scope(name, "critical_section_execute", []):
            graph = get_default_graph()
            if self._building:
                raise ValueError(
                    f"Attempting to lock a CriticalSection in which we are already running: "
                    f"{self.name}. This is illegal and may cause deadlocks."
                )
            lock = mutex_lock(self._handle)
            first = len(graph.get_operations())
            self._building = True
            try:
                with graph.control_dependencies([lock]):
                    result = fn()
            finally:
                self._building = False
            inside = graph.get_operations()[first:]
            self._hold_back(lock.op, inside)
            if exclusive_resource_access:
                self._check_exclusive(inside, graph)
            outputs = [] if result is None else [_tensor(t) for t in nest.flatten(result)]
            with graph.control_dependencies([*inside, *outputs]):
                release = consume_mutex_lock(lock)
            with graph.control_dependencies([release]):
                found = [group(t) if isinstance(t, Operation) else identity(t) for t in outputs]
            return release if result is None else nest.pack_sequence_as(result, found)

    def _hold_back(self, lock: Operation, inside: list[Operation]) -> None:
        """Compute the values that a function captures before the lock is taken: they might need the
        lock themselves.
        """
        own = set(inside) | {lock}
        needed = dict.fromkeys(t.op for op in inside for t in op.inputs if t.op not in own)
        needed.pop(self._handle.op, None)
        lock._add_control_inputs(list(needed))

    def _check_exclusive(self, inside: list[Operation], graph: Any) -> None:
        used = frozenset(
            t
            for op in inside
            for t in op.inputs
            if t.dtype.base_dtype is dtypes.resource and t is not self._handle
        )
        for section, resources in graph.get_collection_ref("critical_section_executions"):
            if section is not self and (shared := used & resources):
                names = sorted(t.name for t in shared)
                raise ValueError(
                    f"This execution would access resources: {names}. Either this lock "
                    f"(CriticalSection: {self.name}) or lock '{section.name}' requested exclusive "
                    "resource access of this resource. Did you mean to call execute with keyword "
                    "argument exclusive_resource_access=False?"
                )
        graph.add_to_collection("critical_section_executions", (self, used))


def _tensor(value: Any) -> Any:
    return value if isinstance(value, Operation) else convert_to_tensor(value)
