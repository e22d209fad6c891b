"""The HTML that notebooks show for our objects. In: a title, facts, nested parts. Out: a piece of
HTML.

Text is escaped here and nowhere else: callers pass plain text, and parts that these functions made.
Only transparency is set, no colours, so that a notebook's dark theme keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["card", "fold", "table"]

_CARD = "border:1px solid rgba(128,128,128,.4);border-radius:4px;padding:6px 10px;margin:2px 0;"
_FONT = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px;line-height:1.5;"
_CELL = "padding:1px 14px 1px 0;text-align:left;vertical-align:top;border:0;background:none;"


def card(
    kind: str, title: str, facts: Iterable[tuple[str, object]], parts: Sequence[str] = ()
) -> str:
    """Return a framed box with the kind of object, its title, facts as pairs, and parts below
    them.
    """
    head = f'<span style="opacity:.6">{escape(kind)}</span> <b>{escape(title)}</b>'
    return (
        f'<div style="{_CARD}{_FONT}display:inline-block;max-width:100%;overflow:auto">{head}'
        f"{table((), facts)}{''.join(parts)}</div>"
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows of text, the first column dimmed if there are no headings."""
    lines = []
    if headings:
        cells = "".join(
            f'<th style="{_CELL}font-weight:normal;opacity:.6">{escape(h)}</th>' for h in headings
        )
        lines.append(f'<tr style="background:none">{cells}</tr>')
    for row in rows:
        cells = "".join(
            f'<td style="{_CELL}{"opacity:.6;" if not i and not headings else ""}'
            f'white-space:pre-wrap">{escape(str(cell))}</td>'
            for i, cell in enumerate(row)
        )
        lines.append(f'<tr style="background:none">{cells}</tr>')
    if not lines:
        return ""
    return f'<table style="border-collapse:collapse;margin:2px 0;{_FONT}">{"".join(lines)}</table>'


def fold(summary: str, content: str, is_open: bool = False) -> str:
    """A part that a click unfolds."""
    state = " open" if is_open else ""
    return (
        f'<details{state} style="margin:1px 0"><summary style="cursor:pointer">{escape(summary)}'
        f'</summary><div style="margin-left:18px">{content}</div></details>'
    )
