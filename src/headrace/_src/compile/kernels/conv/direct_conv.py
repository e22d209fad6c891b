"""Direct convolution on plain layouts: NHWC activations, HWIO filters, any window, any vectors.

`headrace compile` generates this kernel for processors without a faster one, such as those of
phones and browsers. A task is a band of output rows of one image. Its input rows are copied with
their padding into scratch memory, so that windows never leave it, and swept panel by panel of
filters (whose weights stay in cache), row by row, tile by tile: `pixels` x `columns` sums in
registers.

The kernel first packs the filters into panels [panel][window, channel][columns]; if `packed`, they
are given in panels (`pack_filters`), which saves time where they are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace._src.compile.codegen.emit import F32, I64, PTR, Function, Operand, Reg
from headrace._src.compile.codegen.epilogue import Epilogue
from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.kernels.gemm.gemm_memory import Sink
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.devices.target import Target

__all__ = ["DirectConv", "direct_conv", "pack_filters"]

_BAND = 128 * 1024  # bytes of input that a task works on: they stay in the core's own cache


@dataclass(frozen=True)
class DirectConv:
    """y = epilogue(conv(x, filters)). Arguments: x, filters, the epilogue's."""

    geometry: Geometry
    epilogue: Epilogue
    pixels: int
    columns: int
    rows: int
    packed: bool = False

    counters = 1

    @property
    def meetings(self) -> int:
        return int(self._packs)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("x", "filters", *self.epilogue.arguments)

    def scratch(self, threads: int) -> int:
        return 4 * (self._panels_size + threads * self._band_size)

    # -- Sizes, in elements ----------------------------------------------------------------------

    @property
    def _depth(self) -> int:
        """How many products a sum has."""
        g = self.geometry
        return g.kernel[0] * g.kernel[1] * g.channels

    @property
    def _packs(self) -> bool:
        """Whether filters must be brought into panels; one panel is what they are."""
        return not self.packed and self.columns < self.geometry.filters

    @property
    def _panels_size(self) -> int:
        return _lines(self._depth * self.geometry.filters) if self._packs else 0

    @property
    def _reach(self) -> tuple[int, int]:
        """Rows that a band's windows reach over, and pixels that a row's do."""
        g = self.geometry
        rows, pixels = (
            (count - 1) * stride + (size - 1) * dilation + 1
            for count, stride, size, dilation in zip(
                (self.rows, g.out_width), g.strides, g.kernel, g.dilations, strict=True
            )
        )
        return rows, pixels

    @property
    def _pads(self) -> bool:
        return self.geometry.pads != ((0, 0), (0, 0))

    @property
    def _row_size(self) -> int:
        """A row of the input that the tiles read."""
        g = self.geometry
        return (self._reach[1] if self._pads else g.width) * g.channels

    @property
    def _band_size(self) -> int:
        return _lines(self._reach[0] * self._row_size) if self._pads else 0

    # -- Code ------------------------------------------------------------------------------------

    def emit(self, team: Team) -> None:
        _Writer(self, team).write()


