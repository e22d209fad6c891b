"""Turn a form into items and edges. In: a Dataflow, or the text of a Program. Out: a Drawing.

Items are nodes and boxes: clusters with the groups that became kernels, loops and branches with
their parts, and, where there are many nodes, name scopes. An item's parent is the box that contains
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace._src.cli.explain.explain_text import amount, flops_of, show_choice, size
from headrace._src.compile.clusters.cluster_kernel import Compiled
from headrace._src.compile.clusters.report import Section, sections, show_call
from headrace._src.core import source
from headrace._src.graph.dataflow import Dataflow, Node, Value, is_local, show_constant
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import parts_of

__all__ = ["Drawing", "Item", "draw"]

_MANY = 48  # from this many nodes on, a flow is drawn by scopes
_ALIKE = 6  # from this many on, variables are drawn as one box
_LONGEST = 300  # characters of an attribute

Facts = list[tuple[str, str]]


@dataclass
class Item:
    """A node or box. kind: how it's drawn; `opens`: whether it is open at first."""

    name: str
    kind: str
    type: str = ""
    facts: Facts = field(default_factory=list)
    parent: int = -1
    opens: bool = True
    is_box: bool = False
    is_result: bool = False


@dataclass
class Drawing:
    """Items by number, and edges (from, to, whether it's only an order)."""

    items: list[Item] = field(default_factory=list)
    edges: list[tuple[int, int, bool]] = field(default_factory=list)

    def add(self, item: Item) -> int:
        self.items.append(item)
        return len(self.items) - 1

    def children(self) -> dict[int, list[int]]:
        """The items in each box; -1 stands for no box."""
        found: dict[int, list[int]] = {}
        for number, item in enumerate(self.items):
            found.setdefault(item.parent, []).append(number)
        return found

    def chain(self, number: int) -> list[int]:
        """Return the boxes around an item, outermost first, and the item itself."""
        found = []
        while number >= 0:
            found.append(number)
            number = self.items[number].parent
        return found[::-1]


def draw(form: Any, refused: Mapping[str, str], known: Mapping[str, Node]) -> Drawing:
    """Draw a form. `refused`: why nodes are not compiled, by name; `known`: nodes by name, from
    other forms, which say more about them than a Program's text.
    """
    drawing = Drawing()
    if isinstance(form, Dataflow):
        _Flow(drawing, refused).draw(form, -1)
    else:
        _draw_program(drawing, str(form).splitlines(), -1, known)
    leaves = sum(not item.is_box for item in drawing.items)
    drawing = _without_unread(drawing)
    _move_constants(drawing)
    _bundle(drawing)
    _add_scopes(drawing)
    inside = drawing.children()
    for number, item in enumerate(drawing.items):
        if item.is_box and leaves > _MANY:
            item.opens = item.kind == "cluster" and len(inside.get(number, ())) <= _MANY
    return drawing


# -- Dataflows -------------------------------------------------------------------------------------


class _Flow:
    """Draws a Dataflow. State: the item of each value and of each node."""

    def __init__(self, drawing: Drawing, refused: Mapping[str, str]) -> None:
        self._drawing = drawing
        self._refused = refused
        self._values: dict[Value, int] = {}
        self._nodes: dict[Node, int] = {}

    def draw(self, flow: Dataflow, parent: int) -> None:
        for feed in flow.feeds:
            facts = [("type", str(feed.type))]
            item = Item(feed.value.name, "feed", str(feed.type), facts, parent)
            self._values[feed.value] = self._drawing.add(item)
        for node in flow.nodes:
            self._add(node, parent)
        for back, value in flow.returns.items():  # to the next iteration
            readers = [n for n in flow.nodes if any(v.producer is back for v in n.inputs)]
            self._drawing.edges += [(self._values[value], self._nodes[n], False) for n in readers]
        for value in flow.fetches:
            if value in self._values:
                self._drawing.items[self._values[value]].is_result = True
        for node in flow.targets:
            if node in self._nodes:
                self._drawing.items[self._nodes[node]].is_result = True

    def _add(self, node: Node, parent: int) -> None:
        compiled = node.definition.kernel
        if isinstance(compiled, Compiled):
            self._add_cluster(node, compiled, parent)
            return
        self._add_node(node, parent)

    def _add_node(self, node: Node, parent: int) -> None:
        """Draw a node, as a box if it has parts."""
        number = self._node(node, parent)
        self._connect(node, number)
        for name, part in parts_of(node).items():
            inner = _add_part(self._drawing, number, name)
            _Flow(self._drawing, self._refused).draw(part, inner)

    def _node(self, node: Node, parent: int) -> int:
        facts = facts_of(node)
        kind = _kind(node)
        if node.name in self._refused and node.constant is None:
            facts.append(("not compiled", self._refused[node.name]))
            kind = "interpreted" if node.inputs else kind  # a variable's handle takes no work
        number = self._drawing.add(Item(node.name, kind, node.type, facts, parent))
        self._nodes[node] = number
        self._values.update(dict.fromkeys(node.outputs, number))
        return number

    def _connect(self, node: Node, number: int) -> None:
        edges = [(self._values[v], False) for v in node.inputs if v in self._values]
        edges += [(self._nodes[c], True) for c in node.controls if c in self._nodes]
        self._drawing.edges += [(a, number, order) for a, order in dict.fromkeys(edges)]

    def _add_cluster(self, node: Node, compiled: Compiled, parent: int) -> None:
        plan, region = compiled.plan, compiled.region
        found = sections(compiled)
        code = {r.call.kernel: r.code or 0 for section in found for r in section.calls}
        facts = [
            ("nodes", str(len(region.nodes))),
            ("machine code", f"{size(sum(code.values()))} in {len(code)} kernels"),
            ("arena", size(plan.arena)),
            *([("in a file", size(plan.swapped))] if plan.swapped else []),
            *((f"b{i}", str(b)) for i, b in enumerate(plan.buffers[:64])),
        ]
        if len(plan.buffers) > 64:
            facts.append(("…", f"{len(plan.buffers) - 64} more buffers"))
        box = self._drawing.add(Item(node.name, "cluster", node.type, facts, parent, is_box=True))
        self._nodes[node] = box
        outside = dict(zip((*region.inputs, *region.variables), node.inputs, strict=True))
        for value, given in outside.items():
            if given in self._values:
                self._values.setdefault(value, self._values[given])
        inside = set(region.nodes)
        homes: dict[Node, int] = {}
        for section in found:
            group = section.group
            if group is None or not inside.issuperset(group.nodes):
                continue  # a group of a loop's part
            title = f"{group.number}: {group.kind} {list(group.space.shape)}"
            item = Item(title, "group", _kernels(section), _section_facts(section), box)
            item.is_box = True
            number = self._drawing.add(item)
            homes.update(dict.fromkeys((*group.before, *group.nodes), number))
        for member in region.nodes:
            self._add_node(member, homes.get(member, box))
        for given, value in zip(node.outputs, region.outputs, strict=True):
            self._values[given] = self._values.get(value, box)
        self._drawing.edges += [(self._nodes[c], box, True) for c in node.controls]


