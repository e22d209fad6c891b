"""Render the drawing of a step as a page. In: its captured record. Out: self-contained HTML.

Layers and orders are computed here; the page (page.html) computes positions, since boxes open and
close there. Items shared by several passes are written once.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from html import escape
from importlib.resources import files
from typing import Any

from headrace._src.cli.explain.capture import CapturedStep, Variant
from headrace._src.cli.explain.drawing import Drawing, draw
from headrace._src.cli.explain.layout import Bend, layered
from headrace._src.graph.dataflow import Dataflow

__all__ = ["page"]


def page(step: CapturedStep, variant: Variant | None, title: str) -> str:
    """Return a page that draws a step after each pass."""
    template = files(__name__.rpartition(".")[0]).joinpath("page.html").read_text()
    data = json.dumps(_data(step, variant), separators=(",", ":"), ensure_ascii=False)
    heading = f"{title}: {', '.join(step.names[:4])}{' …' if len(step.names) > 4 else ''}"
    filled = template.replace("$TITLE$", escape(heading))
    return filled.replace("$DATA$", data.replace("</", "<\\/").replace("<!--", "<\\!--"))


def _data(step: CapturedStep, variant: Variant | None) -> dict[str, Any]:
    forms = list(step.prepared)
    compiled: list[Any] = []
    refused: dict[str, str] = {}
    if variant is not None:
        forms += [*variant.forms, *(variant.compiled or variant.interpreted)]
        compiled = [form for _, form in variant.compiled]
        refused = {node.name: reason for node, reason in variant.refused}
    flows = [form for _, form in forms if isinstance(form, Dataflow)]
    known = {node.name: node for flow in reversed(flows) for node in flow.nodes}
    drawn: list[Any] = []
    table = _Table()
    passes = []
    before = None
    for name, form in forms:
        text = str(form)
        if text != before:
            reasons = refused if any(form is each for each in compiled) else {}
            drawn.append(_written(draw(form, reasons, known), table))
        passes.append({"name": name, "drawing": len(drawn) - 1, "changed": text != before})
        before = text
    return {"passes": passes, "drawings": drawn, "texts": table.texts, "facts": table.facts}


class _Table:
    """Texts and facts, each written once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.facts: list[list[int]] = []
        self._texts: dict[str, int] = {}
        self._facts: dict[tuple[int, ...], int] = {}

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self.texts)
            self.texts.append(text)
        return self._texts[text]

    def fact(self, pairs: list[tuple[str, str]]) -> int:
        key = tuple(self.text(part) for pair in pairs for part in pair)
        if key not in self._facts:
            self._facts[key] = len(self.facts)
            self.facts.append(list(key))
        return self._facts[key]


def _written(drawing: Drawing, table: _Table) -> dict[str, Any]:
    items = [
        [
            table.text(item.name),
            item.kind,
            table.text(item.type),
            table.fact(item.facts),
            item.parent,
            int(item.is_box) + 2 * int(item.opens) + 4 * int(item.is_result),
        ]
        for item in drawing.items
    ]
    boxes = {}
    siblings = _sibling_edges(drawing)
    for box, children in drawing.children().items():
        boxes[box] = _box(children, siblings.get(box, []))
    return {"items": items, "edges": [[a, b, int(o)] for a, b, o in drawing.edges], "boxes": boxes}


def _sibling_edges(drawing: Drawing) -> dict[int, list[tuple[int, int]]]:
    """Return the edges between items of the same box, including edges between their contents."""
    chains = [drawing.chain(number) for number in range(len(drawing.items))]
    found: dict[int, dict[tuple[int, int], None]] = {}
    for a, b, _ in drawing.edges:
        box = -1
        for x, y in zip(chains[a], chains[b], strict=False):
            if x != y:
                found.setdefault(box, {})[x, y] = None
                break
            box = x
    return {box: list(edges) for box, edges in found.items()}


def _box(children: list[int], edges: list[tuple[int, int]]) -> dict[str, Any]:
    """The layers of a box: items by number, bends as -1, -2, …"""
    layers = layered(children, edges)
    bends: dict[Bend, int] = {}

    def number(entry: Hashable) -> Any:
        return bends.setdefault(entry, -len(bends) - 1) if isinstance(entry, Bend) else entry

    return {
        "rows": [[number(entry) for entry in row] for row in layers.rows],
        "links": [[number(a), number(b)] for a, b in layers.links],
        "routes": [[a, b, *map(number, path)] for (a, b), path in layers.routes.items()],
    }
