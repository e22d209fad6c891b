"""Ratios as a picture. In: bars with their targets. Out: the text of an SVG file.

Ratios multiply, so the axis is logarithmic: twice as fast is as far from 1 as half as fast.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from xml.sax.saxutils import escape

LEFT, WIDTH, ROW, TOP = 300, 560, 26, 64
REACHED, MISSED, INK, FAINT = "#2a8c55", "#c2622d", "#222222", "#dddddd"
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


class Bar(NamedTuple):
    """One work: its ratio (NaN without a peer), the peer that it is against, and its target."""

    title: str
    ratio: float
    rival: str
    target: float


def draw(bars: list[Bar], title: str) -> str:
    """The SVG of all bars, one row each."""
    values = [v for b in bars for v in (b.ratio, b.target, 1.0) if v > 0]
    low, high = math.log(min(values, default=1) / 1.3), math.log(max(values, default=1) * 1.3)

    def x(value: float) -> float:
        return LEFT + WIDTH * (math.log(value) - low) / (high - low)

    height = TOP + ROW * len(bars) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 220}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(10, 22, f"{title}: the best peer's time / Headrace's (log scale)", size=15),
        _text(10, 42, "A bar right of 1: Headrace is faster. The mark is the target."),
    ]
    for tick in TICKS:
        if low <= math.log(tick) <= high:
            colour = INK if tick == 1 else FAINT
            parts.append(_line(x(tick), TOP - 4, height - 16, colour, 1))
            parts.append(_text(x(tick), height - 3, f"{tick:g}", anchor="middle"))
    for row, bar in enumerate(bars):
        parts += _bar(bar, TOP + row * ROW, x)
    return "\n".join([*parts, "</svg>\n"])


def _bar(bar: Bar, y: float, x) -> list[str]:
    parts = [_text(LEFT - 10, y + 16, bar.title, anchor="end")]
    end = x(bar.target)
    if bar.ratio > 0:
        left, right = sorted((x(1), x(bar.ratio)))
        colour = REACHED if bar.ratio >= bar.target else MISSED
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 4}" width="{right - left:.1f}" height="{ROW - 10}" '
            f'fill="{colour}"/>'
        )
        end = max(right, end)
    label = f"{bar.ratio:.2f} vs {bar.rival}" if bar.ratio > 0 else "not measured"
    parts.append(_line(x(bar.target), y + 1, y + ROW - 3, INK, 3))
    parts.append(_text(end + 8, y + 16, label))
    return parts


def _line(x: float, y1: float, y2: float, colour: str, width: int) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y1}" y2="{y2}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
    )
