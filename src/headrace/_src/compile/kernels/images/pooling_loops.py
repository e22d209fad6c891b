"""Windows over each channel of blocked images separately: pooling, depthwise convolution, and their
gradients; any window, stride and padding.

Elements beyond the image's edge don't count, neither for the maximum nor for the average. As in
TensorFlow, the maximum starts from the lowest finite number and takes greater elements (a NaN never
wins), while its gradient goes to the first element of the window, row by row, that no later one is
greater than (which may be a leading NaN). `MaxPool` stores the position of that element as one
byte: row of the window times its width plus column. The gradient then needs no images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headrace._src.compile.codegen.emit import F32, I8, I32, Function, Operand, Reg, Type
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry

__all__ = [
    "AveragePool", "AveragePoolGradient", "Depthwise", "DepthwiseGradient", "MaxPool",
    "MaxPoolGradient", "maximum",
]  # fmt: skip

_LOWEST = float(np.finfo(np.float32).min)
_UNROLLED = 16  # taps of a window that is written out


def maximum(f: Function, window: Sequence[Reg]) -> tuple[Reg, Reg]:
    """The maximum of a window's vectors, and the bytes that say which it is."""
    best = _Best.start(f, window[0].type.lanes)
    for k, value in enumerate(window):
        best = best.first(k, value) if k == 0 else best.next(k, value)
    return best.value, f.convert("trunc", best.where, I8)


@dataclass
class _Best:
    """The greatest vector so far, and the one that the gradient goes to with its index."""

    f: Function
    value: Reg
    held: Reg
    where: Reg

    @staticmethod
    def start(f: Function, lanes: int) -> _Best:
        lowest = f.const(_LOWEST, F32.of(lanes))
        return _Best(f, lowest, lowest, f.const(0, I32.of(lanes)))

    def first(self, tap: Operand, value: Reg) -> _Best:
        return _Best(self.f, self._greater(value), value, self._index(tap))

    def next(self, tap: Operand, value: Reg) -> _Best:
        f = self.f
        wins = f.fcmp("ogt", value, self.held)
        held = f.select(wins, value, self.held)
        where = f.select(wins, self._index(tap), self.where)
        return _Best(f, self._greater(value), held, where)

    def _index(self, tap: Operand) -> Reg:
        if isinstance(tap, int):
            return self.f.const(tap, self.where.type)
        return self.f.splat(self.f.convert("trunc", self.f.reg(tap), I32), self.where.type.lanes)

    def _greater(self, value: Reg) -> Reg:
        return self.f.select(self.f.fcmp("ogt", value, self.value), value, self.value)

    @property
    def regs(self) -> list[Reg]:
        return [self.value, self.held, self.where]


