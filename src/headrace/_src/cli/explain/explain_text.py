"""Describe a step as text. In: its captured record. Out: lines of text.

Only `full` shows everything: otherwise a pass shows what it changed, and long parts are truncated,
with a line that says how much is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from headrace._src.cli.explain.capture import CapturedStep, Variant, count_nodes
from headrace._src.compile.clusters.cluster_kernel import Compiled
from headrace._src.compile.clusters.report import Section, pointwise_flops, sections, show_call
from headrace._src.compile.native import machine_code
from headrace._src.compile.regions.groups import Group
from headrace._src.compile.run.choose import Choice
from headrace._src.graph.dataflow import Dataflow, Node
from headrace._src.graph.partition import PartitionedProgram
from headrace._src.graph.program import Program
from headrace._src.graph.structured import parts_of
from headrace._src.pipeline.tiers import flops

__all__ = [
    "amount",
    "cluster_nodes",
    "explain",
    "flops_of",
    "show_choice",
    "size",
    "steps_table",
]

_LINES = 16  # of a form that are shown
_GROUPS = 24
_BUFFERS = 12
_EDGES = 12  # between devices
_NAMES = 8  # of nodes with one reason
_WIDTH = 140  # of a line
_MORE = "… {} more {}"


def amount(count: float) -> str:
    """Format a number: 1,234, or 12.3 M."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:,.0f}"


def size(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count:,} B"


def seconds(time: float) -> str:
    """Format a duration."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time * 1e9:.0f} ns"


def plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# -- Steps -----------------------------------------------------------------------------------------


def steps_table(steps: Sequence[CapturedStep]) -> Iterator[str]:
    """List all steps, one per line: how often they ran, how long that took, their fetches and
    feeds.
    """
    yield "  runs      time  nodes  fetches and targets  <- feeds"
    for step in steps:
        feeds = f"  <- {', '.join(step.feeds)}" if step.feeds else ""
        given = _cut(", ".join(step.names)) + _cut(feeds)
        yield f"{step.runs:>6,}{seconds(step.seconds):>10}{step.nodes:>7,}  {given}"


def explain(step: CapturedStep, variant: Variant | None, full: bool) -> Iterator[str]:
    """Describe a step for one combination of feed shapes."""
    yield f"step {_cut(', '.join(step.names))}"
    if variant is None:
        yield from _forms(step.prepared, full)
        yield from _why_as_is(step)
        return
    others = [v for v in step.variants.values() if v is not variant and not v.is_loop]
    loops = [v for v in step.variants.values() if v.is_loop]
    if variant.shapes:
        yield f"fed with {', '.join(variant.shapes)}"
    if others:
        yield f"  {plural(len(others), 'other combination')} of feed shapes not shown"
    if loops:
        yield f"  {plural(len(loops), 'loop')} compiled while running, not shown"
    chosen = variant.compiled or variant.interpreted
    yield from _forms([*step.prepared, *variant.forms, *chosen], full)
    flow = next((f for _, f in reversed(chosen) if isinstance(f, Dataflow)), None)
    yield ""
    reason = _why_interpreted(step)
    if reason is not None:
        yield f"not compiled: {reason}"
    elif flow is not None:
        for node, compiled in cluster_nodes(flow):
            yield from _cluster(node, compiled, full)
            yield ""
        yield from _refused(variant, flow, full)
    program = chosen[-1][1] if chosen else None
    if isinstance(program, PartitionedProgram):
        yield from _partitions(program, full)
    yield from _why_as_is(step)


def _partitions(program: PartitionedProgram, full: bool) -> Iterator[str]:
    """What each device does, what it needs, and what is sent."""
    yield "  clusters  other nodes  peak memory        sent    received  device"
    for device, part in zip(program.devices, program.programs, strict=True):
        clusters = sum(_is_cluster(i.op) for i in part.instructions)
        sent = sum(edge.size or 0 for edge in program.edges if edge.sender == device)
        received = sum(edge.size or 0 for edge in program.edges if edge.receiver == device)
        yield (
            f"{clusters:>10}{len(part.instructions) - clusters:>13}{size(part.peak_memory):>13}"
            f"{size(sent):>12}{size(received):>12}  {device}"
        )
    edges = sorted(program.edges, key=lambda edge: -(edge.size or 0))
    shown = edges if full else edges[:_EDGES]
    yield ""
    for edge in shown:
        known = "size not known" if edge.size is None else size(edge.size)
        yield f"  {known:>10}  {edge.tensor}  {edge.sender} -> {edge.receiver}"
    if len(edges) > len(shown):
        yield f"  and {plural(len(edges) - len(shown), 'smaller edge')}"
    yield ""
    if program.joined is not None:
        yield "the devices never work at the same time: one thread runs the step in one order"
        yield ""


def _is_cluster(op: Any) -> bool:
    return hasattr(op.definition.kernel, "working_memory")


def _why_interpreted(step: CapturedStep) -> str | None:
    """Return the reason why nothing of a step is compiled; None if the compiler was run on it."""
    if step.options.jit == "off":
        return "the session's configuration or HEADRACE_JIT says so"
    return machine_code.why_not()


def _why_as_is(step: CapturedStep) -> Iterator[str]:
    for reason in step.as_is:
        yield f"some runs interpret the step as the graph has it: {reason}"


# -- Forms -----------------------------------------------------------------------------------------


def _forms(forms: Sequence[tuple[str, Any]], full: bool) -> Iterator[str]:
    """The form after each pass."""
    before: list[str] = []
    same: list[str] = []  # passes that have changed nothing
    placed = ""
    for name, form in forms:
        lines = str(form).splitlines()
        device = "" if placed else _device(form)
        placed = placed or device
        if lines == before and not device:
            same.append(name)
            continue
        if same:
            yield f"\n{', '.join(same)}: no change"
            same = []
        everywhere = f", all on {device}" if device else ""
        whole = full or not before or isinstance(form, Program)
        marked, counts = (lines, "") if whole else changes(before, lines)
        yield f"\n{name}: {_size(form, lines)}{everywhere}{counts}"
        yield from _some(marked, full, _LINES, "line" if whole else "changed line")
        before = lines
    if same:
        yield f"\n{', '.join(same)}: no change"


def _device(form: Any) -> str:
    """Return the device of all nodes of a form; "" if it isn't placed yet, or is on several."""
    found = {node.device for node in form.nodes} if isinstance(form, Dataflow) else set()
    return found.pop() if len(found) == 1 else ""


