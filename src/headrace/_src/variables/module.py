"""Modules: objects that own variables and other modules. In: their attributes. Out: `variables`,
`trainable_variables`, `submodules`, and methods that run inside of the module's name scope.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from headrace._src.core import nest
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.variables.variable import Variable

__all__ = ["ModuleBase"]


class ModuleBase:
    """What tf.Module answers about the attributes of an object."""

    @property
    def variables(self) -> Any:
        """The variables among the attributes, and those of the submodules."""
        return tuple(self._attributes(Variable, {id(self)}))

    @property
    def trainable_variables(self) -> Any:
        """Those of the variables that are trainable."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules among the attributes, and theirs; also in lists, tuples and dicts."""
        return tuple(self._attributes(ModuleBase, {id(self)}))

    def _attributes(self, wanted: type, seen: set[int]) -> Iterator[Any]:
        """The attributes of a class, in the order of their names, then those of submodules."""
        below = []
        for _, value in sorted(vars(self).items()):
            for leaf in nest.flatten(value):
                if isinstance(leaf, wanted | ModuleBase) and id(leaf) not in seen:
                    seen.add(id(leaf))
                    if isinstance(leaf, wanted):
                        yield leaf
                    if isinstance(leaf, ModuleBase):
                        below.append(leaf)
        for leaf in below:
            yield from leaf._attributes(wanted, seen)

    @classmethod
    def with_name_scope(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a method to open the module's name scope."""

        @functools.wraps(method)
        def scoped(self: Any, *args: Any, **kwargs: Any) -> Any:
            opened = self.name_scope
            with name_scope(opened) if isinstance(opened, str) else opened:
                return method(self, *args, **kwargs)

        return scoped
