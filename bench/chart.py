"""Charts for the documentation. In: lines, points and bars. Out: the text of an SVG file.

A chart has a white background of its own, so that it reads the same on light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

INK, FAINT, GREY = "#222222", "#e4e4e4", "#666666"
COLOURS = ("#1f5fa8", "#c2622d", "#2a8c55", "#8a4fa3", "#b8930a", "#444444", "#c2447a")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "", "4 2", "12 4")
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 74, 210, 62, 52


class Series(NamedTuple):
    """One row of the legend: (x, y) points as a line, as marks, or both."""

    title: str
    points: Sequence[tuple[float, float]]
    line: bool = True
    marks: bool = False
    colour: int | None = None  # the number of a colour; by default the row's own


class Axis(NamedTuple):
    """What an axis shows: its ticks with their labels; `log`: a logarithmic one."""

    title: str
    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False
    form: str = "{:g}"

    def at(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


def plot(title: str, note: str, x: Axis, y: Axis, series: Sequence[Series], height=380) -> str:
    """Lines and marks."""
    parts = [*_frame(title, note, height), *_axes(x, y, height)]
    across, up = _places(x, y, height)
    for row, each in enumerate(series):
        number = row if each.colour is None else each.colour
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        points = [(across(a), up(b)) for a, b in each.points]
        if each.line:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                f'stroke-dasharray="{dash}"/>'
            )
        if each.marks:
            parts += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in points
            ]
        parts += _legend(row, each.title, colour, dash, each.line, each.marks)
    return "\n".join([*parts, "</svg>\n"])


class Bar(NamedTuple):
    """A bar, the range of its repetitions, and a mark beside it (None: nothing)."""

    title: str
    value: float
    low: float | None = None
    high: float | None = None
    mark: float | None = None


def bars(
    title: str, note: str, y: Axis, given: Sequence[Bar], names: tuple[str, str], height=380
) -> str:
    """Bars with marks; names: what a bar is, and what a mark is. Values are written into the bars,
    and those of marks below them.
    """
    x = Axis("", 0, len(given), ())
    parts = [*_frame(title, note, height), *_axes(x, y, height)]
    across, up = _places(x, y, height)
    for i, bar in enumerate(given):
        left, right, top = across(i + 0.22), across(i + 0.78), up(bar.value)
        middle = (left + right) / 2
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{height - BOTTOM - top:.1f}" fill="{COLOURS[0]}"/>'
        )
        if bar.low is not None and bar.high is not None:
            parts.append(_line(middle, up(bar.low), middle, up(bar.high), INK, 2))
        if bar.mark is not None:
            place = up(bar.mark)
            parts.append(_line(left - 12, place, right + 12, place, COLOURS[1], 3))
            below = height - BOTTOM + 36
            parts.append(_text(middle, below, y.form.format(bar.mark), "middle", COLOURS[1]))
        parts.append(
            _text(middle, height - BOTTOM - 8, y.form.format(bar.value), "middle", "white")
        )
        parts.append(_text(middle, height - BOTTOM + 18, bar.title, "middle"))
    left = WIDTH - RIGHT + 22
    parts.append(f'<rect x="{left}" y="{TOP + 4}" width="22" height="12" fill="{COLOURS[0]}"/>')
    parts.append(_text(left + 30, TOP + 15, names[0]))
    parts.append(_line(left, TOP + 34, left + 22, TOP + 34, COLOURS[1], 3))
    parts.append(_text(left + 30, TOP + 38, names[1]))
    return "\n".join([*parts, "</svg>\n"])


def _places(x: Axis, y: Axis, height: int):
    wide, tall = WIDTH - LEFT - RIGHT, height - TOP - BOTTOM
    return (lambda a: LEFT + wide * x.at(a)), (lambda b: height - BOTTOM - tall * y.at(b))


def _frame(title: str, note: str, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6" fill="white" '
        f'stroke="{FAINT}"/>',
        _text(18, 24, title, size=15),
        _text(18, 43, note, colour=GREY, size=12),
    ]


def _axes(x: Axis, y: Axis, height: int) -> list[str]:
    across, up = _places(x, y, height)
    bottom, right = height - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in y.ticks:
        parts.append(_line(LEFT, up(tick), right, up(tick), FAINT, 1))
        parts.append(_text(LEFT - 8, up(tick) + 4, y.form.format(tick), "end"))
    for tick in x.ticks:
        parts.append(_line(across(tick), bottom, across(tick), bottom + 4, INK, 1))
        parts.append(_text(across(tick), bottom + 18, x.form.format(tick), "middle"))
    parts.append(_line(LEFT, bottom, right, bottom, INK, 1))
    parts.append(_text((LEFT + right) / 2, height - 12, x.title, "middle"))
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text x="18" y="{middle:.1f}" text-anchor="middle" fill="{INK}" '
        f'transform="rotate(-90 18 {middle:.1f})">{escape(y.title)}</text>'
    )
    return parts


def _legend(row: int, title: str, colour: str, dash: str, line: bool, marks: bool) -> list[str]:
    left, y = WIDTH - RIGHT + 18, TOP + 12 + 22 * row
    parts = [_text(left + 36, y + 4, title)]
    if line:
        parts.append(_line(left, y, left + 28, y, colour, 2, dash))
    if marks:
        parts.append(f'<circle cx="{left + 14}" cy="{y}" r="4" fill="{colour}"/>')
    return parts


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, width: int, dash: str = ""
) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>'
    )


def _text(
    x: float, y: float, text: str, anchor: str = "start", colour: str = INK, size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
