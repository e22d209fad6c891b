"""Raise loops and branches. In: a StepGraph with Switches, Merges, Enters and their kin. Out: the
same with structured operations in their place, and none of the primitives left.

Loops come first, innermost first: a frame with one LoopCond, whose variables each go around through
Enter, Merge, Switch and NextIteration, is a WHILE. What is left of Switches and Merges are
branches: each operation runs under a *path*, the predicates that must have had a value for it to be
alive, outermost first. Operations under one predicate form an IF; where what happens after one
branch decides what comes into another of the same predicate, they are IFs of different *levels*.

`Unraisable` is raised for all else (conditions that cross, dead tensors that are fetched, ops in a
loop that may wait): then the step runs as it is, on the primitives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headrace.graph.definition import Effect
from headrace.graph.flow import Flow
from headrace.graph.lowering import Pass
from headrace.graph.operation import Operation, Tensor
from headrace.graph.program import StepGraph
from headrace.graph.structured import IF, PASS, UNDEFINED, WHILE, Structured, members_of

__all__ = ["Unraisable", "raise_structure"]

Op = Any  # an Operation, or a Structured
Literal = tuple[Tensor, bool]
Path = tuple[Literal, ...]


class Unraisable(Exception):
    """The control flow of a step is not made of loops and branches that nest."""


def raise_structure(step: StepGraph) -> StepGraph:
    """The step in structured form; Unraisable if it has none."""
    if not step.steers:
        return step
    operations = _raise_branches(_raise_loops(step), step.fetches, step.targets)
    return replace(step, operations=tuple(operations))


def _part(
    operations: Iterable[Op],
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation] = (),
) -> StepGraph:
    """A step inside a structured operation, of operations in order."""
    return StepGraph(tuple(operations), tuple(feeds), tuple(fetches), tuple(targets), inner=True)


class _Stand(Tensor):
    """A tensor in the place of one that a part has not."""

    def __init__(self, of: Tensor) -> None:
        super().__init__(of.op, of.value_index, of.dtype)
        self._shape = of._shape


# -- Loops -----------------------------------------------------------------------------------------


class _Frame:
    """A loop and its operations. `within` is the frame that it is in, None for the outermost."""

    def __init__(self, name: str, within: _Frame | None) -> None:
        self.name = name
        self.within = within
        self.depth = 0 if within is None else within.depth + 1
        self.enters: list[Operation] = []


def _raise_loops(step: StepGraph) -> list[Op]:
    """The operations of a step with every loop as one."""
    members = _frames(step)
    for frame in sorted(filter(None, members), key=lambda f: -f.depth):
        loop = _loop(frame, members.pop(frame))
        around, enters = members[frame.within], set(frame.enters)
        members[frame.within] = [*(op for op in around if op not in enters), loop]
    return _in_order(members[None])


def _frames(step: StepGraph) -> dict[_Frame | None, list[Op]]:
    """Who is in which loop. An Enter stands in the frame around its own, an Exit in its own."""
    fed = set(step.feeds)
    found: dict[tuple[_Frame | None, str], _Frame] = {}
    reached: dict[Op, _Frame | None] = {}  # the frame in which what an operation gives is
    members: dict[_Frame | None, list[Op]] = {None: []}
    for op in step.operations:
        sources = [t.op for t in op._inputs if t not in fed] + list(op._control_inputs)
        where = {reached[s] for s in sources if s in reached}
        where |= {None for t in op._inputs if t in fed}
        if len(where) > 1:
            raise Unraisable(f"'{op.name}' has inputs from different frames")
        frame = where.pop() if where else None
        if op.definition.effect is Effect.BLOCKS and frame is not None:
            raise Unraisable(f"'{op.name}' may wait, in a loop")
        members[frame].append(op)
        reached[op] = frame
        if op.definition.flow is Flow.ENTER:
            key = frame, op._attrs["frame_name"]
            child = found.setdefault(key, _Frame(key[1], frame))
            child.enters.append(op)
            members.setdefault(child, [])
            reached[op] = child
        elif op.definition.flow is Flow.EXIT:
            if frame is None:
                raise Unraisable(f"'{op.name}' is in no loop")
            reached[op] = frame.within
    wanted = [t.op for t in step.fetches if t not in fed] + list(step.targets)
    for op in wanted:
        if reached[op] is not None:
            raise Unraisable(f"'{op.name}' is in a loop")
    return members


class _Variable(NamedTuple):
    """What a loop's variable goes through."""

    enter: Operation
    merge: Operation
    switch: Operation | None  # none if nothing reads it in the body or after the loop
    following: Operation


