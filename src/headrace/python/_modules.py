"""Make the modules below `headrace.python`, and those of any other package that stands for
`tensorflow.python`, when they are imported.

`install(package)` serves a package: its finder makes `package.ops.math_ops` on import. A module's
names are found on first use. What Headrace lacks raises an error that says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from headrace.python._homes import HOMES, LACKING
from headrace.python._table import children, section

__all__ = ["install"]


Further = Callable[[str], Any]


def install(
    package: str, further: Further = lambda path: None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Serve imports of modules below `package`. Return its `__getattr__` and `__dir__`.

    further: finds names that Headrace itself lacks, as "ops.rnn.rnn"; None where there is none.
    """
    finders = [f for f in sys.meta_path if isinstance(f, _Finder) and f.package == package]
    if not finders:
        # At the end: modules that are files come first, and other imports aren't slowed.
        sys.meta_path.append(_Finder(package, further))
    return _on_first_use(package, package, "", further)


class _Finder(MetaPathFinder, Loader):
    """Finds and loads the modules below one package."""

    def __init__(self, package: str, further: Further) -> None:
        self.package = package
        self.further = further

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.package}."):
            return None
        name = fullname.removeprefix(f"{self.package}.")
        if section(name) is not None:
            if not _has_anything(name):
                # Without `name=`: `from package import name` drops an error that carries its name.
                raise ModuleNotFoundError(_lacking_module(name))
            # Every module has an (empty) path, so that `from module import name` asks for
            # "module.name" here and the error for a missing name can say what is missing.
            return ModuleSpec(fullname, self, is_package=True)
        module, _, leaf = name.rpartition(".")
        if module and _is_known(module, leaf):
            raise ImportError(_lacking_name(module, leaf))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # the usual one

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.removeprefix(f"{self.package}.")
        module.__doc__ = f"The names of tensorflow.python.{name} that Headrace has."
        get, listing = _on_first_use(module.__name__, self.package, name, self.further)
        vars(module).update(__getattr__=get, __dir__=listing)


def _on_first_use(
    own_name: str, package: str, module: str, further: Further
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of the module `own_name` of `package`."""

    def listing() -> list[str]:
        section_names = {*_names(module), *children(module)}
        return sorted(name for name in section_names if _has(module, name))

    def get(name: str) -> Any:
        if name == "__all__":
            value: Any = listing()
        elif name in children(module):
            full_name = f"{package}.{module}.{name}" if module else f"{package}.{name}"
            if not _has(module, name):
                raise AttributeError(_lacking_module(full_name.removeprefix(f"{package}.")))
            return import_module(full_name)  # which sets the attribute
        elif (found := _locate(module, name)) is not None:
            value = _load(found, package)
        elif (old := further(f"{module}.{name}" if module else name)) is not None:
            value = old
        elif _is_known(module, name):
            raise AttributeError(_lacking_name(module, name), name=name)
        else:
            message = f"module {own_name!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[own_name])
        vars(sys.modules[own_name])[name] = value  # the next access doesn't come here
        return value

    return get, listing


def _lacking_name(module: str, name: str) -> str:
    path = ".".join(["tensorflow.python", *filter(None, [module]), name])
    reason = LACKING.get(f"{module}.{name}")
    return f"{path} is not in Headrace" + (f": {reason}" if reason else "")


def _lacking_module(module: str) -> str:
    return f"tensorflow.python.{module} is not in Headrace"


@cache
def _names(module: str) -> frozenset[str]:
    """Every name that TensorFlow has in a module, apart from modules below it."""
    known = section(module)
    if known is None:
        return frozenset()
    own = {home.rpartition(".")[2] for home in HOMES if home.rpartition(".")[0] == module}
    return frozenset(own).union(known.targets, *map(_names, known.bases))


def _is_known(module: str, name: str) -> bool:
    return name in _names(module) or f"{module}.{name}" in LACKING


def _has(module: str, name: str) -> bool:
    if name in children(module):
        return _has_anything(f"{module}.{name}" if module else name)
    return _locate(module, name) is not None


@cache
def _has_anything(module: str) -> bool:
    return any(_has(module, name) for name in sorted({*_names(module), *children(module)}))


@cache
def _locate(module: str, name: str) -> str | None:
    """Where a name of a module is, as the table's targets or as "package.module:attribute"; None if
    Headrace hasn't it. Nothing is loaded for the answer but namespaces.
    """
    if (home := HOMES.get(f"{module}.{name}")) is not None:
        return home
    known = section(module)
    if known is None:
        return None
    target = known.targets.get(name)
    if target is None:
        base = next((base for base in known.bases if name in _names(base)), None)
        return base and _locate(base, name)
    if target.startswith("@"):
        other, _, attribute = target[1:].partition(":")
        if attribute:
            return _locate(other, attribute)
        return target if _has_anything(other) else None
    if not _is_public(target.partition("(")[0]):
        return None
    # A function for an op is known by its own module and name.
    return f"{module}.{name}={target}" if target.endswith(")") else f"tf.{target}"


def _is_public(path: str) -> bool:
    if not path:
        return False
    space, _, leaf = path.rpartition(".")
    if space and not _is_public(space):
        return False
    return leaf in dir(_public(space))


def _public(path: str, root: str = "headrace") -> Any:
    value: Any = import_module(root)
    for name in filter(None, path.split(".")):
        value = getattr(value, name)
    return value


def _load(place: str, package: str) -> Any:
    if place.startswith("@"):
        return import_module(f"{package}.{place[1:]}")
    if place.startswith("tf."):
        # A package that stands for all of TensorFlow may have further spellings of a name.
        root = package.removesuffix(".python") if package.endswith(".python") else "headrace"
        return _public(place.removeprefix("tf."), root)
    if place.endswith(")"):
        return _op_function(place)
    home, _, attribute = place.partition(":")
    return getattr(import_module(home), attribute)


@cache
def _op_function(place: str) -> Callable[..., Any]:
    """A function that takes an op's inputs and attributes by position too, unlike tf.raw_ops'."""
    path, _, target = place.partition("=")
    module, _, name = path.rpartition(".")
    raw, _, listed = target.removesuffix(")").partition("(")
    parameters = listed.split(",")
    build = _public(raw)

    def function(*values: Any, **named: Any) -> Any:
        if len(values) > len(parameters):
            takes, given = len(parameters), len(values)
            raise TypeError(f"{name}() takes {takes} positional arguments but {given} were given")
        given_twice = named.keys() & set(parameters[: len(values)])
        if given_twice:
            raise TypeError(f"{name}() got multiple values for argument {min(given_twice)!r}")
        return build(**dict(zip(parameters, values, strict=False)), **named)

    function.__name__ = function.__qualname__ = name
    function.__module__ = f"headrace.python.{module}"
    function.__doc__ = build.__doc__
    return function