def _size(form: Any, lines: Sequence[str]) -> str:
    if isinstance(form, Program):
        return plural(len(form.instructions), "instruction")
    return plural(count_nodes(lines), "node")


def changes(before: Sequence[str], after: Sequence[str]) -> tuple[list[str], str]:
    """Return how a form differs from another: lines marked "+" new, "~" changed, "-" gone; and
    counts.
    """
    old, new = _keyed(before), _keyed(after)
    marked = []
    added = changed = 0
    for key, line in new.items():
        if key not in old:
            marked.append(f"+ {line}")
            added += 1
        elif old[key] != line:
            marked.append(f"~ {line}")
            changed += 1
    gone = [f"- {line}" for key, line in old.items() if key not in new]
    counts = {"new": added, "changed": changed, "gone": len(gone)}
    said = "".join(f", {n:,} {what}" for what, n in counts.items() if n)
    return marked + gone, said


def _keyed(lines: Sequence[str]) -> dict[Any, str]:
    """Index lines by the value or node they describe, prefixed by the nodes that contain them."""
    found: dict[Any, str] = {}
    around: list[tuple[int, str]] = []
    for line in lines:
        text = line.lstrip()
        depth = len(line) - len(text)
        around = [(d, k) for d, k in around if d < depth]
        words = text.split()
        head = words[0] if words else ""
        key = f"{head} {words[1]}" if head in ("feed", "fetch", "run") else head.rstrip(",")
        full = (*(k for _, k in around), key)
        number = 0
        while (full, number) in found:
            number += 1
        found[full, number] = line
        around.append((depth, key))
    return found


def _some(lines: Sequence[str], full: bool, most: int, what: str) -> Iterator[str]:
    """Yield the lines, or the first of many and the number of the rest."""
    shown = lines if full or len(lines) <= most + 1 else lines[:most]
    for line in shown:
        yield f"  {line if full else _cut(line)}"
    left = len(lines) - len(shown)
    if left:
        yield f"  {_MORE.format(f'{left:,}', what + ('' if left == 1 else 's'))} (--full shows all)"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


# -- Clusters --------------------------------------------------------------------------------------


def cluster_nodes(flow: Dataflow) -> list[tuple[Node, Compiled]]:
    """Yield the compiled clusters of a flow, including those inside loops and branches."""
    found = []
    for node in flow.nodes:
        if isinstance(node.definition.kernel, Compiled):
            found.append((node, node.definition.kernel))
        for part in parts_of(node).values():
            found += cluster_nodes(part)
    return found