def _loop(frame: _Frame, members: list[Op]) -> Structured:
    """The WHILE that a frame is."""
    conds = [op for op in members if op.type == "LoopCond"]
    if len(conds) != 1:
        raise Unraisable(f"loop '{frame.name}' has {len(conds)} conditions")
    goes_on = conds[0]
    variables = _variables(members, goes_on)
    constants = [e for e in frame.enters if e._attrs["is_constant"]]
    if len(constants) + len(variables) != len(frame.enters):
        raise Unraisable(f"loop '{frame.name}' takes values that do not go around")
    exits = {}
    for op in members:
        if op.definition.flow is Flow.EXIT:
            exits[op._inputs[0]] = op._outputs[0]
    results = [i for i, v in enumerate(variables) if v.switch and v.switch._outputs[0] in exits]
    if len(results) != len(exits):
        raise Unraisable(f"loop '{frame.name}' has an exit that is none of its variables'")

    steering = {goes_on, *(op for v in variables for op in v)}
    inside = [op for op in members if op not in steering and op.definition.flow is not Flow.EXIT]
    invariants = [e._outputs[0] for e in constants]
    around = [v.merge._outputs[0] for v in variables]
    stay = [v.switch._outputs[1] if v.switch else _Stand(v.merge._outputs[0]) for v in variables]
    passed = [v.following._inputs[0] for v in variables]
    # What the next iteration waits for without needing its result, as for a push on a stack.
    waited = list(dict.fromkeys(c for v in variables for c in v.following._control_inputs))
    ahead = _ancestors(goes_on._inputs, inside)
    rest = _ancestors(passed, inside, waited) - ahead
    cond = _closed_part(ahead, inside, [*around, *invariants], goes_on._inputs, frame)
    body = _closed_part(rest, inside, [*stay, *invariants], passed, frame, waited)
    return Structured(
        WHILE,
        variables[0].merge,
        [e._inputs[0] for e in (*(v.enter for v in variables), *constants)],
        [exits[variables[i].switch._outputs[0]] for i in results],  # type: ignore[union-attr]
        list(dict.fromkeys(c for e in frame.enters for c in e._control_inputs)),
        [*members, *frame.enters],
        cond=cond,
        body=body,
        results=tuple(results),
    )


def _variables(members: list[Op], goes_on: Op) -> list[_Variable]:
    """The variables of a loop; Merges of branches are none."""
    switches = {
        op._inputs[0].op: op
        for op in members
        if op.definition.flow is Flow.SWITCH and op._inputs[1].op is goes_on
    }
    found = []
    for op in members:
        if op.definition.flow is not Flow.MERGE:
            continue
        sources = [t.op for t in op._inputs]
        flows = [s.definition.flow for s in sources]
        if flows == [Flow.ENTER, Flow.NEXT]:
            found.append(_Variable(sources[0], op, switches.get(op), sources[1]))
        elif Flow.NEXT in flows or Flow.ENTER in flows:
            raise Unraisable(f"'{op.name}' is no loop's and no branch's")
    return found


def _ancestors(
    tensors: Iterable[Tensor], inside: list[Op], targets: Iterable[Operation] = ()
) -> set[Op]:
    """The operations of `inside` that these tensors and operations need."""
    maker = {t: op for op in inside for t in op._outputs}
    holder = _holders(inside)
    found: set[Op] = set()
    stack = [maker[t] for t in tensors if t in maker]
    stack += [holder[c] for c in targets if c in holder]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack += [maker[t] for t in op._inputs if t in maker]
            stack += [holder[c] for c in op._control_inputs if c in holder]
    return found


def _closed_part(
    part: set[Op],
    inside: list[Op],
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    frame: _Frame,
    targets: Sequence[Operation] = (),
) -> StepGraph:
    """A part of a loop, which may read only what it makes and what it's given."""
    made = {t for op in part for t in op._outputs} | set(feeds)
    for t in (*(t for op in part for t in op._inputs), *fetches):
        if t not in made:
            raise Unraisable(f"the parts of loop '{frame.name}' share '{t.name}'")
    operations = _in_order([op for op in inside if op in part])
    holder = _holders(operations)
    targets = [c for c in targets if c in holder]
    return _part(_raise_branches(operations, fetches, targets), feeds, fetches, targets)


