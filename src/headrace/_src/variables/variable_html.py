"""The HTML that notebooks show for variables. In: a Variable. Out: HTML."""

from __future__ import annotations

from headrace._src.core import source
from headrace._src.core.errors import OpError
from headrace._src.core.html import card
from headrace._src.graph import default
from headrace._src.graph.graph_html import amount, short_value
from headrace._src.variables.variable import Variable

__all__ = ["variable_html"]

_MOST_ELEMENTS = 1000  # the largest value to read just for display


def variable_html(variable: Variable) -> str:
    """Describe a variable, with its value in the default session if that is cheap to read."""
    dtype, shape = variable.dtype.base_dtype, variable.shape
    facts: list[tuple[str, object]] = [("dtype", dtype.name), ("shape", shape)]
    count = shape.num_elements()
    if count is not None:
        facts.append(("parameters", f"{amount(count)} ({amount(count * dtype.size)} bytes)"))
    facts.append(("trainable", variable.trainable))
    if (value := _value(variable, count)) is not None:
        facts.append(("value", value))
    if variable.device:
        facts.append(("device", variable.device))
    if where := source.user_line(variable.op.traceback_frames):
        facts.append(("made at", where))
    return card("Variable", variable.name, facts)


def _value(variable: Variable, count: int | None) -> str | None:
    session = default.default_session()
    if session is None or session.graph is not variable.graph:
        return None
    if count is None or count > _MOST_ELEMENTS:
        return None
    try:
        return short_value(session.run(variable))
    except OpError as error:
        return error.message
