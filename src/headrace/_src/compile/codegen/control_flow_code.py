"""Control flow while a function is written: loops and branches whose values join in phis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.compile.codegen.registers import I1, I64, Operand, Reg, Type, constant

__all__ = ["Control"]


class Control:
    """A function's text so far, with the block that is being written; registers and labels are
    numbered as they come.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"

    def _new(self, text: str, type: Type) -> Reg:
        self._count += 1
        name = f"%r{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Reg(name, type)

    def _phi(self, type: Type) -> Reg:
        """A register that is written later, where its block begins."""
        self._count += 1
        return Reg(f"%p{self._count}", type)

    def _label(self, name: str) -> str:
        self._count += 1
        return f"{name}{self._count}"

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def _jump(self, label: str) -> None:
        self._lines.append(f"  br label %{label}")

    def _branch(self, condition: Reg, yes: str, no: str) -> None:
        self._lines.append(f"  br i1 {condition.text}, label %{yes}, label %{no}")

    def loop(
        self,
        start: Operand,
        stop: Operand,
        body: Callable[..., Any],
        carried: Sequence[Reg] = (),
        step: Operand = 1,
    ) -> list[Reg]:
        """for i in range(start, stop, step): carried = body(i, *carried). Returns the last carried
        values (the given ones if the range is empty).
        """
        guarded = True
        if isinstance(start, int) and isinstance(stop, int) and isinstance(step, int):
            trips = max(0, -(-(stop - start) // step))
            if not trips:
                return list(carried)
            if trips == 1:
                return _carried(body(_index(start), *carried), carried)
            guarded = False
        first, last = _index(start), _index(stop)
        head, done = self._label("loop"), self._label("done")
        if guarded:
            enter = self._less(first, last)
            self._branch(enter, head, done)
        else:
            self._jump(head)
        before = self._block
        self._start(head)
        position = len(self._lines)  # the phis are written when the values that come back are known
        counter = self._phi(I64)
        inside = [self._phi(c.type) for c in carried]
        returned = _carried(body(counter, *inside), carried)
        following = self._new(f"add nsw i64 {counter.text}, {_index(step).text}", I64)
        latch = self._block
        self._branch(self._less(following, last), head, done)
        self._lines[position:position] = [
            f"  {p.text} = {_join(c, before, r, latch)}"
            for p, c, r in zip(
                (counter, *inside), (first, *carried), (following, *returned), strict=True
            )
        ]
        self._start(done)
        if not guarded:
            return returned
        return [
            self._new(_join(c, before, r, latch), c.type)
            for c, r in zip(carried, returned, strict=True)
        ]

    def repeat(
        self, condition: Callable[..., Reg], body: Callable[..., Any], carried: Sequence[Reg]
    ) -> list[Reg]:
        """while condition(*carried): carried = body(*carried). Returns the last carried values."""
        head, inner, done = self._label("while"), self._label("body"), self._label("done")
        before = self._block
        self._jump(head)
        self._start(head)
        position = len(self._lines)
        inside = [self._phi(c.type) for c in carried]
        self._branch(condition(*inside), inner, done)
        self._start(inner)
        returned = _carried(body(*inside), carried)
        latch = self._block
        self._jump(head)
        self._lines[position:position] = [
            f"  {p.text} = {_join(c, before, r, latch)}"
            for p, c, r in zip(inside, carried, returned, strict=True)
        ]
        self._start(done)
        return inside

    def when(
        self,
        condition: Reg,
        then: Callable[[], Any],
        otherwise: Callable[[], Any] | None = None,
    ) -> list[Reg]:
        """Run `then` or `otherwise`. If they return registers (as many, of the same types), the
        result is those of the one that ran.
        """
        yes, no, done = self._label("then"), self._label("else"), self._label("join")
        self._branch(condition, yes, no)
        self._start(yes)
        first = _listed(then())
        after_yes = self._block
        self._jump(done)
        self._start(no)
        second = _listed(otherwise()) if otherwise is not None else []
        after_no = self._block
        self._jump(done)
        self._start(done)
        if otherwise is None:
            return []
        return [
            self._new(_join(a, after_yes, b, after_no), a.type)
            for a, b in zip(first, second, strict=True)
        ]

    def sequence(self, parts: Sequence[Callable[[], tuple[Reg | None, int] | None]]) -> None:
        """Run parts one after the other. One that returns (condition, number) lets control go on
        at the part of that number (as many as there are: at the end) unless the condition holds;
        always, where it's None.
        """
        labels = [self._label("part") for _ in range(len(parts) + 1)]
        for part, label in zip(parts, labels, strict=False):
            self._jump(label)
            self._start(label)
            jump = part()
            if jump is not None:
                condition, number = jump
                after = self._label("on")
                if condition is None:
                    self._jump(labels[number])
                else:
                    self._branch(condition, after, labels[number])
                self._start(after)
        self._jump(labels[-1])
        self._start(labels[-1])

    def _less(self, x: Reg, y: Reg) -> Reg:
        return self._new(f"icmp slt i64 {x.text}, {y.text}", I1)


def _index(value: Operand) -> Reg:
    return value if isinstance(value, Reg) else constant(value, I64)


def _join(x: Reg, after_x: str, y: Reg, after_y: str) -> str:
    """x or y, by the block that control comes from."""
    return f"phi {x.type} [{x.text}, %{after_x}], [{y.text}, %{after_y}]"


def _listed(values: Any) -> list[Reg]:
    return [] if values is None else [values] if isinstance(values, Reg) else list(values)


def _carried(values: Any, carried: Sequence[Reg]) -> list[Reg]:
    """What a loop's body returned, checked against what it carries."""
    found = _listed(values) if carried else []
    if len(found) != len(carried):
        raise ValueError(f"the loop's body gave {len(found)} values, not {len(carried)}")
    return found
