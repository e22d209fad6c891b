"""What all eager graphs of a process share: seeds, random generators, functions at work.

State: the seed that tf.set_random_seed gave where operations run as they are made, and what draws
operations' seeds from it; the generators of random operations. As in TensorFlow, two operations of
equal type and attributes draw from one generator, so that a function which draws with a seed gets
other numbers at its next call.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any

from headrace.core.locks import Lock
from headrace.devices.resources import Resources
from headrace.pipeline import Options
from headrace.runtime.kernels import NodeContext
from headrace.session.function_runs import FunctionRuns

__all__ = ["CONTEXT", "EagerNodeContext"]

_LARGEST_SEED = 2**31 - 1
_MOST_GENERATORS = 4096  # with a seed for all, each operation has a generator that no other shares


class Context:
    """The seeds and generators of eager operations, and what runs the functions they call."""

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
        """A seed for a new random operation: the next of a sequence that the common seed starts."""
        with self._lock:
            return self._draws.randint(0, _LARGEST_SEED)

    def generator(self, key: Any, make: Callable[[], Any]) -> Any:
        """What operations of this key draw from; the ones used longest ago are forgotten."""
        with self._lock:
            if key not in self._generators:
                self._generators[key] = make()
            self._generators.move_to_end(key)
            while len(self._generators) > _MOST_GENERATORS:
                self._generators.popitem(last=False)
            return self._generators[key]

    @cached_property
    def functions(self) -> FunctionRuns:
        """Runs functions of graphs for eager operations; prepared once, like a session's."""
        self._resources = Resources()
        return FunctionRuns(Options, self._resources)


CONTEXT = Context()


class EagerNodeContext(NodeContext):
    """What the kernels of eager operations get."""

    __slots__ = ()

    def state(self, kind: type, make: Callable[[], Any]) -> Any:
        """State that all operations of this type and these attributes share."""
        attrs = tuple(sorted((k, repr(v)) for k, v in self.attrs.items()))
        return CONTEXT.generator((kind, self.op.type, attrs), make)
