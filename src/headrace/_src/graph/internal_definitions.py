"""Names for definitions that no registry of ops has, so that a step can be sent to another process.

In: the definitions that only the pipeline makes, and functions that make one definition of another
(*forms*: the same op that takes a reference, or that counts rows). Out: a DefinitionName, and the
definition of that name.

The modules that have them are imported at the first request (`expect`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from headrace._src.core.errors import InternalError, InvalidArgumentError
from headrace._src.core.locks import RLock
from headrace._src.graph.definition import Definition, Effect, definitions
from headrace._src.graph.structured import CALL, UNDEFINED, with_effect

if TYPE_CHECKING:
    from headrace._src.graph.graph import Graph

__all__ = [
    "DefinitionName",
    "definition_name",
    "expect",
    "find_definition",
    "form",
    "register_internal",
]

Form = Callable[[Definition], Definition]


class DefinitionName(NamedTuple):
    """op_type: of the registered or internal op. form: the name of the form of it, if any. effect:
    that of a structured node's parts, if they have one.
    """

    op_type: str
    form: str = ""
    effect: str = ""


_internal: dict[str, Definition] = {}
_forms: dict[str, Form] = {}
_made: dict[Definition, tuple[str, Definition]] = {}  # of each form: its name, and of what
_homes: list[str] = []
_importing = RLock()


def register_internal(*definitions: Definition) -> None:
    """Make definitions known that are in no registry of ops."""
    for definition in definitions:
        if _internal.setdefault(definition.op_type, definition) is not definition:
            raise ValueError(f"op {definition.op_type} is defined twice")


register_internal(CALL, UNDEFINED)


def form(name: str) -> Callable[[Form], Form]:
    """Decorate a function that makes one definition of another: it makes each once, and its results
    have names.
    """

    def decorate(function: Form) -> Form:
        @cache
        @wraps(function)
        def make(definition: Definition) -> Definition:
            made = function(definition)
            _made[made] = name, definition
            return made

        _forms[name] = make
        return make

    return decorate


def expect(homes: Iterable[str]) -> None:
    """Say which modules have internal definitions and forms."""
    _homes.extend(homes)


def _import_homes() -> None:
    while _homes:
        with _importing:  # several threads of a server read steps
            if _homes:
                import_module(_homes[-1])
                _homes.pop()


def definition_name(definition: Definition, graph: Graph | None) -> DefinitionName:
    """Return the name of a definition. graph: that of the operation, for its functions."""
    _import_homes()
    name, base = _made.get(definition, ("", definition))
    op_type = base.op_type
    found = _internal.get(op_type)
    if found is None:
        function = None if graph is None else _function(graph, op_type)
        found = _registered(op_type) if function is None else function
    if found is base:
        return DefinitionName(op_type, name)
    if found is not None and not name and with_effect(found, base.effect) is base:
        return DefinitionName(op_type, "", base.effect.value)
    message = f"{op_type} can't be sent to another process: its definition has no name"
    raise InternalError(None, None, message)


def _function(graph: Graph, name: str) -> Definition | None:
    """Return the definition of a function, of the graph or of one around it."""
    around: Graph | None = graph
    while around is not None:
        if name in around._functions:
            return around._functions[name].definition
        around = getattr(around, "outer", None)
    return None


def _registered(op_type: str) -> Definition | None:
    return definitions().get(op_type)


def find_definition(name: DefinitionName, library: Graph) -> Definition:
    """Return the definition of a name. library: has the functions. NotFoundError if the op is not
    known, InvalidArgumentError if it has no such form.
    """
    _import_homes()
    found = _internal.get(name.op_type) or library.definition_of(name.op_type)
    if name.form:
        try:
            return _forms[name.form](found)
        except (KeyError, AssertionError, AttributeError, TypeError, ValueError):
            message = f"op {name.op_type} has no form {name.form!r}"
            raise InvalidArgumentError(None, None, message) from None
    if name.effect:
        effects = {effect.value: effect for effect in Effect}
        if name.op_type not in _internal or name.effect not in effects:
            message = f"op {name.op_type} has no effect {name.effect!r}"
            raise InvalidArgumentError(None, None, message)
        return with_effect(found, effects[name.effect])
    return found