def _cluster(node: Node, compiled: Compiled, full: bool) -> Iterator[str]:
    plan, found = compiled.plan, sections(compiled)
    reports = {r.call.kernel: r for section in found for r in section.calls if r.code is not None}
    code = sum(r.code or 0 for r in reports.values())
    groups = [s for s in found if s.group is not None]
    yield (
        f"cluster {node.name}: {plural(len(compiled.region.nodes), 'node')} in "
        f"{plural(len(groups), 'group')}, {plural(len(reports), 'kernel')} of {size(code)} "
        f"code, {plural(len(plan.buffers), 'buffer')}, arena of {size(plan.arena)}"
        + (f" and {size(plan.swapped)} in a file" if plan.swapped else "")
    )
    shown = found if full else found[:_GROUPS]
    for section in shown:
        yield from _section(section, full)
    if len(shown) < len(found):
        yield f"  {_MORE.format(len(found) - len(shown), 'groups')} (--full shows all)"
    yield "  buffers"
    lines = [f"b{i}: {b}" for i, b in enumerate(plan.buffers)]
    for line in _some(lines, full, _BUFFERS, "buffer"):
        yield f"  {line}"


def _section(section: Section, full: bool) -> Iterator[str]:
    group = section.group
    title = "results copied to their destinations" if group is None else str(group)
    yield f"  {title if full else _cut(title)}"
    work = 0.0 if group is None else flops_of(group)
    for report in section.calls:
        facts = [] if report.code is None else [f"{size(report.code)} code"]
        facts += [f"~{amount(work)} flops"] if work and report is section.calls[-1] else []
        facts += [f"{size(report.moved)} of data"] if report.moved else []
        yield f"     {show_call(report.call)}"
        if facts:
            yield f"       {', '.join(facts)}"
    for choice in () if group is None else group.choices:
        yield f"     {show_choice(choice)}"


def flops_of(group: Group) -> float:
    """Estimate a group's floating-point operations."""
    nodes = (*group.before, *group.nodes)
    return flops(Dataflow(nodes, (), (), ())) + pointwise_flops(nodes)


def show_choice(choice: Choice) -> str:
    """Show the candidates, how long each took, and the chosen one."""
    offered = []
    for name, text in _told_apart(choice.kernels).items():
        time = f" {seconds(choice.seconds[name])}" if name in choice.seconds else ""
        offered.append(f"{text}{time}{' (chosen)' if name == choice.chosen else ''}")
    return f"{'timed' if choice.seconds else 'not timed'}: {', '.join(offered)}"


def _told_apart(kernels: Any) -> dict[str, str]:
    """Return names for alternative kernels, made of the fields in which they differ."""
    named = {name: " + ".join(type(k).__name__ for k in ks) for name, ks in kernels.items()}
    texts = list(named.values())
    return {
        name: text if texts.count(text) == 1 else f"{text}({_differing(name, kernels, named)})"
        for name, text in named.items()
    }


def _differing(name: str, kernels: Any, named: dict[str, str]) -> str:
    """Return the fields in which kernels differ from others of the same types."""
    same = [kernels[n] for n, text in named.items() if text == named[name]]
    told = []
    for i, kernel in enumerate(kernels[name]):
        for f in fields(kernel):
            if len({repr(getattr(ks[i], f.name)) for ks in same}) > 1:
                told.append(f"{f.name}={getattr(kernel, f.name)}")
    return ", ".join(told) or name


# -- Nodes not compiled ----------------------------------------------------------------------------


def _refused(variant: Variant, flow: Dataflow, full: bool) -> Iterator[str]:
    compiled = sum(len(c.region.nodes) for _, c in cluster_nodes(flow))
    if not variant.refused:
        yield "everything is compiled" if compiled else "there is nothing to compile"
        return
    count = len(variant.refused)
    yield f"not compiled: {plural(count, 'node')}, and {compiled:,} compiled"
    reasons: dict[str, list[Node]] = {}
    for node, reason in variant.refused:
        reasons.setdefault(reason, []).append(node)
    for reason, nodes in sorted(reasons.items(), key=lambda item: -len(item[1])):
        names = [f"{n.name} ({n.type})" for n in (nodes if full else nodes[:_NAMES])]
        more = f" and {len(nodes) - len(names):,} more" if len(nodes) > len(names) else ""
        yield f"  {reason}"
        yield f"    {', '.join(names)}{more}"
