"""Convolutions of images with few channels (a network's photographs), plain NHWC, to blocked ones.

A window's row, taps times channels, is contiguous in such an image: all of it is one long sum. A
task is a band of output rows; the input rows that it sees are first copied, with their padding,
into a buffer of the thread, so that no window leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace._src.compile.codegen.emit import F32, I8, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_product import registers_of
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import maximum

__all__ = ["Band", "FewChannels", "check_few"]

_ROWS = 8  # output rows of a band


def check_few(g: Geometry, pool: bool) -> None:
    """Raise ValueError unless the kernels here can do it."""
    if g.channels >= g.block or g.filters % g.block or g.dilations != (1, 1):
        raise ValueError(f"not a convolution of few channels to whole blocks: {g}")
    if pool and (g.out_height % 2 or g.out_width % 2):
        raise ValueError(f"a fused max-pool needs an even height and width: {g}")


@dataclass(frozen=True, slots=True)
class Band:
    """The input rows that some output rows see, padded."""

    geometry: Geometry

    @property
    def width(self) -> int:
        """Elements of a row: what all windows see, and whole vectors."""
        g = self.geometry
        seen = ((g.out_width - 1) * g.strides[1] + g.kernel[1]) * g.channels
        return -(-seen // g.block) * g.block

    @property
    def size(self) -> int:
        g = self.geometry
        return ((_ROWS - 1) * g.strides[0] + g.kernel[0]) * self.width

    @property
    def count(self) -> int:
        """Bands of an image."""
        return -(-self.geometry.out_height // _ROWS)

    def locate(self, f: Function, task: Reg) -> tuple[Any, Any, Any]:
        """A task's image, and its first output row and the one after its last."""
        image, first = f.div(task, self.count), f.mul(f.rem(task, self.count), _ROWS)
        return image, first, f.minimum(f.add(first, _ROWS), self.geometry.out_height)

    def clear(self, f: Function, buffer: Reg) -> None:
        """Once per thread: what is outside of every image stays zero."""
        lanes = self.geometry.block
        zero = f.const(0.0, F32.of(lanes))
        f.loop(0, self.size, lambda i: f.store(zero, buffer, i), step=lanes)

    def fill(self, f: Function, x: Reg, image: Operand, top: Operand, buffer: Reg) -> None:
        """Copy the rows that output rows from `top` on see."""
        g = self.geometry
        (above, _), (left, _) = g.pads
        rows = (_ROWS - 1) * g.strides[0] + g.kernel[0]
        first = f.sub(f.mul(top, g.strides[0]), above)
        pixels = min(g.width, self.width // g.channels - left)
        size = pixels * g.channels
        source = f.offset(x, f.mul(image, g.height * g.width * g.channels))
        each = partial(_vectors, f, size, g.block)

        def row(i: Reg) -> None:
            y = f.add(first, i)
            into = f.offset(buffer, f.add(f.mul(i, self.width), left * g.channels))
            line = f.offset(source, f.mul(y, g.width * g.channels))
            f.when(
                f.icmp("ult", y, g.height),
                lambda: each(lambda j, t: f.store(f.load(t, line, j), into, j)),
                lambda: each(lambda j, t: f.store(f.const(0.0, t), into, j)),
            )

        f.loop(0, rows, row)


def _vectors(f: Function, size: int, lanes: int, body: Callable[[Operand, Any], None]) -> None:
    """body(offset, type) over `size` elements: vectors, the last of which overlaps its neighbour;
    single elements where there are fewer than a vector has.
    """
    if size < lanes:
        f.loop(0, size, lambda i: body(i, F32))
        return
    f.loop(0, size - lanes + 1, lambda i: body(i, F32.of(lanes)), step=lanes)
    if size % lanes:
        body(size - lanes, F32.of(lanes))


@dataclass(frozen=True, slots=True)
class FewChannels:
    """y = epilogue(conv(x, w)) for plain x with few channels; y is blocked. Arguments: x, w, the
    epilogue's.

    `pool`: a max-pool of 2 x 2 with stride 2 follows, as in `WinogradForward`.
    """

    geometry: Geometry
    epilogue: Epilogue = NOTHING
    pool: bool = False

    counters = 1

    def __post_init__(self) -> None:
        check_few(self.geometry, self.pool)
        outputs = self.epilogue.program.output_dtypes
        if self.pool and (outputs != ("float32",) or "full" in self.epilogue.operands):
            raise ValueError("a fused max-pool needs one float32 output and no full operand")

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "w", *self.epilogue.arguments, *(("out:argmax",) if self.pool else ()))

    @property
    def _results(self) -> int:
        """Elements of the rows that a thread keeps until they are pooled."""
        return 2 * self.geometry.out_width * self.geometry.filters if self.pool else 0

    def scratch(self, threads: int) -> int:
        return 4 * threads * (Band(self.geometry).size + self._results)

    def emit(self, team: Team) -> None:
        _Forward(self, team).emit()