@dataclass(frozen=True, slots=True)
class _Pool:
    """What the kernels have in common."""

    geometry: Geometry
    epilogue: Epilogue = NOTHING

    counters = 0

    def __post_init__(self) -> None:
        g = self.geometry
        if g.filters != g.channels or g.channels % g.block or g.dilations != (1, 1):
            raise ValueError(f"no pooling of blocked images has this geometry: {g}")
        if g.kernel[0] * g.kernel[1] > 256:
            raise ValueError(f"a window of more than 256 elements: {g}")

    def scratch(self, threads: int) -> int:
        return 0

    @property
    def _images(self) -> int:
        """Planes of a block of channels each."""
        return self.geometry.batch * self.geometry.channels // self.geometry.block

    def _channel(self, f: Function, plane: Operand) -> Operand:
        """The first channel of a plane."""
        block = self.geometry.block
        return f.mul(f.rem(plane, self.geometry.channels // block), block)

    @property
    def _vector(self) -> Type:
        return F32.of(self.geometry.block)


@dataclass(frozen=True, slots=True)
class _Forward(_Pool, ABC):
    """Goes over the results; `_pixel` computes one."""

    _operands: ClassVar[int] = 1  # arguments before the epilogue's

    def emit(self, team: Team) -> None:
        f, g = team.f, self.geometry
        start, stop = team.share(self._images * g.out_height)

        def row(i: Reg) -> None:
            plane, y = f.div(i, g.out_height), f.rem(i, g.out_height)
            channel = self._channel(f, plane)
            fused = Fused(f, f.parameters[0], self._operands, self.epilogue, channel, g.block)
            image = f.offset(team.args[0], f.mul(plane, g.height * g.width * g.block))
            tall = _Span(f, y, g.kernel[0], g.strides[0], g.pads[0], g.height)

            def column(x: Reg) -> None:
                wide = _Span(f, x, g.kernel[1], g.strides[1], g.pads[1], g.width)
                at = f.mul(f.add(f.mul(i, g.out_width), x), g.block)
                self._pixel(team, _Window(f, image, tall, wide, channel, g), fused, at)

            f.loop(0, g.out_width, column)

        f.loop(start, stop, row)

    @abstractmethod
    def _pixel(self, team: Team, window: _Window, fused: Fused, at: Operand) -> None:
        """Compute a window's result and store it at `at`."""


@dataclass(frozen=True, slots=True)
class MaxPool(_Forward):
    """The maximum of each window, through the epilogue; `argmax`: and which it is, as a byte."""

    argmax: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", *self.epilogue.arguments, *(("out:argmax",) if self.argmax else ()))

    def _pixel(self, team: Team, window: _Window, fused: Fused, at: Operand) -> None:
        f = team.f

        def begin(tap: Operand, value: Reg) -> list[Reg]:
            return _Best.start(f, self.geometry.block).first(tap, value).regs

        def step(tap: Operand, value: Reg, *regs: Reg) -> list[Reg]:
            return _Best(f, *regs).next(tap, value).regs

        best, _, where = window.fold(begin, step)
        fused.store(best, at)
        if self.argmax:
            f.store(f.convert("trunc", where, I8), f.offset(team.args[-1], at, I8))


@dataclass(frozen=True, slots=True)
class AveragePool(_Forward):
    """The average of each window, through the epilogue."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", *self.epilogue.arguments)

    def _pixel(self, team: Team, window: _Window, fused: Fused, at: Operand) -> None:
        f = team.f
        (total,) = window.fold(lambda _, v: [v], lambda _, v, total: [f.fadd(total, v)])
        count = f.convert("sitofp", f.reg(f.mul(window.tall.size, window.wide.size)), F32)
        fused.store(f.fdiv(total, f.splat(count, self.geometry.block)), at)


@dataclass(frozen=True, slots=True)
class Depthwise(_Forward):
    """The sum of each window's elements times those of the filter [height, width, channels],
    through the epilogue.
    """

    _operands: ClassVar[int] = 2

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "w", *self.epilogue.arguments)

    def _pixel(self, team: Team, window: _Window, fused: Fused, at: Operand) -> None:
        f, w = team.f, team.args[1]

        def weight(tap: Operand) -> Reg:
            return _weight(f, w, self.geometry, tap, window.channel)

        (total,) = window.fold(
            lambda tap, v: [f.fmul(v, weight(tap))],
            lambda tap, v, total: [f.fma(v, weight(tap), total)],
        )
        fused.store(total, at)


def _weight(f: Function, w: Reg, g: Geometry, tap: Operand, channel: Operand) -> Reg:
    """What a depthwise filter has for a block of channels at a tap."""
    return f.load(F32.of(g.block), w, f.add(f.mul(tap, g.channels), channel))


class _Span:
    """What of a window along one axis lies within the image: [first, first + size)."""

    def __init__(
        self,
        f: Function,
        i: Operand,
        taps: int,
        stride: int,
        pads: tuple[int, int],
        extent: int,
    ) -> None:
        self.start = f.sub(f.mul(i, stride), pads[0])
        self.whole = pads[0] <= 0 and pads[1] <= 0  # always, so nothing needs to be checked
        if self.whole:
            self.first, self.size = self.start, taps
            return
        zero = f.const(0, self.start.type) if isinstance(self.start, Reg) else 0
        self.first = f.select(f.icmp("slt", self.start, 0), zero, self.start)
        self.size = f.sub(f.minimum(f.add(self.start, taps), extent), self.first)


class _Window:
    """One window of an image: its vectors, in row-major order."""

    def __init__(
        self, f: Function, image: Reg, tall: _Span, wide: _Span, channel: Operand, g: Geometry
    ) -> None:
        self.f, self.image, self.tall, self.wide, self.geometry = f, image, tall, wide, g
        self.channel = channel

    def fold(self, begin: Callable[..., list[Reg]], step: Callable[..., list[Reg]]) -> list[Reg]:
        """Begin with the first element and go on with the others: both get the tap's number, its
        vector and, but for the first, the result so far.
        """
        f, (rows, columns) = self.f, self.geometry.kernel
        short = rows * columns <= _UNROLLED
        if self.tall.whole and self.wide.whole:
            return self._written_out(begin, step) if short else self._looped(begin, step)
        if not short:
            return self._looped(begin, step)
        inside = f.and_(
            f.icmp("eq", f.reg(self.tall.size), rows), f.icmp("eq", f.reg(self.wide.size), columns)
        )
        return f.when(
            inside, lambda: self._written_out(begin, step), lambda: self._looped(begin, step)
        )

    def _written_out(self, begin: Callable, step: Callable) -> list[Reg]:
        f, (rows, columns) = self.f, self.geometry.kernel
        result: list[Reg] = []
        for i in range(rows):
            for j in range(columns):
                value = self._load(f.add(self.tall.start, i), f.add(self.wide.start, j))
                tap = i * columns + j
                result = step(tap, value, *result) if result else begin(tap, value)
        return result

    def _looped(self, begin: Callable, step: Callable) -> list[Reg]:
        """The first element is begun with, so its row starts with the second."""
        f, tall, wide = self.f, self.tall, self.wide
        start = begin(self._tap(tall.first, wide.first), self._load(tall.first, wide.first))

        def row(i: Reg, *result: Reg) -> list[Reg]:
            y = f.add(tall.first, i)
            skip = f.convert("zext", f.icmp("eq", i, 0), i.type)

            def column(j: Reg, *result: Reg) -> list[Reg]:
                x = f.add(wide.first, j)
                return step(self._tap(y, x), self._load(y, x), *result)

            return f.loop(skip, wide.size, column, result)

        return f.loop(0, tall.size, row, start)

    def _load(self, y: Operand, x: Operand) -> Reg:
        pixel = self.f.add(self.f.mul(y, self.geometry.width), x)
        lanes = self.geometry.block
        return self.f.load(F32.of(lanes), self.image, self.f.mul(pixel, lanes))

    def _tap(self, y: Operand, x: Operand) -> Operand:
        f = self.f
        i, j = f.sub(y, self.tall.start), f.sub(x, self.wide.start)
        return f.reg(f.add(f.mul(i, self.geometry.kernel[1]), j))


# -- Gradients -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gradient(_Pool, ABC):
    """Visits the image's pixels in cells of stride x stride: windows see pixels at the same place
    in a cell at the same taps. The contributions of all windows are added up.
    """

    _operands: ClassVar[int]  # arguments before the epilogue's

    def emit(self, team: Team) -> None:
        f, g = team.f, self.geometry
        cells = -(-(g.height + g.pads[0][0]) // g.strides[0])
        zeros = f.module.data(f"{f.name}_zeros", [0.0] * g.block, F32)
        start, stop = team.share(self._images * cells)

        def row_of_cells(i: Reg) -> None:
            plane, cell = f.div(i, cells), f.rem(i, cells)
            channel = self._channel(f, plane)
            fused = Fused(
                f,
                f.parameters[0],
                self._operands,
                self.epilogue,
                channel,
                g.block,
                nontemporal=4 * self._images * g.height * g.width * g.block >= f.target.streamed,
            )
            for phase in range(g.strides[0]):
                rows = _Reach(f, cell, phase, g, 0)
                rows.when_inside(lambda r=rows: self._row(team, plane, channel, r, fused, zeros))

        f.loop(start, stop, row_of_cells)

    def _row(
        self, team: Team, plane: Reg, channel: Operand, rows: _Reach, fused: Fused, zeros: Reg
    ) -> None:
        f, g = team.f, self.geometry
        cells = -(-(g.width + g.pads[1][0]) // g.strides[1])
        line = f.mul(f.add(f.mul(plane, g.height), rows.position), g.width)
        outputs = f.mul(plane, g.out_height * g.out_width)

        def column_of_cells(cell: Reg) -> None:
            for phase in range(g.strides[1]):
                columns = _Reach(f, cell, phase, g, 1)

                def pixel(columns: _Reach = columns) -> None:
                    total = f.const(0.0, self._vector)
                    for y, row_tap, row_seen in rows.windows:
                        for x, column_tap, column_seen in columns.windows:
                            at = f.mul(f.add(outputs, f.add(f.mul(y, g.out_width), x)), g.block)
                            seen = _both(f, row_seen, column_seen)
                            tap = row_tap * g.kernel[1] + column_tap
                            output = _Output(at, y, x, channel, seen, zeros)
                            total = self._add(team, total, output, tap)
                    fused.store(total, f.mul(f.add(line, columns.position), g.block))

                columns.when_inside(pixel)

        f.loop(0, cells, column_of_cells)

    @abstractmethod
    def _add(self, team: Team, total: Reg, output: _Output, tap: int) -> Reg:
        """Add what a window gives to the pixel that it sees at `tap`."""


@dataclass
class _Output:
    """A window's result at (y, x), from a channel on, if `seen` (None: always) it exists."""

    at: Any
    y: Any
    x: Any
    channel: Any
    seen: Reg | None
    zeros: Reg

    def load(self, f: Function, array: Reg, type: Any) -> Reg:
        """The array's vector there, or zeros."""
        place = f.offset(array, self.at, type)
        return f.load(type, place if self.seen is None else f.select(self.seen, place, self.zeros))


class _Reach:
    """A pixel's position along one axis and the windows that see it: (output, tap, whether there is
    such an output; None if always).
    """

    def __init__(self, f: Function, cell: Reg, phase: int, g: Geometry, axis: int) -> None:
        stride, taps, before = g.strides[axis], g.kernel[axis], g.pads[axis][0]
        outs = (g.out_height, g.out_width)[axis]
        self._f, self._extent = f, (g.height, g.width)[axis]
        self.position = f.add(f.mul(cell, stride), phase - before)
        self._always = before <= 0 and self._extent % stride == 0
        self.windows: list[tuple[Any, int, Reg | None]] = []
        for back, tap in enumerate(range(phase, taps, stride)):
            output = f.sub(cell, back)
            always = back == 0 and self._always and outs * stride >= self._extent
            self.windows.append((output, tap, None if always else f.icmp("ult", output, outs)))

    def when_inside(self, body: Callable[[], None]) -> None:
        if self._always:
            body()
        else:
            self._f.when(self._f.icmp("ult", self.position, self._extent), body)


def _both(f: Function, x: Reg | None, y: Reg | None) -> Reg | None:
    if x is None or y is None:
        return y if x is None else x
    return f.and_(x, y)


@dataclass(frozen=True, slots=True)
class MaxPoolGradient(_Gradient):
    """The gradient of `MaxPool`'s input from that of its output and the noted positions."""

    _operands: ClassVar[int] = 2

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("dy", "argmax", *self.epilogue.arguments)

    def _add(self, team: Team, total: Reg, output: _Output, tap: int) -> Reg:
        f, (dy, argmax) = team.f, team.args[:2]
        bytes_ = I8.of(self.geometry.block)
        where = output.load(f, argmax, bytes_)
        taken = f.icmp("eq", where, f.const(tap if tap < 128 else tap - 256, bytes_))
        share = f.select(taken, output.load(f, dy, self._vector), f.const(0.0, self._vector))
        return f.fadd(total, share)


@dataclass(frozen=True, slots=True)
class AveragePoolGradient(_Gradient):
    """The gradient of `AveragePool`'s input from that of its output."""

    _operands: ClassVar[int] = 1

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("dy", *self.epilogue.arguments)

    def emit(self, team: Team) -> None:
        g = self.geometry
        if g.kernel == (g.height, g.width) and g.pads == ((0, 0), (0, 0)):
            self._emit_global(team)
        else:
            _Gradient.emit(self, team)

    def _emit_global(self, team: Team) -> None:
        """One window is the whole image: every pixel gets the same."""
        f, size = team.f, self.geometry.height * self.geometry.width
        lanes = self.geometry.block
        start, stop = team.share(self._images)

        def image(plane: Reg) -> None:
            fused = Fused(f, f.parameters[0], 1, self.epilogue, self._channel(f, plane), lanes)
            dy = f.load(self._vector, team.args[0], f.mul(plane, lanes))
            share = f.fmul(dy, 1 / size)
            at = f.mul(plane, size * lanes)
            f.loop(0, size, lambda i: fused.store(share, f.add(at, f.mul(i, lanes))))

        f.loop(start, stop, image)

    def _add(self, team: Team, total: Reg, output: _Output, tap: int) -> Reg:
        f, g = team.f, self.geometry
        spans = [
            _Span(f, i, g.kernel[axis], g.strides[axis], g.pads[axis], (g.height, g.width)[axis])
            for axis, i in enumerate((output.y, output.x))
        ]
        count = f.convert("sitofp", f.reg(f.mul(spans[0].size, spans[1].size)), F32)
        share = f.splat(f.fdiv(f.const(1.0, F32), count), g.block)
        return f.fadd(total, f.fmul(output.load(f, team.args[0], self._vector), share))


@dataclass(frozen=True, slots=True)
class DepthwiseGradient(_Gradient):
    """The gradient of `Depthwise`'s input from that of its output."""

    _operands: ClassVar[int] = 2

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("dy", "w", *self.epilogue.arguments)

    def _add(self, team: Team, total: Reg, output: _Output, tap: int) -> Reg:
        f, (dy, w) = team.f, team.args[:2]
        weight = _weight(f, w, self.geometry, tap, output.channel)
        return f.fma(output.load(f, dy, self._vector), weight, total)
