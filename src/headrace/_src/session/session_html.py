"""Show a session in a notebook. In: a session. Out: HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._src.core import source
from headrace._src.core.html import card, fold, table
from headrace._src.graph.graph_html import amount

if TYPE_CHECKING:
    from headrace._src.session.session import BaseSession

__all__ = ["session_html"]

_MOST_VARIABLES = 500


def session_html(session: BaseSession) -> str:
    """Return HTML with a session's state, the size of its graph and its initialised variables."""
    facts: list[tuple[str, object]] = []
    if session._closed:
        facts.append(("closed at", source.user_line(session._closed_at) or "an unknown line"))
    facts.append(("graph", f"{amount(len(session.graph.get_operations()))} operations"))
    if session._remote is not None:
        facts.append(("target", f"{session.sess_str}, whose tasks have the variables"))
    facts.append(("devices", ", ".join(device.name for device in session.list_devices())))
    facts.append(("steps", f"{len({id(p.variants) for p in session._plans.values()})} prepared"))
    states = [s for s in session._resources.variables() if s.is_initialized]
    parts = []
    if states:
        size = sum(state.read().nbytes for state in states)
        facts.append(("variables", f"{amount(len(states))} have values, {amount(size)} bytes"))
        rows = [(s.name, s.dtype.base_dtype.name, s.sizes) for s in states[:_MOST_VARIABLES]]
        parts.append(fold("variables", table(("name", "dtype", "shape"), rows)))
    kind = type(session).__name__
    return card(kind, "closed" if session._closed else "open", facts, parts)
