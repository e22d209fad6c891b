"""Flatten fetches. In: any nesting of tensors, operations, names and registered types. Out: a flat
list of elements, and a function that rebuilds the nesting.

Each part of the nesting adds its elements to a list of unique graph elements, and later picks its
value out of the list of their results. Operations have no value: None takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from headrace._src.core.errors import InaccessibleTensorError
from headrace._src.graph.composite import Composite
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor

__all__ = ["FetchPlan", "expand_feed", "register_session_run_conversion_functions"]

# (type, fetch function, feed function, partial-run feed function); the newest entry is first.
_conversions: list[tuple[type, Any, Any, Any]] = []


def register_session_run_conversion_functions(
    tensor_type: type,
    fetch_function: Callable[[Any], tuple[list[Any], Callable[[list[Any]], Any]]],
    feed_function: Callable[[Any, Any], list[tuple[Any, Any]]] | None = None,
    feed_function_for_partial_run: Callable[[Any], list[Any]] | None = None,
) -> None:
    """Register functions with which sessions fetch and feed a type.

    `fetch_function(value)` returns the elements to fetch, and a function from their results to the
    value's result. `feed_function(key, value)` returns (element, value) pairs.
    """
    if any(issubclass(tensor_type, known) for known, *_ in _conversions):
        raise ValueError(f"{tensor_type} has already been registered so ignore it.")
    _conversions.insert(
        0, (tensor_type, fetch_function, feed_function, feed_function_for_partial_run)
    )


register_session_run_conversion_functions(
    Composite,
    lambda value: (value.components(), value.value_of),
    lambda key, value: key.feeds(value),
    lambda key: key.components(),
)


class FetchPlan:
    """The unique elements of a fetch structure, and the way to rebuild it from their values."""

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self._graph = graph
        self._index: dict[Tensor | Operation, int] = {}
        self._rebuild = self._visit(fetches)
        self.tensors = [e for e in self._index if isinstance(e, Tensor)]
        self.targets = [e for e in self._index if isinstance(e, Operation)]
        if self.targets and self.tensors:
            position: dict[Any, int] = {t: i for i, t in enumerate(self.tensors)}
            none = len(self.tensors)  # the place of the None that operations give
            self._spread = itemgetter(*[position.get(e, none) for e in self._index])

    def rebuild(self, values: Sequence[Any]) -> Any:
        """Put the values of `tensors` into the nesting of the fetches."""
        if self.targets:
            values = self._spread([*values, None]) if values else [None] * len(self.targets)
        return self._rebuild(values)

    def _visit(self, fetch: Any) -> Callable[[Sequence[Any]], Any]:
        if fetch is None:
            raise TypeError(
                "Fetch argument None has invalid type <class 'NoneType'>: a fetch is a tensor, an "
                "operation, a name, or a list or dict of these. Did a function that builds the "
                "graph return nothing?"
            )
        if isinstance(fetch, Mapping):
            keys = list(fetch)
            parts = [self._visit(fetch[k]) for k in keys]
            kind: Any = type(fetch)

            def rebuild(v: Sequence[Any]) -> Any:
                found = kind()  # a subclass of dict may not take pairs, as defaultdict does not
                for k, part in zip(keys, parts, strict=True):
                    found[k] = part(v)
                return found

            return rebuild
        if isinstance(fetch, list | tuple):
            parts = [self._visit(f) for f in fetch]
            if hasattr(fetch, "_fields"):
                named: Any = type(fetch)
                return lambda v: named(*[part(v) for part in parts])
            if isinstance(fetch, list):
                return lambda v: [part(v) for part in parts]
            return lambda v: type(fetch)([part(v) for part in parts])
        if hasattr(type(fetch), "__attrs_attrs__"):
            names = [a.name for a in type(fetch).__attrs_attrs__]
            parts = [self._visit(getattr(fetch, n)) for n in names]
            record: Any = type(fetch)
            return lambda v: record(*[part(v) for part in parts])
        return self._visit_element(fetch)

    def _visit_element(self, fetch: Any) -> Callable[[Sequence[Any]], Any]:
        for kind, function, *_ in () if isinstance(fetch, Tensor | Operation) else _conversions:
            if isinstance(fetch, kind):
                elements, combine = function(fetch)
                places = [self._place(e) for e in elements]
                return lambda v: combine([v[i] for i in places])
        return itemgetter(self._place(fetch))

    def _place(self, fetch: Any) -> int:
        try:
            element = self._graph.as_graph_element(fetch)
        except TypeError as error:
            raise TypeError(
                f"Fetch argument {fetch!r} has invalid type {type(fetch)}, must be a string or "
                "Tensor. "
                f"({error})"
            ) from None
        except (ValueError, KeyError) as error:
            reason, newline, made = error.args[0].partition("\n")
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({reason})"
                f"{newline}{made}"
            ) from None
        if not self._graph.is_fetchable(element):
            op = element.op if isinstance(element, Tensor) else element
            where = " It is part of a loop or a branch." if op._control_flow_context else ""
            raise InaccessibleTensorError(
                f"Operation {op.name!r} has been marked as not fetchable.{where}"
            )
        return self._index.setdefault(element, len(self._index))


def expand_feed(key: Any, value: Any) -> list[tuple[Any, Any]]:
    """Return the (element, value) pairs to feed when a user feeds `key` with `value`."""
    for kind, _, feed, _ in _conversions:
        if isinstance(key, kind):
            if feed is None:
                raise TypeError(f"{kind.__name__} can be fetched but not fed")
            return feed(key, value)
    return [(key, value)]


def expand_partial_feed(key: Any) -> list[Any]:
    """Return the elements that `key` stands for when a partial run declares its feeds."""
    for kind, _, _, partial in _conversions:
        if isinstance(key, kind):
            if partial is None:
                raise TypeError(f"{kind.__name__} can't be fed in a partial run")
            return partial(key)
    return [key]
