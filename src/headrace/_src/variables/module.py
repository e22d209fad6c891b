"""Modules: objects that own variables and other modules. In: their attributes. Out: `variables`,
`trainable_variables`, `submodules`, and methods that run inside of the module's name scope.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.variables.variable import Variable

__all__ = ["ModuleBase", "OwnerModule"]


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


@export("Module")
class OwnerModule(ModuleBase):
    """An object that owns the variables and modules among its attributes.

    name: "snake_case" of the class's name if not given. Methods decorated with `with_name_scope`
    run in the name scope that the module opened when it was made.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = _snake_case(type(self).__name__)
        if not name.isidentifier():
            raise ValueError(
                f"{name!r} is not a valid module name. Module names must be valid Python "
                "identifiers (e.g. a valid class name)."
            )
        self._name = name
        with get_default_graph().name_scope(name) as scope:
            self._scope_name = scope

    @property
    def name(self) -> str:
        """The module's name."""
        return self._name

    @property
    def name_scope(self) -> Any:
        """A context manager that opens the module's name scope."""
        return get_default_graph().name_scope(self._scope_name)


OwnerModule.__name__ = "Module"  # its name for programs; an unnamed one is called after it


def _snake_case(name: str) -> str:
    """ "FullyConnected2D" as "fully_connected2_d": "_" goes before a capital that follows a small
    letter or a digit, or begins a word.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", name).lower()
