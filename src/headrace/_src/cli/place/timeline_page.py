"""Draw a timeline. In: a Report. Out: a self-contained HTML page with one SVG, or the SVG alone.

There is a lane for each device and, below the devices of a machine, thin ones for what it sends and
receives; there is a block for each operation and transfer. Blocks too small to be seen are joined
with their neighbours. The name of a block appears when the pointer is on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from headrace._src.cli.place.report import Report, bytes_text, seconds_text

__all__ = ["page", "svg"]

_LEFT, _WIDTH, _TOP = 172, 880, 30
_DEVICE, _LINK, _GAP = 26, 13, 5  # heights of lanes, and the space between them
_SEEN = 1.5  # pixels: narrower blocks are joined
_FITS = 6.4  # pixels of a letter

# By kind: what the legend says, and the colour in light and in dark mode.
_KINDS = {
    "contraction": ("products, convolutions", "#2f6fdb", "#6ea0f5"),
    "elementwise": ("element-wise", "#2f9e5b", "#55c283"),
    "reduction": ("reductions", "#c47a12", "#e0a24a"),
    "movement": ("moves elements", "#7a5bc7", "#a68ae8"),
    "loop": ("loops", "#b8458f", "#de7dbb"),
    "other": ("other operations", "#6b7787", "#97a3b3"),
    "sent": ("transfers", "#d1483a", "#ee7a6d"),
}
_CSS = "".join(
    f".k-{kind} {{ fill: {light} }}\n@media (prefers-color-scheme: dark) "
    f"{{ .k-{kind} {{ fill: {dark} }} }}\n"
    for kind, (_, light, dark) in _KINDS.items()
)
_STYLE = f"""
text {{ font: 12px system-ui, sans-serif; fill: #1d2430 }}
.dim {{ fill: #667085 }}
.lane {{ fill: #eef1f5 }}
.grid {{ stroke: #d7dce3; stroke-width: 1 }}
.back {{ fill: #ffffff }}
.in {{ fill: #ffffff; font-size: 10.5px; pointer-events: none }}
.block {{ stroke: #ffffff; stroke-width: .6 }}
.block:hover {{ stroke: #1d2430; stroke-width: 1.5 }}
.block.path {{ stroke: #f5b301; stroke-width: 1.6 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e4e8ee }}
.dim {{ fill: #97a2b2 }}
.lane {{ fill: #20262e }}
.grid {{ stroke: #323a45 }}
.back {{ fill: #14171c }}
.in {{ fill: #10131a }}
.block {{ stroke: #14171c }}
.block:hover {{ stroke: #ffffff }}
}}
{_CSS}"""


@dataclass(frozen=True)
class _Block:
    """What is drawn in a lane: from start to end, of a kind, with a name and a tooltip."""

    start: float
    end: float
    kind: str
    name: str
    tip: str
    critical: bool = False
    count: int = 1


@dataclass(frozen=True)
class _Lane:
    """A row of the picture; `label` is the style of its name."""

    name: str
    blocks: list[_Block]
    height: int
    label: str


def page(report: Report) -> str:
    """Return the page."""
    title = escape(f"{report.step.title}: {seconds_text(report.timeline.makespan)}")
    lines = "".join(f"<p>{escape(line)}</p>" for line in report.sentences())
    notes = "".join(f"<p class=note>{escape(note.capitalize())}.</p>" for note in report.step.notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ margin: 0 auto; max-width: 1100px; padding: 20px; background: #ffffff; color: #1d2430;
  font: 14px/1.5 system-ui, sans-serif }}
h1 {{ font-size: 18px; margin: 0 0 8px; overflow-wrap: anywhere }}
p {{ margin: 3px 0; max-width: 80ch }}
.note {{ color: #667085 }}
main {{ overflow-x: auto; margin-top: 14px }}
@media (prefers-color-scheme: dark) {{
body {{ background: #14171c; color: #e4e8ee }}
.note {{ color: #97a2b2 }}
}}
</style>
</head>
<body>
<h1>{escape(report.step.title)}</h1>
{lines}<p class=note>Costs: {escape(report.step.origin)}.</p>{notes}
<main>
{svg(report)}
</main>
</body>
</html>
"""


def svg(report: Report) -> str:
    """Return the picture."""
    lanes = _lanes(report)
    whole = report.timeline.makespan or 1.0
    height = _TOP + sum(lane.height + _GAP for lane in lanes) + 44
    width = _LEFT + _WIDTH + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="Timeline of a step">',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        *_axis(whole, height - 40),
    ]
    kinds: dict[str, None] = {}
    y = _TOP
    for lane in lanes:
        label = f'<text class="{lane.label}" x="{_LEFT - 10}" y="{y + lane.height / 2 + 4}"'
        parts.append(f'{label} text-anchor="end">{escape(lane.name)}</text>')
        size = f'width="{_WIDTH}" height="{lane.height}"'
        parts.append(f'<rect class="lane" x="{_LEFT}" y="{y}" {size}/>')
        for block in _joined(lane.blocks, _WIDTH / whole):
            kinds[block.kind] = None
            parts += _drawn(block, y, lane.height, _WIDTH / whole)
        y += lane.height + _GAP
    parts += _legend([kind for kind in _KINDS if kind in kinds], height - 16)
    return "\n".join([*parts, "</svg>"])


def _lanes(report: Report) -> list[_Lane]:
    timeline = report.timeline
    on_path = set(timeline.critical)
    by_device: dict[str, list[_Block]] = {name: [] for name in timeline.busy}
    for ran in timeline.ran:
        if ran.end > ran.start:
            kind = ran.kind if ran.kind in _KINDS else "other"
            tip = f"{ran.item}: {seconds_text(ran.end - ran.start)}"
            block = _Block(ran.start, ran.end, kind, ran.item, tip, ran.item in on_path)
            by_device[ran.device].append(block)
    by_lane: dict[str, list[_Block]] = {}
    for sent in timeline.sent:
        to = f"{report.names[sent.source]} to {report.names[sent.target]}"
        tip = f"{sent.tensor}: {bytes_text(sent.size)}, {to}, {seconds_text(sent.end - sent.start)}"
        path = f"{sent.tensor} (sent)" in on_path
        for lane in sent.lanes:
            by_lane.setdefault(lane, []).append(
                _Block(sent.start, sent.end, "sent", sent.tensor, tip, path)
            )
    devices = report.problem.cluster.devices
    found: list[_Lane] = []
    for port in dict.fromkeys(device.port for device in devices):
        names = [device.name for device in devices if device.port == port]
        found += [_Lane(report.names[name], by_device[name], _DEVICE, "") for name in names]
        for way in ("sends", "receives"):
            if blocks := by_lane.pop(f"{port} {way}", None):
                found.append(_Lane(way, blocks, _LINK, "dim"))
    return found + [_Lane(name, blocks, _LINK, "dim") for name, blocks in sorted(by_lane.items())]


def _joined(blocks: Sequence[_Block], scale: float) -> list[_Block]:
    """Join blocks that are too narrow to be seen with those that follow directly."""
    found: list[list[_Block]] = []
    for block in sorted(blocks, key=lambda b: b.start):
        narrow = (block.end - block.start) * scale < _SEEN
        if found and narrow:
            last = found[-1]
            near = (block.start - last[-1].end) * scale < _SEEN / 2
            if near and (last[-1].end - last[-1].start) * scale < _SEEN:
                last.append(block)
                continue
        found.append([block])
    return [_one(run) for run in found]


def _one(run: list[_Block]) -> _Block:
    if len(run) == 1:
        return run[0]
    kinds: dict[str, float] = {}
    for block in run:
        kinds[block.kind] = kinds.get(block.kind, 0.0) + block.end - block.start
    busy = sum(kinds.values())
    what = "transfers" if run[0].kind == "sent" else "operations"
    tip = f"{len(run)} {what} from {run[0].name} to {run[-1].name}: {seconds_text(busy)}"
    kind = max(kinds, key=lambda k: kinds[k])
    path = any(b.critical for b in run)
    return _Block(run[0].start, run[-1].end, kind, "", tip, path, len(run))


def _drawn(block: _Block, y: float, height: int, scale: float) -> Iterable[str]:
    x = _LEFT + block.start * scale
    width = max(0.7, (block.end - block.start) * scale)
    path = " path" if block.critical and width > 3 else ""
    tip = f"<title>{escape(block.tip)}</title>"
    yield (
        f'<rect class="block k-{block.kind}{path}" x="{x:.2f}" y="{y + 1}" width="{width:.2f}" '
        f'height="{height - 2}" rx="{min(2.0, width / 3):.1f}">{tip}</rect>'
    )
    letters = int((width - 8) / _FITS)
    if letters >= 4 and block.name and height == _DEVICE:
        name = block.name
        if len(name) > letters:  # both ends of a name say something
            name = f"{name[: letters // 2]}…{name[len(name) - (letters - 1) // 2 :]}"
        yield f'<text class="in" x="{x + 4:.2f}" y="{y + 17}">{escape(name)}</text>'


def _axis(whole: float, bottom: float) -> Iterable[str]:
    """Yield some seven lines at round times."""
    step = 10.0 ** math.floor(math.log10(whole / 7))
    step *= next(f for f in (1, 2, 5, 10) if whole / (step * f) <= 8)
    for n in range(int(whole / step + 1e-9) + 1):
        x = _LEFT + n * step / whole * _WIDTH
        yield f'<line class="grid" x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}"/>'
        text = seconds_text(n * step)
        yield f'<text class="dim" x="{x:.1f}" y="{_TOP - 12}" text-anchor="middle">{text}</text>'


def _legend(kinds: Sequence[str], y: float) -> Iterable[str]:
    x = float(_LEFT)
    for kind in kinds:
        text = _KINDS[kind][0]
        yield f'<rect class="k-{kind}" x="{x}" y="{y - 10}" width="12" height="12" rx="2"/>'
        yield f'<text class="dim" x="{x + 17}" y="{y}">{text}</text>'
        x += 17 + len(text) * _FITS + 20
    yield (
        f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="2" fill="none" stroke="#f5b301" '
        f'stroke-width="2"/><text class="dim" x="{x + 17}" y="{y}">on the critical path</text>'
    )