def direct_conv(geometry: Geometry, epilogue: Epilogue, target: Target) -> DirectConv:
    """The kernel with tiles and bands that suit the target."""
    g = geometry
    lanes = target.lanes()
    tiles = [
        (min((target.registers - vectors - 1) // vectors, g.out_width), vectors)
        for vectors in (1, 2, 4)
        if (vectors - 1) * lanes < g.filters
    ]
    # Products per operand that is loaded.
    pixels, vectors = max(tiles, key=lambda t: t[0] * t[1] / (t[0] + t[1]))
    passes = -(-g.out_width // pixels)
    pixels = -(-g.out_width // passes)  # no narrow tile at the end of a row
    row = 4 * g.width * g.channels * g.strides[0]
    rows = min(g.out_height, max(1, _BAND // row))
    return DirectConv(g, epilogue, pixels, vectors * lanes, rows)


def pack_filters(filters: np.ndarray, spec: DirectConv) -> np.ndarray:
    """HWIO filters in the panels that `spec` with `packed` reads."""
    matrix = filters.reshape(-1, spec.geometry.filters)
    starts = range(0, matrix.shape[1], spec.columns)
    return np.concatenate([matrix[:, s : s + spec.columns].ravel() for s in starts])


def _lines(elements: int) -> int:
    """Whole cache lines."""
    return -(-elements // 16) * 16


class _Writer:
    """Writes one kernel."""

    def __init__(self, spec: DirectConv, team: Team) -> None:
        self.spec = spec
        self.team = team
        self.f = team.f
        self.g = spec.geometry
        self.lanes = team.target.lanes()
        self.x, self.filters, *self.rest = team.args
        self.sink = Sink(spec.epilogue, self.g.filters)
        self.tiles: dict[tuple[int, int], Function] = {}

    def write(self) -> None:
        spec, f, g = self.spec, self.f, self.g
        if spec._packs:
            self.team.after(0, self._pack)
            self.filters = self.team.scratch
        bands = -(-g.out_height // spec.rows)

        def task(i: Reg) -> None:
            image, first = f.div(i, bands), f.mul(f.rem(i, bands), spec.rows)
            count = f.minimum(spec.rows, f.sub(g.out_height, first))
            band = self._band(image, first, count)
            start = f.mul(f.add(f.mul(image, g.out_height), first), g.out_width * g.filters)
            self._sweep(band, start, count)

        self.team.after(spec.meetings, lambda: self.team.claim(0, g.batch * bands, task))

    def _pack(self) -> None:
        """Bring the filters into panels; all threads together."""
        spec, f, g = self.spec, self.f, self.g
        panels = self.team.scratch
        full = g.filters // spec.columns
        tail = g.filters % spec.columns

        def copy_row(k: Reg) -> None:
            source = f.offset(self.filters, f.mul(k, g.filters))

            def copy_panel(p: Reg) -> None:
                at = f.add(f.mul(p, spec._depth * spec.columns), f.mul(k, spec.columns))
                columns = f.offset(source, f.mul(p, spec.columns))
                _copy(f, f.offset(panels, at), columns, spec.columns, self.lanes)

            f.loop(0, full, copy_panel)
            if tail:
                start = full * spec.columns
                at = f.add(f.mul(k, tail), start * spec._depth)
                _copy(f, f.offset(panels, at), f.offset(source, start), tail, self.lanes)

        f.loop(*self.team.share(spec._depth), copy_row)

    # -- The input's band ------------------------------------------------------------------------

    def _band(self, image: Operand, first: Operand, count: Operand) -> Reg:
        """The input rows of `count` output rows from `first` on, with their padding."""
        spec, f, g = self.spec, self.f, self.g
        (top, _), (left, _) = g.pads
        picture = f.offset(self.x, f.mul(image, g.height * g.width * g.channels))
        row = f.sub(f.mul(first, g.strides[0]), top)
        if not spec._pads:
            return f.offset(picture, f.mul(row, spec._row_size))
        at = f.add(f.mul(self.team.thread, spec._band_size), spec._panels_size)
        band = f.offset(self.team.scratch, at)
        before = left * g.channels
        inside = min(g.width, spec._reach[1] - left) * g.channels
        window = (g.kernel[0] - 1) * g.dilations[0] + 1
        rows = f.add(f.mul(f.sub(count, 1), g.strides[0]), window)

        def copy_row(j: Reg) -> None:
            target = f.offset(band, f.mul(j, spec._row_size))
            y = f.add(row, j)

            def copy() -> None:
                source = f.offset(picture, f.mul(y, g.width * g.channels))
                _zero(f, target, before, self.lanes)
                _copy(f, f.offset(target, before), source, inside, self.lanes)
                rest = spec._row_size - before - inside
                _zero(f, f.offset(target, before + inside), rest, self.lanes)

            # As an unsigned number, a row above the image is far below it.
            in_image = f.icmp("ult", y, g.height)
            f.when(in_image, copy, lambda: _zero(f, target, spec._row_size, self.lanes))

        f.loop(0, rows, copy_row)
        return band

    # -- Tiles -----------------------------------------------------------------------------------

    def _sweep(self, band: Reg, start: Operand, count: Operand) -> None:
        """All filters on a band whose output starts at element `start`."""
        spec, f, g = self.spec, self.f, self.g
        full, tail = divmod(g.filters, spec.columns)

        def panel(p: Operand, columns: int) -> None:
            column = f.mul(p, spec.columns)
            weights = f.offset(self.filters, f.mul(column, spec._depth))
            f.loop(0, count, lambda r: self._row(band, weights, r, column, columns, start))

        f.loop(0, full, lambda p: panel(p, spec.columns))
        if tail:
            panel(full, tail)

    def _row(
        self, band: Reg, weights: Reg, r: Reg, column: Operand, columns: int, start: Operand
    ) -> None:
        """A panel of filters on one row."""
        spec, f, g = self.spec, self.f, self.g
        row = f.offset(band, f.mul(r, g.strides[0] * spec._row_size))
        out = f.add(f.add(start, f.mul(r, g.out_width * g.filters)), column)

        def tile(first: Operand, pixels: int) -> None:
            x = f.offset(row, f.mul(first, g.strides[1] * g.channels))
            at = f.add(out, f.mul(first, g.filters))
            f.call_function(self._tile(pixels, columns), x, weights, at, column, *self.rest)

        whole = g.out_width // spec.pixels
        f.loop(0, whole, lambda i: tile(f.mul(i, spec.pixels), spec.pixels))
        if g.out_width % spec.pixels:
            tile(whole * spec.pixels, g.out_width % spec.pixels)

    def _tile(self, pixels: int, columns: int) -> Function:
        """The function that computes `columns` filters of `pixels` neighbours."""
        if (pixels, columns) not in self.tiles:
            parameters = [PTR, PTR, I64, I64, *self.sink.parameters]
            t = self.team.helper(f"tile_{pixels}x{columns}", parameters)
            x, weights, at, column, *rest = t.parameters
            widths = _widths(columns, self.lanes)
            sums = self._sums(t, x, weights, pixels, widths)
            for v in range(len(widths)):
                known: dict[int, Reg] = {}  # operands that are the same for all pixels
                for p in range(pixels):
                    index = t.add(at, p * self.g.filters + v * self.lanes)
                    of_channel = t.add(column, v * self.lanes)
                    value = sums[p * len(widths) + v]
                    self.sink.store(t, rest, value, index, of_channel, None, known)
            self.tiles[pixels, columns] = t.finish()
        return self.tiles[pixels, columns]

    def _sums(
        self, t: Function, x: Reg, weights: Reg, pixels: int, widths: Sequence[int]
    ) -> list[Reg]:
        g = self.g
        zeros = [t.const(0.0, F32.of(w)) for _ in range(pixels) for w in widths]
        step = g.strides[1] * g.channels
        # Without holes in the window, a row of it is one run of elements.
        runs = 1 if g.dilations[1] == 1 else g.kernel[1]
        length = g.kernel[1] * g.channels // runs
        unrolled = next(u for u in (4, 3, 2, 1) if length % u == 0)

        def multiply(source: Reg, weights: Reg, sums: list[Reg]) -> list[Reg]:
            factors = [
                t.load(F32.of(w), t.offset(weights, v * self.lanes)) for v, w in enumerate(widths)
            ]
            for p in range(pixels):
                value = t.load(F32, source, p * step)
                for v, width in enumerate(widths):
                    i = p * len(widths) + v
                    sums[i] = t.fma(t.splat(value, width), factors[v], sums[i])
            return sums

        def along_run(run: Reg, i: Reg, weights: Reg, *sums: Reg) -> list[Reg]:
            found, source = list(sums), t.offset(run, i)
            for u in range(unrolled):
                found = multiply(t.offset(source, u), weights, found)
                weights = t.offset(weights, sum(widths))
            return [weights, *found]

        def along_row(row: Reg, i: Reg, *carried: Reg) -> list[Reg]:
            run = t.offset(row, t.mul(i, g.dilations[1] * g.channels))
            return t.loop(0, length, lambda j, *c: along_run(run, j, *c), carried, step=unrolled)

        def along_window(i: Reg, *carried: Reg) -> list[Reg]:
            row = t.offset(x, t.mul(i, g.dilations[0] * self.spec._row_size))
            return t.loop(0, runs, lambda j, *c: along_row(row, j, *c), carried)

        return t.loop(0, g.kernel[0], along_window, [weights, *zeros])[1:]


def _widths(count: int, lanes: int) -> list[int]:
    """Vectors that hold `count` elements: the last one may be narrower."""
    return [min(lanes, count - start) for start in range(0, count, lanes)]


def _copy(f: Function, target: Reg, source: Reg, count: int, lanes: int) -> None:
    """Copy `count` elements."""
    _in_vectors(f, count, lanes, lambda v, i: f.store(f.load(v, source, i), target, i))


def _zero(f: Function, target: Reg, count: int, lanes: int) -> None:
    _in_vectors(f, count, lanes, lambda v, i: f.store(f.const(0.0, v), target, i))


def _in_vectors(f: Function, count: int, lanes: int, body: Any) -> None:
    """body(vector type, index) for whole vectors, and once for what remains."""
    whole = count // lanes * lanes
    f.loop(0, whole, lambda i: body(F32.of(lanes), i), step=lanes)
    if count % lanes:
        body(F32.of(count % lanes), whole)