def _add_part(drawing: Drawing, number: int, name: str) -> int:
    """Make a box for a part of a loop or branch, which becomes a box itself."""
    drawing.items[number].is_box, drawing.items[number].kind = True, "loop"
    return drawing.add(Item(name, "part", parent=number, is_box=True))


def _kind(node: Node) -> str:
    if node.constant is not None:
        return "constant"
    effect = node.definition.effect
    references = any(v.dtype._is_ref_dtype for v in node.outputs)
    handles = any(v.dtype.name == "resource" and not is_local(v) for v in node.outputs)
    stateful = effect in (Effect.READS, Effect.WRITES)
    return "state" if references or handles or stateful else "op"


def facts_of(node: Node) -> Facts:
    """Return the facts about a node."""
    facts = [("op", node.type)]
    facts += [(v.name, str(v.type)) for v in node.outputs]
    if node.constant is not None:
        facts += [("value", _short(show_constant(c))) for c in node.constant]
    facts += [(f"input {i}", f"{v.name} {v.type}") for i, v in enumerate(node.inputs)]
    facts += [("after", c.name) for c in node.controls]
    facts += [("device", node.device)] if node.device else []
    for key, value in node.attrs.items():
        if not isinstance(value, Dataflow):
            facts.append((key, _short(getattr(value, "name", None) or repr(value))))
    where = source.user_line(getattr(node.origin, "traceback_frames", ()) or ())
    return facts + ([("made at", where)] if where else [])


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _kernels(section: Section) -> str:
    names = [type(r.call.kernel).__name__ for r in section.calls]
    return ", ".join(dict.fromkeys(names))


def _section_facts(section: Section) -> Facts:
    assert section.group is not None
    facts: Facts = [("group", str(section.group))]
    for report in section.calls:
        code = "" if report.code is None else f"\n{size(report.code)} of code"
        facts.append((f"call {report.number}", f"{show_call(report.call)}{code}"))
    facts.append(("work", f"~{amount(flops_of(section.group))} flops"))
    facts += [("choice", show_choice(choice)) for choice in section.group.choices]
    return facts


# -- Programs --------------------------------------------------------------------------------------

_INSTRUCTION = re.compile(
    r"(?:(?P<outputs>[^=]*) = )?(?P<type>\w+)\((?P<inputs>[^()]*)\)  # (?P<name>\S+)"
)