# -- Branches --------------------------------------------------------------------------------------


def _raise_branches(
    operations: list[Op], fetches: Sequence[Tensor], targets: Sequence[Operation]
) -> list[Op]:
    """The operations, in order and without loops, with every branch as one."""
    if not any(op.definition.flow is not None for op in operations):
        return operations
    paths = _Paths(operations, fetches, targets)
    return _Branches(operations, paths, fetches).build(operations, ())


class _Paths:
    """Under which conditions operations and tensors are alive; those that never are, are not in
    `tensors`. What is made elsewhere is alive whenever anything here is.
    """

    def __init__(
        self, operations: list[Op], fetches: Sequence[Tensor], targets: Sequence[Operation]
    ) -> None:
        self.operations: dict[Op, Path] = {}
        self._tensors: dict[Tensor, Path | None] = {}
        self._holder = _holders(operations)
        self._dead: set[Op] = set()
        self._here = set(operations)
        for op in operations:
            self._find(op)
        for t in fetches:
            if self._tensors.get(t, ()) != ():
                raise Unraisable(f"'{t.name}' may be dead, and is fetched")
        for op in targets:
            if self.operations.get(self._holder.get(op, op)) != ():
                raise Unraisable(f"'{op.name}' may be dead, and is a target")

    def of(self, tensor: Tensor) -> Path:
        """The path of a tensor that is alive at times."""
        path = self._tensors.get(tensor, ())
        assert path is not None
        return path

    def is_alive(self, tensor: Tensor) -> bool:
        """Whether a tensor is alive at times."""
        return self._tensors.get(tensor, ()) is not None

    def _find(self, op: Op) -> None:
        flow = op.definition.flow
        if flow is Flow.TRIGGER:
            self._check_trigger(op)
        elif flow not in (None, Flow.SWITCH, Flow.MERGE):
            raise Unraisable(f"'{op.name}' steers on its own")
        path = self._merged(op) if flow is Flow.MERGE else self._together(op)
        if path is not None:
            self.operations[op] = path
        else:
            self._dead.add(op)
        for i, t in enumerate(op._outputs):
            self._tensors[t] = path
            if flow is Flow.SWITCH and path is not None:
                self._tensors[t] = _under(path, self.predicate(op), bool(i))

    def predicate(self, switch: Op) -> Tensor:
        """What decides a Switch: a predicate goes by many names here, each the identity of another,
        or the same in a branch.
        """
        t = switch._inputs[1]
        while t.op in self._here and _passes(t.op):
            t = t.op._inputs[0]
        return t

    def _check_trigger(self, op: Op) -> None:
        """One that waits for nothing that may be dead is no more than something to wait for."""
        controls = [self._holder.get(c, c) for c in op._control_inputs]
        if any(c in self._dead or self.operations.get(c) for c in controls):
            raise Unraisable(f"'{op.name}' waits for what may be dead")

    def _together(self, op: Op) -> Path | None:
        """The path of an operation that needs all its inputs alive."""
        controls = [self._holder.get(c, c) for c in op._control_inputs]
        found = [self._tensors.get(t, ()) for t in op._inputs]
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
        """The path of what a Merge gives: its inputs' without the predicate that they differ in."""
        paths = [self._tensors.get(t, ()) for t in op._inputs]
        if len(paths) == 2 and paths[0] and paths[1] and paths[0][:-1] == paths[1][:-1]:
            (p, one), (q, other) = paths[0][-1], paths[1][-1]
            if p is q and one != other:
                return paths[0][:-1]
        raise Unraisable(f"'{op.name}' merges what does not exclude each other")


def _passes(op: Op) -> bool:
    """Whether an operation gives its first input, if anything."""
    if op.definition.flow is Flow.SWITCH:
        return True
    return isinstance(op.definition.lower, Pass) and len(op._inputs) == 1


def _under(path: Path, predicate: Tensor, value: bool) -> Path | None:
    """A path with one more condition; None if that can't be."""
    known = dict(path)
    if predicate in known:
        return path if known[predicate] == value else None
    return (*path, (predicate, value))


