"""Raise branches. In: nodes in order and without loops, with Switches and Merges. Out: the
same with every branch as one IF.

Each node runs under a *path*, the predicates that must have had a value for it to be alive,
outermost first. Nodes under one predicate form an IF; where the results of one branch determine
the inputs of another of the same predicate, they are IFs of different *levels*.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.graph.control_roles import Flow
from headrace._src.graph.dataflow import Node, Value
from headrace._src.graph.definition import Effect
from headrace._src.graph.structured import UNDEFINED, Unraisable
from headrace._src.lowering.rules import Pass
from headrace._src.ops.control.loops_and_branches import IF
from headrace._src.optimize.structured_parts import (
    NodeDraft,
    Op,
    PartDraft,
    holders,
    in_order,
    members_of,
    stand_in,
)

__all__ = ["raise_branches"]

Literal = tuple[Value, bool]
Path = tuple[Literal, ...]


def raise_branches(
    operations: list[Op],
    fetches: Sequence[Value],
    targets: Sequence[Node],
) -> list[Op]:
    """Return the nodes of a step, in order and without loops, with every branch as one node."""
    if not any(op.definition.flow is not None for op in operations):
        return operations
    paths = _Paths(operations, fetches, targets)
    return _Branches(operations, paths, fetches).build(operations, ())


class _Paths:
    """The conditions under which nodes and values are alive; those that never are, are not in
    `_values`. Values from outside are alive whenever anything here is.
    """

    def __init__(
        self,
        operations: list[Op],
        fetches: Sequence[Value],
        targets: Sequence[Node],
    ) -> None:
        self.operations: dict[Op, Path] = {}
        self._values: dict[Value, Path | None] = {}
        self._holder = holders(operations)
        self._dead: set[Op] = set()
        self._here = set(operations)
        for op in operations:
            self._find(op)
        for t in fetches:
            if self._values.get(t, ()) != ():
                raise Unraisable(f"'{t.name}' may be dead, and is fetched")
        for op in targets:
            if self.operations.get(self._holder.get(op, op)) != ():
                raise Unraisable(f"'{op.name}' may be dead, and is a target")

    def of(self, value: Value) -> Path:
        """Return the path of a tensor that can be alive."""
        path = self._values.get(value, ())
        assert path is not None
        return path

    def is_alive(self, value: Value) -> bool:
        """Whether a tensor can be alive."""
        return self._values.get(value, ()) is not None

    def _find(self, op: Op) -> None:
        flow = op.definition.flow
        if flow is Flow.TRIGGER:
            self._check_trigger(op)
        elif flow not in (None, Flow.SWITCH, Flow.MERGE):
            raise Unraisable(f"'{op.name}' is a control-flow operation outside its loop")
        path = self._merged(op) if flow is Flow.MERGE else self._together(op)
        if path is not None:
            self.operations[op] = path
        else:
            self._dead.add(op)
        for i, t in enumerate(op.outputs):
            self._values[t] = path
            if flow is Flow.SWITCH and path is not None:
                self._values[t] = _under(path, self.predicate(op), bool(i))

    def predicate(self, switch: Op) -> Value:
        """Return the value that decides a Switch: a predicate has many names here, each the
        identity of another, or the same within a branch. A value read from a variable is decided by
        that read.
        """
        t = switch.inputs[1]
        while t.op in self._here and _passes(t.op):
            given = t.op.inputs[0]
            if given.dtype._is_ref_dtype:
                break
            t = given
        return t

    def _check_trigger(self, op: Op) -> None:
        """Check that a trigger waits only for nodes that are always alive; it then only orders
        nodes.
        """
        controls = [self._holder.get(c, c) for c in op.controls]
        if any(c in self._dead or self.operations.get(c) for c in controls):
            raise Unraisable(f"'{op.name}' waits for a node that may be dead")

    def _together(self, op: Op) -> Path | None:
        """Return the path of an operation that needs all its inputs alive."""
        controls = [self._holder.get(c, c) for c in op.controls]
        found = [self._values.get(t, ()) for t in op.inputs]
        found += [None if c in self._dead else self.operations.get(c, ()) for c in controls]
        result: Path = ()
        for path in found:
            if path is None:
                return None
            longer, shorter = (path, result) if len(path) > len(result) else (result, path)
            known = dict(longer)
            if any(known.get(p, value) != value for p, value in shorter):
                return None
            if any(p not in known for p, _ in shorter):
                raise Unraisable(f"'{op.name}' is under conditions that do not nest")
            result = longer
        return result

    def _merged(self, op: Op) -> Path:
        """Return the path of a Merge's result: its inputs' without the predicate in which they
        differ.
        """
        paths = [self._values.get(t, ()) for t in op.inputs]
        if len(paths) == 2 and paths[0] and paths[1] and paths[0][:-1] == paths[1][:-1]:
            (p, one), (q, other) = paths[0][-1], paths[1][-1]
            if p is q and one != other:
                return paths[0][:-1]
        raise Unraisable(f"'{op.name}' merges values that may be alive together")


def _passes(op: Op) -> bool:
    """Whether an operation returns its first input, if anything."""
    if op.definition.flow is Flow.SWITCH:
        return True
    return isinstance(op.definition.lower, Pass) and len(op.inputs) == 1


def _under(path: Path, predicate: Value, value: bool) -> Path | None:
    """Return a path with one more condition; None if it contradicts the path."""
    known = dict(path)
    if predicate in known:
        return path if known[predicate] == value else None
    return (*path, (predicate, value))


def _check_waits(operations: list[Op]) -> None:
    """Raise Unraisable if an IF may block while an operation that could end that is neither before
    nor after it: an IF is one kernel, and nothing else of its step runs while it blocks.
    """
    waiting = [op for op in operations if any(_may_wait(m) for m in members_of(op))]
    branches = [op for op in waiting if isinstance(op, NodeDraft) and op.definition is IF]
    if not branches or len(waiting) == 1:
        return
    before = {op: _ancestors(op, operations) for op in waiting}
    for branch in branches:
        for other in waiting:
            if other is not branch and other not in before[branch] and branch not in before[other]:
                raise Unraisable(f"'{branch.name}' may wait for '{other.name}', in a branch")


def _may_wait(node: Node) -> bool:
    return node.definition.effect is Effect.BLOCKS


def _ancestors(op: Op, operations: list[Op]) -> set[Op]:
    """Return the operations that run before one of them. `operations` are in order."""
    maker = {v: each for each in operations for v in each.outputs}
    holder = holders(operations)
    found: set[Op] = set()
    stack = [op]
    while stack:
        each = stack.pop()
        needed = [maker[v] for v in each.inputs if v in maker]
        needed += [holder[c] for c in each.controls if c in holder]
        for one in needed:
            if one not in found:
                found.add(one)
                stack.append(one)
    return found


class _Branches:
    """Makes IFs. A Switch is only another name of its data, under its predicate."""

    def __init__(self, operations: list[Op], paths: _Paths, fetches: Sequence[Value]) -> None:
        self._paths = paths
        self._fetches = set(fetches)
        self._made = {t: op for op in operations for t in op.outputs}
        self._holder = holders(operations)
        self._readers: dict[Value, list[Op]] = {}
        for op in operations:
            if op in paths.operations:
                for t in (*op.inputs, *self._conditions(op)):
                    self._readers.setdefault(t, []).append(op)

    def build(self, operations: list[Op], prefix: Path) -> list[Op]:
        """Return the nodes directly under `prefix`, with an IF for each further condition."""
        alive = [op for op in operations if op in self._paths.operations]
        groups: dict[Value, list[Op]] = {}
        made: list[Op] = []
        for op in alive:
            predicate = self._predicate(op, prefix)
            if predicate is not None:
                groups.setdefault(predicate, []).append(op)
            elif op.definition.flow is Flow.SWITCH:
                if self._is_settled(op):
                    made.append(self._passed(op))
            elif op.definition.flow is Flow.TRIGGER:
                made.append(NodeDraft(None, op, (), (), op.controls, [op]))
            else:
                made.append(op)
        for predicate, group in groups.items():
            levels = self._levels(alive, set(group), len(prefix))
            if len(levels) > 1 and predicate.dtype._is_ref_dtype:
                raise Unraisable(f"'{predicate.name}' may change between branches on it")
            for level in levels:
                made.append(self._branch(level, predicate, prefix))
        ordered = in_order(made)
        _check_waits(ordered)
        return ordered

    def _predicate(self, op: Op, prefix: Path) -> Value | None:
        """Return the predicate below `prefix` of an operation, or the one whose sides it joins."""
        path, depth = self._paths.operations[op], len(prefix)
        if op.definition.flow is Flow.MERGE and len(path) == depth:
            path = self._paths.of(op.inputs[0])
        return path[depth][0] if len(path) > depth else None

    def _conditions(self, op: Op) -> list[Value]:
        """Return the predicates that must be known for an operation, outermost first."""
        path = self._paths.operations[op]
        if op.definition.flow is Flow.MERGE:
            path = self._paths.of(op.inputs[0])
        return [p for p, _ in path]

    def _is_settled(self, switch: Op) -> bool:
        """Whether a Switch is under its own predicate."""
        return self._paths.predicate(switch) in dict(self._paths.operations[switch])

    def _passed(self, switch: Op) -> NodeDraft:
        alive = [t for t in switch.outputs if self._paths.is_alive(t)]
        given = switch.inputs[:1]
        return NodeDraft(None, switch, given, alive, switch.controls, [switch])

    def _levels(self, operations: list[Op], group: set[Op], depth: int) -> list[list[Op]]:
        """Return the group as runs; no run needs results of a later one."""
        level: dict[Op, int] = {}

        def after(op: Op) -> int:
            """Return the level of readers of `op`: a result of a branch enters a later level."""
            leaves = op in group and len(self._paths.operations[op]) == depth
            return level[op] + 1 if leaves else level[op]

        for op in operations:
            before = [self._made[t] for t in op.inputs if t in self._made]
            before += [self._holder.get(c, c) for c in op.controls]
            level[op] = max((after(b) for b in before if b in level), default=0)
        runs: dict[int, list[Op]] = {}
        for op in operations:
            if op in group:
                runs.setdefault(level[op], []).append(op)
        return [runs[k] for k in sorted(runs)]

    def _branch(self, level: list[Op], predicate: Value, prefix: Path) -> NodeDraft:
        """Return the IF of a run of operations under a predicate."""
        depth = len(prefix)
        merges = [op for op in level if len(self._paths.operations[op]) == depth]
        inner = self._with_switches([op for op in level if op not in set(merges)], depth)
        own = {*inner, *merges}
        switches, given = self._entering(own, depth)
        leaving = [t for op in inner for t in op.outputs if self._leaves(op, t, own)]
        sides = {s: [self._side(m, s, depth) for m in merges] for s in (True, False)}
        read = {m for m in merges if self._is_read(m.outputs[0])}
        parts = {}
        for side in (True, False):
            mine = [op for op in inner if self._paths.operations[op][depth][1] == side]
            wanted = [t for m, t in zip(merges, sides[side], strict=True) if m in read]
            missing = []
            for t in leaving:
                if self._paths.of(t)[depth][1] != side:
                    t = stand_in(t)
                    missing.append(NodeDraft(UNDEFINED, t.op, (), (t,), (), ()))
                wanted.append(t)
            operations = self.build(mine, (*prefix, (predicate, side)))
            feeds = [*(s.outputs[int(side)] for s in switches), *given]
            parts[side] = PartDraft([*missing, *operations], feeds, wanted)
        controls = dict.fromkeys(c for op in own for c in op.controls)
        origin = (merges or inner)[0]
        return NodeDraft(
            IF,
            origin,
            [predicate, *(s.inputs[0] for s in switches), *given],
            [*(m.outputs[0] for m in merges if m in read), *leaving],
            [c for c in controls if self._holder.get(c, c) not in own],
            own,
            {"then": parts[True], "otherwise": parts[False]},
        )

    def _is_read(self, t: Value) -> bool:
        """Whether any node reads a tensor; some only wait for its producer."""
        return t in self._readers or t in self._fetches

    def _with_switches(self, inner: list[Op], depth: int) -> list[Op]:
        """Return the operations with the Switches of earlier runs that they read through."""
        found = dict.fromkeys(inner)
        stack = list(inner)
        while stack:
            for t in stack.pop().inputs:
                maker = self._made.get(t)
                if maker is None or maker in found or maker.definition.flow is not Flow.SWITCH:
                    continue
                if len(self._paths.operations[maker]) > depth and not self._is_settled(maker):
                    found[maker] = None
                    stack.append(maker)
        return list(found)

    def _entering(self, own: set[Op], depth: int) -> tuple[list[Op], list[Value]]:
        """Return the inputs of an IF: Switches on its predicate, and plain tensors."""
        switches: dict[Op, None] = {}
        given: dict[Value, None] = {}
        for op in sorted(own, key=lambda op: op.name):
            for t in (*op.inputs, *self._conditions(op)[depth + 1 :]):
                maker = self._made.get(t)
                if maker in own:
                    continue
                if maker is not None and self._leads_in(maker, depth):
                    switches.setdefault(maker)
                else:
                    given.setdefault(t)
        return list(switches), list(given)

    def _leads_in(self, op: Op, depth: int) -> bool:
        """Whether an operation is a Switch in front of a branch of this depth."""
        return op.definition.flow is Flow.SWITCH and len(self._paths.operations[op]) == depth

    def _leaves(self, op: Op, value: Value, own: set[Op]) -> bool:
        """Whether a later run reads a tensor, directly or through Switches."""
        if op.definition.flow is Flow.SWITCH and not self._is_settled(op):
            return False
        readers = list(self._readers.get(value, ()))
        seen: set[Op] = set()
        while readers:
            reader = readers.pop()
            if reader in seen:
                continue
            seen.add(reader)
            if reader.definition.flow is Flow.SWITCH and not self._is_settled(reader):
                readers += [r for t in reader.outputs for r in self._readers.get(t, ())]
            elif reader not in own:
                return True
        return False

    def _side(self, merge: Op, side: bool, depth: int) -> Value:
        if self._is_read(merge.outputs[1]):
            raise Unraisable(f"a node reads the value_index of '{merge.name}'")
        given = merge.inputs
        return next(t for t in given if self._paths.of(t)[depth][1] == side)
