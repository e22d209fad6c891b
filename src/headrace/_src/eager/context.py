"""State shared by all eager graphs of a process: seeds, random generators, prepared functions.

State: the seed set by tf.set_random_seed in eager code, and the generator that draws operations'
seeds from it; the generators of random operations. As in TensorFlow, two operations of
equal type and attributes draw from one generator, so that a function that draws with a seed gets
other numbers at its next call.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any

from headrace._src.core.locks import Lock
from headrace._src.devices.resources import ResourceHandle, Resources
from headrace._src.pipeline import Options
from headrace._src.runtime.kernels import NodeContext
from headrace._src.session.function_runs import FunctionRuns

__all__ = ["CONTEXT", "EAGER", "EagerNodeContext", "EagerResources"]

EAGER = "_eager_"  # begins the names of the containers of eager graphs

_LARGEST_SEED = 2**31 - 1
_MOST_GENERATORS = 4096  # with a global seed, each operation has its own generator


class Context:
    """The seeds and generators of eager operations, and the runner of the functions they call."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seed: int | None = None
        self._draws = random.Random()
        self._generators: OrderedDict[Any, Any] = OrderedDict()

    @property
    def seed(self) -> int | None:
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        with self._lock:
            self._seed = seed
            self._draws = random.Random(seed)
            self._generators.clear()

    def operation_seed(self) -> int:
        """Return a seed for a new random operation: the next of a sequence that the global seed
        starts.
        """
        with self._lock:
            return self._draws.randint(0, _LARGEST_SEED)

    def generator(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the generator for operations of this key; the least recently used ones are
        dropped.
        """
        with self._lock:
            if key not in self._generators:
                self._generators[key] = make()
            self._generators.move_to_end(key)
            while len(self._generators) > _MOST_GENERATORS:
                self._generators.popitem(last=False)
            return self._generators[key]

    @cached_property
    def resources(self) -> Resources:
        """The state of eager operations, and the runner of the functions that they call; each is
        prepared once, as in a session.
        """
        resources = Resources()
        resources.functions = FunctionRuns(Options, resources)
        return resources


CONTEXT = Context()


class EagerResources(Resources):
    """The state that the operations of one eager graph see: that of the process's eager operations,
    and that of the session that runs them, if there is one.
    """

    def __init__(self, session: Resources | None) -> None:
        super().__init__(functions=CONTEXT.resources.functions)
        self._session = session

    def _container(self, device: str, name: str) -> dict[str, Any]:
        owner = CONTEXT.resources if name.startswith(EAGER) else self._session
        return super()._container(device, name) if owner is None else owner._container(device, name)


class EagerNodeContext(NodeContext):
    """The context that kernels of eager operations get."""

    __slots__ = ()

    def handle(self, container: str, name: str, kind: type) -> ResourceHandle:
        return super().handle(container or self._container, name, kind)

    def find_or_make(self, container: str, name: str, kind: type, make: Callable[[], Any]) -> Any:
        return super().find_or_make(container or self._container, name, kind, make)

    @property
    def _container(self) -> str:
        op: Any = self.op
        return op.graph.own_container

    def state(self, kind: type, make: Callable[[], Any]) -> Any:
        """Return the state that all operations of this type and these attributes share."""
        attrs = tuple(sorted((k, repr(v)) for k, v in self.attrs.items()))
        return CONTEXT.generator((kind, self.op.type, attrs), make)