class _Branches:
    """The making of IFs. A Switch is no more than another name of its data, under its predicate."""

    def __init__(self, operations: list[Op], paths: _Paths, fetches: Sequence[Tensor]) -> None:
        self._paths = paths
        self._fetches = set(fetches)
        self._made = {t: op for op in operations for t in op._outputs}
        self._holder = _holders(operations)
        self._readers: dict[Tensor, list[Op]] = {}
        for op in operations:
            if op in paths.operations:
                for t in (*op._inputs, *self._conditions(op)):
                    self._readers.setdefault(t, []).append(op)

    def build(self, operations: list[Op], prefix: Path) -> list[Op]:
        """What stands directly under `prefix`, with an IF for each further condition."""
        alive = [op for op in operations if op in self._paths.operations]
        groups: dict[Tensor, list[Op]] = {}
        made: list[Op] = []
        for op in alive:
            predicate = self._predicate(op, prefix)
            if predicate is not None:
                groups.setdefault(predicate, []).append(op)
            elif op.definition.flow is Flow.SWITCH:
                if self._is_settled(op):
                    made.append(self._passed(op))
            elif op.definition.flow is Flow.TRIGGER:
                made.append(Structured(PASS, op, (), (), op._control_inputs, [op]))
            else:
                made.append(op)
        for predicate, group in groups.items():
            for level in self._levels(alive, set(group), len(prefix)):
                made.append(self._branch(level, predicate, prefix))
        return _in_order(made)

    def _predicate(self, op: Op, prefix: Path) -> Tensor | None:
        """The predicate below `prefix` under which an operation stands, or whose sides it joins."""
        path, depth = self._paths.operations[op], len(prefix)
        if op.definition.flow is Flow.MERGE and len(path) == depth:
            path = self._paths.of(op._inputs[0])
        return path[depth][0] if len(path) > depth else None

    def _conditions(self, op: Op) -> list[Tensor]:
        """The predicates that must be known where an operation stands, outermost first."""
        path = self._paths.operations[op]
        if op.definition.flow is Flow.MERGE:
            path = self._paths.of(op._inputs[0])
        return [p for p, _ in path]

    def _is_settled(self, switch: Op) -> bool:
        """Whether a Switch stands under its own predicate."""
        return self._paths.predicate(switch) in dict(self._paths.operations[switch])

    def _passed(self, switch: Op) -> Structured:
        alive = [t for t in switch._outputs if self._paths.is_alive(t)]
        return Structured(PASS, switch, switch._inputs[:1], alive, switch._control_inputs, [switch])

    def _levels(self, operations: list[Op], group: set[Op], depth: int) -> list[list[Op]]:
        """The group in runs, of which none needs what comes out of a later one."""
        level: dict[Op, int] = {}

        def after(op: Op) -> int:
            """The level of what reads `op`: what has left a branch enters a later one."""
            leaves = op in group and len(self._paths.operations[op]) == depth
            return level[op] + 1 if leaves else level[op]

        for op in operations:
            before = [self._made[t] for t in op._inputs if t in self._made]
            before += [self._holder.get(c, c) for c in op._control_inputs]
            level[op] = max((after(b) for b in before if b in level), default=0)
        runs: dict[int, list[Op]] = {}
        for op in operations:
            if op in group:
                runs.setdefault(level[op], []).append(op)
        return [runs[k] for k in sorted(runs)]

    def _branch(self, level: list[Op], predicate: Tensor, prefix: Path) -> Structured:
        """The IF of a run of operations under a predicate."""
        depth = len(prefix)
        merges = [op for op in level if len(self._paths.operations[op]) == depth]
        inner = self._with_switches([op for op in level if op not in set(merges)], depth)
        own = {*inner, *merges}
        switches, given = self._entering(own, depth)
        leaving = [t for op in inner for t in op._outputs if self._leaves(op, t, own)]
        parts = {}
        for side in (True, False):
            mine = [op for op in inner if self._paths.operations[op][depth][1] == side]
            wanted = [self._side(m, side, depth) for m in merges]
            missing = []
            for t in leaving:
                if self._paths.of(t)[depth][1] != side:
                    t = _Stand(t)
                    missing.append(Structured(UNDEFINED, t.op, (), (t,), (), ()))
                wanted.append(t)
            operations = self.build(mine, (*prefix, (predicate, side)))
            feeds = [*(s._outputs[int(side)] for s in switches), *given]
            parts[side] = _part([*missing, *operations], feeds, wanted)
        controls = dict.fromkeys(c for op in own for c in op._control_inputs)
        origin = (merges or inner)[0]
        return Structured(
            IF,
            getattr(origin, "origin", origin),
            [predicate, *(s._inputs[0] for s in switches), *given],
            [*(m._outputs[0] for m in merges), *leaving],
            [c for c in controls if self._holder.get(c, c) not in own],
            own,
            then=parts[True],
            otherwise=parts[False],
        )

    def _with_switches(self, inner: list[Op], depth: int) -> list[Op]:
        """The operations with those Switches of earlier runs that they read through."""
        found = dict.fromkeys(inner)
        stack = list(inner)
        while stack:
            for t in stack.pop()._inputs:
                maker = self._made.get(t)
                if maker is None or maker in found or maker.definition.flow is not Flow.SWITCH:
                    continue
                if len(self._paths.operations[maker]) > depth and not self._is_settled(maker):
                    found[maker] = None
                    stack.append(maker)
        return list(found)

    def _entering(self, own: set[Op], depth: int) -> tuple[list[Op], list[Tensor]]:
        """What an IF reads: Switches on its predicate, and tensors as they are."""
        switches: dict[Op, None] = {}
        given: dict[Tensor, None] = {}
        for op in sorted(own, key=lambda op: op.name):
            for t in (*op._inputs, *self._conditions(op)[depth + 1 :]):
                maker = self._made.get(t)
                if maker in own:
                    continue
                if maker is not None and self._leads_in(maker, depth):
                    switches.setdefault(maker)
                else:
                    given.setdefault(t)
        return list(switches), list(given)

    def _leads_in(self, op: Op, depth: int) -> bool:
        """Whether an operation is a Switch that stands before a branch of this depth."""
        return op.definition.flow is Flow.SWITCH and len(self._paths.operations[op]) == depth

    def _leaves(self, op: Op, tensor: Tensor, own: set[Op]) -> bool:
        """Whether a later run reads a tensor, directly or through Switches."""
        if op.definition.flow is Flow.SWITCH and not self._is_settled(op):
            return False
        readers = list(self._readers.get(tensor, ()))
        seen: set[Op] = set()
        while readers:
            reader = readers.pop()
            if reader in seen:
                continue
            seen.add(reader)
            if reader.definition.flow is Flow.SWITCH and not self._is_settled(reader):
                readers += [r for t in reader._outputs for r in self._readers.get(t, ())]
            elif reader not in own:
                return True
        return False

    def _side(self, merge: Op, side: bool, depth: int) -> Tensor:
        if merge._outputs[1] in self._readers or merge._outputs[1] in self._fetches:
            raise Unraisable(f"someone asks which way '{merge.name}' was reached")
        return next(t for t in merge._inputs if self._paths.of(t)[depth][1] == side)


# -- Order -----------------------------------------------------------------------------------------


def _holders(operations: Iterable[Op]) -> dict[Op, Op]:
    """For each operation that stands by itself or in a structured one, the one to wait for."""
    return {m: op for op in operations for m in members_of(op)}


def _in_order(operations: list[Op]) -> list[Op]:
    """The operations after what they need, otherwise as they stand."""
    maker = {t: op for op in operations for t in op._outputs}
    holder = _holders(operations)
    done: dict[Op, bool] = {}
    result: list[Op] = []

    def before(op: Op) -> list[Op]:
        found = [maker[t] for t in op._inputs if t in maker]
        return found + [holder[c] for c in op._control_inputs if c in holder]

    for root in operations:
        stack = [] if root in done else [(root, iter(before(root)))]
        done.setdefault(root, False)
        while stack:
            op, remaining = stack[-1]
            for b in remaining:
                if b not in done:
                    done[b] = False
                    stack.append((b, iter(before(b))))
                    break
                if not done[b] and b is not op:
                    raise Unraisable(f"'{op.name}' and '{b.name}' wait for each other")
            else:
                stack.pop()
                done[op] = True
                result.append(op)
    return result
