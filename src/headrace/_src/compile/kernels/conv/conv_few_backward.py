"""The filter's gradient of convolutions of images with few channels. In: x, plain, and dy, blocked.

Each thread goes through its share of bands of output rows (see `conv_few`) and adds to sums of its
own: a few elements of a window's row times a few vectors of dy, over a row of pixels, in registers.
At last the threads' sums are added, in the order of the threads, and go through the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F32, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.conv.conv_few import Band, check_few
from headrace._src.compile.kernels.conv.conv_product import registers_of
from headrace._src.compile.kernels.images.conv_epilogue import Fused
from headrace._src.compile.kernels.images.conv_geometry import Geometry

__all__ = ["FewChannelsBackwardFilter"]


@dataclass(frozen=True, slots=True)
class FewChannelsBackwardFilter:
    """dw = epilogue(the filter's gradient), HWIO. Arguments: x, dy, the epilogue's."""

    geometry: Geometry
    epilogue: Epilogue = NOTHING

    counters = 0
    meetings = 1

    def __post_init__(self) -> None:
        check_few(self.geometry, pool=False)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "dy", *self.epilogue.arguments)

    @property
    def _taps(self) -> int:
        """Elements of a window."""
        return self.geometry.kernel[0] * self.geometry.kernel[1] * self.geometry.channels

    @property
    def _sums(self) -> int:
        """Elements of a thread's sums."""
        return self._taps * self.geometry.filters

    @property
    def _own(self) -> int:
        """Elements of a thread's memory."""
        return self._sums + Band(self.geometry).size

    def scratch(self, threads: int) -> int:
        return 4 * threads * self._own

    def emit(self, team: Team) -> None:
        _Emitter(self, team).emit()


class _Emitter:
    """Writes the kernel."""

    def __init__(self, spec: FewChannelsBackwardFilter, team: Team) -> None:
        self.spec, self.team, self.f, self.geometry = spec, team, team.f, spec.geometry
        self.band, self.lanes = Band(spec.geometry), spec.geometry.block
        self.vector = F32.of(self.lanes)
        f, g = team.f, spec.geometry
        self.sums = f.offset(team.scratch, f.mul(team.thread, spec._own))
        self.buffer = f.offset(self.sums, spec._sums)
        self.line = g.kernel[1] * g.channels  # elements of a window's row
        self.together, self.vectors = _shape(team, self.line, g.filters // self.lanes, self.lanes)
        self.plane = g.out_height * g.out_width * self.lanes

    def emit(self) -> None:
        g, team = self.geometry, self.team
        tail = g.filters // self.lanes % self.vectors
        self.product = self._product_function("product", self.vectors)
        self.tail = self._product_function("tail", tail) if tail else None
        team.after(0, self._add_up)
        team.after(1, self._finish)

    def _add_up(self) -> None:
        """The sums over this thread's bands."""
        f, team, g = self.f, self.team, self.geometry
        self.band.clear(f, self.buffer)
        zero = f.const(0.0, self.vector)
        f.loop(0, self.spec._sums, lambda i: f.store(zero, self.sums, i), step=self.lanes)
        start, stop = team.share(g.batch * self.band.count)

        def task(i: Reg) -> None:
            image, first, end = self.band.locate(f, i)
            self.band.fill(f, team.args[0], image, first, self.buffer)

            def row(y: Reg) -> None:
                above = f.mul(f.sub(y, first), g.strides[0] * self.band.width)
                self._row(f.offset(self.buffer, above), self._gradient_row(image, y))

            f.loop(first, end, row)

        f.loop(start, stop, task)

    def _gradient_row(self, image: Operand, y: Reg) -> Reg:
        """Where a row of dy is."""
        f, g = self.f, self.geometry
        start = f.mul(image, g.filters // self.lanes * self.plane)
        return f.offset(self.team.args[1], f.add(start, f.mul(y, g.out_width * self.lanes)))

    def _row(self, window: Reg, dy: Reg) -> None:
        """Add a row of output pixels to the sums."""
        f, g = self.f, self.geometry

        def panel(k: Operand, product: Function) -> None:
            column = f.offset(dy, f.mul(f.div(k, self.lanes), self.plane))

            def line(i: Reg) -> None:
                x = f.offset(window, f.mul(i, self.band.width))

                def elements(t: Reg) -> None:
                    at = f.mul(f.add(f.mul(i, self.line), t), g.filters)
                    into = f.offset(self.sums, f.add(at, k))
                    f.call_function(product, f.offset(x, t), column, into)

                f.loop(0, self.line, elements, step=self.together)

            f.loop(0, g.kernel[0], line)

        width = self.vectors * self.lanes
        whole = g.filters // width * width
        f.loop(0, whole, lambda k: panel(k, self.product), step=width)
        if self.tail is not None:
            panel(whole, self.tail)

    def _product_function(self, name: str, vectors: int) -> Function:
        """(x, dy, sums): a few elements of windows times a few vectors, over a row of pixels."""
        f, g = self.team.helper(name, [PTR, PTR, PTR]), self.geometry
        x, dy, sums = f.parameters
        count = self.together * vectors
        step = g.strides[1] * g.channels

        def pixel(_: Reg, x: Reg, dy: Reg, *totals: Reg) -> list[Reg]:
            total = list(totals)
            row = [f.load(self.vector, dy, v * self.plane) for v in range(vectors)]
            for t in range(self.together):
                value = f.splat(f.load(F32, x, t), self.lanes)
                for v in range(vectors):
                    at = t * vectors + v
                    total[at] = f.fma(value, row[v], total[at])
            return [f.offset(x, step), f.offset(dy, self.lanes), *total]

        zeros = [f.const(0.0, self.vector)] * count
        _, _, *totals = f.loop(0, g.out_width, pixel, [x, dy, *zeros])
        for i, value in enumerate(totals):
            at = i // vectors * g.filters + i % vectors * self.lanes
            f.store(f.fadd(value, f.load(self.vector, sums, at)), sums, at)
        return f.finish()

    def _finish(self) -> None:
        """Add the threads' sums and store them."""
        f, spec, filters = self.f, self.spec, self.geometry.filters
        start, stop = self.team.share(spec._taps)

        def tap(t: Reg) -> None:
            def column(k: Reg) -> None:
                at = f.add(f.mul(t, filters), k)
                fused = Fused(f, f.parameters[0], 2, spec.epilogue, k, self.lanes)
                fused.store(self._total(at), at)

            f.loop(0, filters, column, step=self.lanes)

        f.loop(start, stop, tap)

    def _total(self, at: Operand) -> Reg:
        f = self.f

        def thread(i: Reg, total: Reg) -> Reg:
            own = f.offset(self.team.scratch, f.add(f.mul(i, self.spec._own), at))
            return f.fadd(total, f.load(self.vector, own))

        return f.loop(0, self.team.threads, thread, [f.const(0.0, self.vector)])[0]


def _shape(team: Team, line: int, blocks: int, lanes: int) -> tuple[int, int]:
    """Elements of a window's row and vectors of dy whose sums fit into the registers: the more sums
    per load, the better.
    """
    registers = registers_of(team.target, lanes)
    shapes = [
        (elements, vectors)
        for vectors in range(1, min(4, blocks) + 1)
        for elements in range(1, line + 1)
        if line % elements == 0 and elements * vectors + vectors < registers
    ]
    return max(shapes, default=(1, 1), key=lambda s: s[0] * s[1] / (s[0] + s[1]))