def _draw_program(
    drawing: Drawing, lines: Sequence[str], parent: int, known: Mapping[str, Node]
) -> None:
    """Draw the lines of a printed Program; those of parts are indented below their instruction."""
    slots: dict[str, int] = {}
    for line, inner in _blocks(lines):
        found = _INSTRUCTION.match(line)
        head, _, rest = line.partition(" = ")
        if line.startswith("fetch "):
            drawing.items[slots[line.split()[1]]].is_result = True
        elif found is None:
            fed = rest.startswith("feed ")
            name = rest.removeprefix("feed ") if fed else head
            item = Item(name, "feed" if fed else "constant", head, [("line", _short(line))], parent)
            slots[head] = drawing.add(item)
        else:
            node = known.get(found["name"])
            facts = [("line", _short(line))] + ([] if node is None else facts_of(node))
            kind = "op" if node is None else _kind(node)
            number = drawing.add(Item(found["name"], kind, found["type"], facts, parent))
            read = [slot.lstrip("*") for slot in found["inputs"].split(", ") if slot]
            drawing.edges += [(slots[slot], number, False) for slot in dict.fromkeys(read)]
            slots.update(dict.fromkeys((found["outputs"] or "").split(", "), number))
            for part, inside in _blocks(inner):
                box = _add_part(drawing, number, part.rstrip(":"))
                _draw_program(drawing, inside, box, known)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each line with the indented lines below it."""
    head, inner = None, []
    for line in lines:
        if line.startswith(" "):
            inner.append(line[2:])
        else:
            if head is not None:
                yield head, inner
            head, inner = line, []
    if head is not None:
        yield head, inner


# -- Constants -------------------------------------------------------------------------------------


def _without_unread(drawing: Drawing) -> Drawing:
    """Return the drawing without unused constants: clusters have taken them into their code."""
    read = {a for a, _, _ in drawing.edges}
    kept = [
        n for n, i in enumerate(drawing.items) if i.kind != "constant" or i.is_result or n in read
    ]
    number = {-1: -1, **{n: i for i, n in enumerate(kept)}}
    for n in kept:
        drawing.items[n].parent = number[drawing.items[n].parent]
    edges = [(number[a], number[b], order) for a, b, order in drawing.edges]
    return Drawing([drawing.items[n] for n in kept], edges)


def _move_constants(drawing: Drawing) -> None:
    """Draw a constant inside the cluster or group that is its only reader, as its kernels contain
    it.
    """
    readers: dict[int, list[int]] = {}
    for a, b, _ in drawing.edges:
        readers.setdefault(a, []).append(b)
    for number, item in enumerate(drawing.items):
        if item.kind != "constant" or item.is_result or number not in readers:
            continue
        around = [drawing.chain(reader)[:-1] for reader in readers[number]]
        home = item.parent
        for boxes in zip(*around, strict=False):
            if len(set(boxes)) > 1 or drawing.items[boxes[0]].kind not in ("cluster", "group"):
                break
            home = boxes[0]
        item.parent = home


# -- Scopes ----------------------------------------------------------------------------------------


def _add_scopes(drawing: Drawing) -> None:
    """Put nodes into boxes by their names, where there are many in one place."""
    for parent, numbers in list(drawing.children().items()):
        nodes = [n for n in numbers if not drawing.items[n].is_box]
        if len(nodes) > _MANY:
            _nest(drawing, [(n, drawing.items[n].name.split("/")) for n in nodes], parent, "")


def _nest(
    drawing: Drawing, nodes: Iterable[tuple[int, list[str]]], parent: int, prefix: str
) -> None:
    """Make a box for each scope of at least two nodes."""
    scopes: dict[str, list[tuple[int, list[str]]]] = {}
    for number, path in nodes:
        if len(path) > 1:
            scopes.setdefault(path[0], []).append((number, path[1:]))
        elif path[0]:
            drawing.items[number].parent = parent
    for name, inside in scopes.items():
        full = f"{prefix}{name}"
        if len(inside) < 2:
            for number, _ in inside:
                drawing.items[number].parent = parent
            continue
        if all(len(path) > 1 and path[0] == inside[0][1][0] for _, path in inside):
            _nest(drawing, [(n, [f"{name}/{p[0]}", *p[1:]]) for n, p in inside], parent, prefix)
            continue
        count = f"{len(inside)} nodes"
        box = drawing.add(Item(full, "scope", count, [("scope", full), ("nodes", count)], parent))
        drawing.items[box].is_box = True
        _nest(drawing, inside, box, f"{full}/")


def _bundle(drawing: Drawing) -> None:
    """Put variables and constants that the same items read into one box, if there are many."""
    chains = [drawing.chain(n) for n in range(len(drawing.items))]
    readers: dict[int, set[int]] = {n: set() for n in range(len(drawing.items))}
    reads = {b for _, b, _ in drawing.edges}
    for a, b, _ in drawing.edges:
        depth = len(chains[a]) - 1
        readers[a].add(chains[b][depth] if len(chains[b]) > depth else b)
    alike: dict[Any, list[int]] = {}
    for n, item in enumerate(drawing.items):
        if item.kind in ("state", "constant") and n not in reads and not item.is_result:
            alike.setdefault((item.parent, item.kind, frozenset(readers[n])), []).append(n)
    for (parent, kind, _), numbers in alike.items():
        if len(numbers) >= _ALIKE:
            what = "variables" if kind == "state" else "constants"
            names = [("", drawing.items[n].name) for n in numbers]
            box = drawing.add(Item(f"{len(numbers)} {what}", kind, "", names, parent, False, True))
            for n in numbers:
                drawing.items[n].parent = box
