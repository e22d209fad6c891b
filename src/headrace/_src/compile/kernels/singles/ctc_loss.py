"""The loss of connectionist temporal classification, with its gradient: that of ops.nn.ctc_kernels.

A sequence's labels, with a blank before, between and after them, are *positions*. A row has one
float64 per position, in whole vectors, with a margin of impossible positions on either side, so
that a move from one or two positions before needs no special case. Threads divide the sequences;
each has room for the rows of one sequence: the emission log probabilities (`emitted`) and the
forward recursion (`alpha`) for every step, and four more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from headrace._src.compile.codegen import vector_math
from headrace._src.compile.codegen.emit import F64, I32, I64, Function, Operand, Reg
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.pointwise_code import memory_type
from headrace._src.devices.target import Target

__all__ = ["CtcLoss", "row_size", "work_rows"]

_MARGIN = 8  # elements before and after a row: at least two, and a multiple of the lanes
_SINGLE_ROWS = 5


def row_size(labels: int) -> int:
    """The number of float64 of a row for so many labels."""
    return -(-(2 * labels + 1) // _MARGIN) * _MARGIN + 2 * _MARGIN


def work_rows(steps: int) -> int:
    """The number of rows that a thread needs for so many steps."""
    return 2 * steps + _SINGLE_ROWS


@dataclass(frozen=True)
class CtcLoss:
    """loss, gradient = ctc_loss(logits). `sizes`, as int64: steps, sequences, classes, the size of
    a row; `starts`: where each sequence's labels begin, and where the last ones end; `work`: as
    many rows as `work_rows` says, for each thread. `merge`: whether repeated labels are one.
    """

    dtype: str
    merge: bool

    arguments = ("sizes", "logits", "labels", "starts", "lengths", "out:work", "out:loss",
                 "out:gradient")  # fmt: skip
    counters = 0

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        f = team.f
        sizes = team.args[0]
        steps, batch, classes, row = (f.load(I64, sizes, i) for i in range(4))
        room = f.mul(row, f.add(f.mul(steps, 2), _SINGLE_ROWS))
        work = f.offset(team.args[5], f.mul(room, team.thread), F64)
        sequence = _Sequence(team, self, steps, batch, classes, row, work)
        f.loop(*team.share(batch), sequence.emit)


class _Sequence:
    """The code for one sequence."""

    def __init__(
        self,
        team: Team,
        spec: CtcLoss,
        steps: Reg,
        batch: Reg,
        classes: Reg,
        row: Reg,
        work: Reg,
    ) -> None:
        self.f, self.spec = team.f, spec
        self.lanes = _lanes(team.target)
        self.element = memory_type(spec.dtype)
        _, self.logits, self.labels, self.starts, self.lengths, _, self.losses, self.gradient = (
            team.args
        )
        self.steps, self.batch, self.classes, self.row = steps, batch, classes, row
        f = self.f
        first = f.offset(work, _MARGIN, F64)

        def rows(index: Operand) -> Reg:
            return f.offset(first, f.mul(row, index), F64)

        # Weights 0 or -inf of staying at a position, and of skipping to it from two before.
        self.stay, self.skip, self.present, self.following, self.norms = map(rows, range(5))
        self.emitted = lambda t: rows(f.add(t, _SINGLE_ROWS))
        self.alpha = lambda t: rows(f.add(f.add(t, steps), _SINGLE_ROWS))
        self.log_add = _log_add_function(team, self.lanes)

    # -- One sequence ----------------------------------------------------------------------------

    def emit(self, b: Reg) -> None:
        f = self.f
        start, stop = f.load(I64, self.starts, b), f.load(I64, self.starts, f.add(b, 1))
        count = f.sub(stop, start)
        labels = f.offset(self.labels, start, I32)
        length = f.load(I64, self.lengths, b)
        self._weights(labels, count)
        f.loop(0, length, lambda t: self._softmax(b, t, labels, count))
        f.loop(length, self.steps, lambda t: self._clear(b, t))

        def run() -> Reg:
            self._forward(length)
            likelihood = self._likelihood(length, count)
            self._backward(b, length, labels, count, likelihood)
            return likelihood

        (likelihood,) = f.when(f.icmp("sgt", length, 0), run, lambda: f.const(0.0, F64))
        f.store(self._narrow(f.fsub(0.0, likelihood)), self.losses, b)

    def _narrow(self, x: Reg) -> Reg:
        return x if self.element is F64 else self.f.convert("fptrunc", x, self.element)

    def _wide(self, x: Reg) -> Reg:
        return x if self.element is F64 else self.f.convert("fpext", x, F64)

    def _vectors(self, body: Callable[[Reg], None], from_end: bool = False) -> None:
        """Run body(first position) for each vector of a row, margins left out."""
        f = self.f
        inner = f.sub(self.row, 2 * _MARGIN)
        if not from_end:
            f.loop(0, inner, body, step=self.lanes)
            return
        f.loop(0, inner, lambda i: body(f.sub(f.sub(inner, self.lanes), i)), step=self.lanes)

    def _fill(self, row: Reg, value: float) -> None:
        """Set all of a row, margins too."""
        f = self.f
        vector = f.const(value, F64.of(self.lanes))
        first = f.offset(row, -_MARGIN, F64)
        f.loop(0, self.row, lambda i: f.store(vector, first, i), step=self.lanes)

    def _position(self, k: Operand) -> Operand:
        return self.f.add(self.f.mul(k, 2), 1)

    def _weights(self, labels: Reg, count: Reg) -> None:
        """Write the weights of the allowed moves."""
        f, merge = self.f, self.spec.merge
        self._fill(self.stay, 0.0)
        self._fill(self.skip, -inf)
        never = f.const(-inf, F64)

        def write(k: Reg) -> None:
            if not merge:
                f.store(never, self.stay, self._position(k))
            same = f.icmp("eq", f.load(I32, labels, k), f.load(I32, labels, f.sub(k, 1)))
            # Equal labels with no blank between them would be read as one.
            weight = f.select(same, -inf, f.const(0.0, F64)) if merge else f.const(0.0, F64)
            f.store(weight, self.skip, self._position(k))

        f.loop(1, count, write)
        if not merge:
            f.when(f.icmp("sgt", count, 0), lambda: f.store(never, self.stay, self._position(0)))

    # -- Softmax ---------------------------------------------------------------------------------

    def _cells(self, b: Reg, t: Reg) -> Reg:
        f = self.f
        return f.mul(f.add(f.mul(t, self.batch), b), self.classes)

    def _softmax(self, b: Reg, t: Reg, labels: Reg, count: Reg) -> None:
        """Write the softmax of a step as the gradient, and each position's log probability."""
        f, lanes, element = self.f, self.lanes, self.element
        cells = self._cells(b, t)
        source, target = (f.offset(p, cells, element) for p in (self.logits, self.gradient))

        def classes(body: Callable[..., Any], carried: Sequence[Reg] = ()) -> list[Reg]:
            """Run body(first class, mask, *carried) for each vector of classes."""

            def vector(i: Reg, *values: Reg) -> Any:
                return body(i, f.first_lanes(f.sub(self.classes, i), lanes), *values)

            return f.loop(0, self.classes, vector, carried, step=lanes)

        def load(pointer: Reg, i: Reg, mask: Reg, otherwise: float) -> Reg:
            vector = element.of(lanes)
            found = f.masked_load(vector, pointer, mask, f.const(otherwise, vector), i)
            return self._wide(found)

        def larger(i: Reg, mask: Reg, x: Reg) -> Reg:
            return vector_math.maximum(f, x, load(source, i, mask, -inf))

        (wide,) = classes(larger, [f.const(-inf, F64.of(lanes))])
        largest = f.reduce("fmaximum", wide)

        def weight(i: Reg, mask: Reg, x: Reg) -> Reg:
            shifted = f.fsub(load(source, i, mask, -inf), f.splat(largest, lanes))
            e = vector_math.exp(f, shifted)
            f.masked_store(self._narrow(e), target, mask, i)
            return f.fadd(x, f.select(mask, e, 0.0))

        (wide,) = classes(weight, [f.const(0.0, F64.of(lanes))])
        total = f.reduce("fadd", wide)
        norm = f.fadd(largest, vector_math.log(f, total))
        inverse = f.splat(f.fdiv(1.0, total), lanes)

        def scale(i: Reg, mask: Reg) -> None:
            e = f.fmul(load(target, i, mask, 0.0), inverse)
            f.masked_store(self._narrow(e), target, mask, i)

        classes(scale)
        self._emit_step(t, source, norm, labels, count)

    def _emit_step(self, t: Reg, source: Reg, norm: Reg, labels: Reg, count: Reg) -> None:
        f, row = self.f, self.emitted(t)

        def said(symbol: Operand) -> Reg:
            return f.fsub(self._wide(f.load(self.element, source, symbol)), norm)

        blank = said(f.sub(self.classes, 1))
        vector = f.splat(blank, self.lanes)
        self._vectors(lambda s: f.store(vector, row, s))

        def label(k: Reg) -> None:
            f.store(said(f.convert("sext", f.load(I32, labels, k), I64)), row, self._position(k))

        f.loop(0, count, label)

    def _clear(self, b: Reg, t: Reg) -> None:
        f = self.f
        cells = self._cells(b, t)
        zero = f.const(0.0, self.element)
        f.loop(0, self.classes, lambda i: f.store(zero, self.gradient, f.add(cells, i)))

    # -- Recursions ------------------------------------------------------------------------------

    def _load(self, row: Reg, s: Operand) -> Reg:
        return self.f.load(F64.of(self.lanes), row, s)

    def _forward(self, length: Reg) -> None:
        """alpha[t]: the log probability of all labels emitted up to t, ending at each position."""
        f = self.f
        # Before the first step one stands at the first blank, which may be stayed at or left.
        self._fill(self.present, -inf)
        f.store(f.const(0.0, F64), self.present)
        f.loop(0, length, lambda t: self._fill(self.alpha(t), -inf))

        def step(t: Reg) -> None:
            before = f.select(f.icmp("eq", t, 0), self.present, self.alpha(f.sub(t, 1)))
            after, emitted = self.alpha(t), self.emitted(t)

            def move(s: Reg) -> None:
                here = f.fadd(self._load(before, s), self._load(self.stay, s))
                one = self._load(before, f.sub(s, 1))
                two = f.fadd(self._load(before, f.sub(s, 2)), self._load(self.skip, s))
                total = f.call_function(self.log_add, here, one, two)
                f.store(f.fadd(total, self._load(emitted, s)), after, s)

            self._vectors(move)

        f.loop(0, length, step)

    def _likelihood(self, length: Reg, count: Reg) -> Reg:
        """The log probability of all paths: they end at the last label or at the last blank."""
        f, lanes = self.f, self.lanes
        last, end = self.alpha(f.sub(length, 1)), f.mul(count, 2)
        ends = [f.splat(f.load(F64, last, f.sub(end, i)), lanes) for i in range(2)]
        never = f.const(-inf, F64.of(lanes))
        return f.extract(f.call_function(self.log_add, *ends, never), 0)

    def _backward(self, b: Reg, length: Reg, labels: Reg, count: Reg, likelihood: Reg) -> None:
        """Go back through the steps, and subtract from each softmax how often its classes are
        expected to be emitted. `following`: the log probability of emitting the remaining labels
        from the next step on; it is overwritten from the first position on, which later ones don't
        read.
        """
        f, lanes = self.f, self.lanes
        never = f.const(-inf, F64)
        self._fill(self.following, -inf)
        possible = f.fcmp("une", likelihood, -inf)
        # Where no path is possible nothing is expected: exp(-inf).
        norm = f.splat(f.select(possible, likelihood, inf), lanes)
        end = f.mul(count, 2)

        def step(i: Reg) -> None:
            t = f.sub(f.sub(length, 1), i)
            is_last = f.icmp("eq", i, 0)
            alpha, emitted = self.alpha(t), self.emitted(t)

            def ends() -> None:
                self._fill(self.present, -inf)
                f.store(f.const(0.0, F64), self.present, end)
                f.when(
                    f.icmp("sgt", count, 0),
                    lambda: f.store(f.const(0.0, F64), self.present, f.sub(end, 1)),
                )

            def move(s: Reg) -> None:
                here = f.fadd(self._load(self.following, s), self._load(self.stay, s))
                one = self._load(self.following, f.add(s, 1))
                to = f.add(s, 2)
                two = f.fadd(self._load(self.following, to), self._load(self.skip, to))
                f.store(f.call_function(self.log_add, here, one, two), self.present, s)

            f.when(is_last, ends, lambda: self._vectors(move))

            def occupy(s: Reg) -> None:
                beta = self._load(self.present, s)
                f.store(f.fadd(beta, self._load(emitted, s)), self.following, s)
                paths = f.fsub(f.fadd(self._load(alpha, s), beta), norm)
                f.store(vector_math.exp(f, paths), self.present, s)

            self._vectors(occupy)
            target = f.offset(self.gradient, self._cells(b, t), self.element)
            self._expect(target, labels, count)

        f.loop(0, length, step)
        f.store(never, self.present)

    def _expect(self, target: Reg, labels: Reg, count: Reg) -> None:
        """Subtract the expectation of each position from the gradient of one step."""
        f = self.f

        def take(symbol: Operand, weight: Reg) -> None:
            old = self._wide(f.load(self.element, target, symbol))
            f.store(self._narrow(f.fsub(old, weight)), target, symbol)

        def label(k: Reg) -> None:
            symbol = f.convert("sext", f.load(I32, labels, k), I64)
            take(symbol, f.load(F64, self.present, self._position(k)))

        f.loop(0, count, label)
        (blanks,) = f.loop(
            0,
            f.add(count, 1),
            lambda k, x: f.fadd(x, f.load(F64, self.present, f.mul(k, 2))),
            [f.const(0.0, F64)],
        )
        take(f.sub(self.classes, 1), blanks)


def _lanes(target: Target) -> int:
    return max(2, target.lanes("float64"))


def _log_add_function(team: Team, lanes: int) -> Function:
    """log(exp(x) + exp(y) + exp(z)), lane by lane."""
    vector = F64.of(lanes)
    f = team.helper("log_add", [vector] * 3, vector)
    x, y, z = f.parameters
    more, less = vector_math.maximum(f, x, y), vector_math.minimum(f, x, y)
    largest = vector_math.maximum(f, more, z)
    # The exponential of the largest itself is 1. Where all are -inf, the differences from it must
    # not be NaN.
    base = f.select(f.fcmp("oeq", largest, -inf), 0.0, largest)
    others = vector_math.minimum(f, more, z), less
    parts = [vector_math.exp(f, f.fsub(v, base)) for v in others]
    f.finish(f.fadd(largest, vector_math.log(f, f.fadd(f.fadd(parts[0], parts[1]), 1.0))))
    return f