class _Forward:
    """Writes `FewChannels`."""

    def __init__(self, spec: FewChannels, team: Team) -> None:
        self.spec, self.team, self.f, self.geometry = spec, team, team.f, spec.geometry
        self.band, self.lanes = Band(spec.geometry), spec.geometry.block
        self.vector = F32.of(self.lanes)
        f = team.f
        self.buffer = f.offset(team.scratch, f.mul(team.thread, self.band.size + spec._results))
        self.results = f.offset(self.buffer, self.band.size)
        self.vectors, limit = _shape(team, spec.geometry.filters, self.lanes)
        wide = self.geometry.out_width
        self.together = min(range(1, min(limit, wide) + 1), key=lambda n: -(-wide // n))

    def emit(self) -> None:
        f, team, g = self.f, self.team, self.geometry
        self.functions = self._functions()
        self.band.clear(f, self.buffer)

        def task(i: Reg) -> None:
            image, first, end = self.band.locate(f, i)
            self.band.fill(f, team.args[0], image, first, self.buffer)

            def row(y: Reg) -> None:
                above = f.mul(f.sub(y, first), g.strides[0] * self.band.width)
                self._row(image, y, f.offset(self.buffer, above))
                if self.spec.pool:
                    odd = f.icmp("ne", f.rem(y, 2), 0)
                    f.when(odd, lambda: self._pool_row(image, f.div(y, 2)))

            f.loop(first, end, row)

        team.claim(0, g.batch * self.band.count, task)

    def _row(self, image: Operand, y: Reg, window: Reg) -> None:
        """One row of results, all filters."""
        f, g = self.f, self.geometry
        planes, plane = g.filters // self.lanes, g.out_height * g.out_width * self.lanes
        start = f.add(f.mul(image, planes * plane), f.mul(y, g.out_width * self.lanes))
        if self.spec.pool:
            plane = 2 * g.out_width * self.lanes
            start = f.mul(f.rem(y, 2), g.out_width * self.lanes)

        def panel(k: Operand, pair: tuple[Function, Function | None]) -> None:
            whole, rest = pair
            base = f.add(start, f.mul(f.div(k, self.lanes), plane))
            tail = g.out_width % self.together

            def pixels(function: Function, x: Operand) -> None:
                at = f.offset(window, f.mul(x, g.strides[1] * g.channels))
                place = f.add(base, f.mul(x, self.lanes))
                f.call_function(function, f.parameters[0], self.results, at, place, k)

            f.loop(0, g.out_width - tail, lambda x: pixels(whole, x), step=self.together)
            if rest is not None:
                pixels(rest, g.out_width - tail)

        width = self.vectors * self.lanes
        count = g.filters // width * width
        if count:
            f.loop(0, count, lambda k: panel(k, self.functions[0]), step=width)
        if g.filters > count:
            panel(count, self.functions[-1])

    def _functions(self) -> list[tuple[Function, Function | None]]:
        """For whole panels and the narrower last one: the product with a group of pixels, and with
        what is left of a row.
        """
        g = self.geometry
        rest = g.out_width % self.together
        widths = [("panel", self.vectors)] if g.filters >= self.vectors * self.lanes else []
        tail = g.filters // self.lanes % self.vectors
        widths += [("tail", tail)] if tail else []
        return [
            (
                self._function(name, self.together, vectors),
                self._function(f"{name}_rest", rest, vectors) if rest else None,
            )
            for name, vectors in widths
        ]

    def _function(self, name: str, pixels: int, vectors: int) -> Function:
        """(arguments, rows to be pooled, window, offset of the result, filter)."""
        f, g = self.team.helper(name, [PTR, PTR, PTR, I64, I64]), self.geometry
        table, results, window, at, k = f.parameters
        w = f.offset(f.load(PTR, table, 1), k)
        step = g.strides[1] * g.channels

        # A row of the window is one run of elements in the image and in the filter. One at a time
        # where registers are few: of several that are written out, LLVM loads the filter's vectors
        # together, and spills.
        run = g.kernel[1] * g.channels
        unrolled = g.channels if registers_of(f.target, self.lanes) >= 32 else 1

        def some(_: Reg, a: Reg, w: Reg, *sums: Reg) -> list[Reg]:
            total = list(sums)
            for c in range(unrolled):
                row = [
                    f.load(self.vector, w, c * g.filters + v * self.lanes) for v in range(vectors)
                ]
                for p in range(pixels):
                    x = f.splat(f.load(F32, a, p * step + c), self.lanes)
                    for v in range(vectors):
                        total[p * vectors + v] = f.fma(x, row[v], total[p * vectors + v])
            return [f.offset(a, unrolled), f.offset(w, unrolled * g.filters), *total]

        def taps(_: Reg, a: Reg, w: Reg, *sums: Reg) -> list[Reg]:
            _, w, *total = f.loop(0, run, some, [a, w, *sums], step=unrolled)
            return [f.offset(a, self.band.width), w, *total]

        zeros = [f.const(0.0, self.vector)] * (pixels * vectors)
        _, _, *sums = f.loop(0, g.kernel[0], taps, [window, w, *zeros])
        if self.spec.pool:
            plane = 2 * g.out_width * self.lanes
            for i, value in enumerate(sums):
                f.store(value, results, f.add(at, i % vectors * plane + i // vectors * self.lanes))
            return f.finish()
        plane = g.out_height * g.out_width * self.lanes
        large = 4 * g.batch * g.filters // self.lanes * plane >= f.target.streamed
        for v in range(vectors):
            channel = f.add(k, v * self.lanes)
            fused = Fused(f, table, 2, self.spec.epilogue, channel, self.lanes, nontemporal=large)
            for p in range(pixels):
                fused.store(sums[p * vectors + v], f.add(at, v * plane + p * self.lanes))
        return f.finish()

    def _pool_row(self, image: Operand, y: Operand) -> None:
        """Two rows of results become one."""
        f, g = self.f, self.geometry
        height, width, line = g.out_height // 2, g.out_width // 2, g.out_width * self.lanes

        def channels(k: Reg) -> None:
            block = f.div(k, self.lanes)
            fused = Fused(f, f.parameters[0], 2, self.spec.epilogue, k, self.lanes)
            rows = f.offset(self.results, f.mul(block, 2 * line))
            plane = f.add(f.mul(image, g.filters // self.lanes), block)
            base = f.mul(f.add(f.mul(plane, height), y), width * self.lanes)

            def pixel(x: Reg) -> None:
                corner = f.offset(rows, f.mul(x, 2 * self.lanes))
                at = f.add(base, f.mul(x, self.lanes))
                window = [
                    fused.apply(f.load(self.vector, corner, i), at)[0]
                    for i in (0, self.lanes, line, line + self.lanes)
                ]
                best, where = maximum(f, window)
                fused.store_outputs([best], at)
                f.store(where, f.offset(self.team.args[-1], at, I8))

            f.loop(0, width, pixel)

        f.loop(0, g.filters, channels, step=self.lanes)


def _shape(team: Team, filters: int, lanes: int) -> tuple[int, int]:
    """Vectors of filters and pixels whose sums fit into the registers."""
    registers = registers_of(team.target, lanes)
    if registers < 32:
        vectors = min(2, filters // lanes) if registers >= 16 else 1
    else:
        vectors = 3 if filters % (4 * lanes) and filters % (3 * lanes) == 0 else 4
    return vectors, max(1, (registers - vectors - 1) // vectors)
