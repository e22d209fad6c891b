"""The kernels that could do one pass of a convolution. In: geometry, accuracy. Out: candidates.

Buffers go by the same names in every pass: "x" and "y" are the images (or their gradients), "w" is
the filter (or its gradient), others are temporaries. What may be chosen is bounded by `accuracy`:
"strict" never takes Winograd's algorithm, "default" only where its errors, the largest and the root
mean square, stay within four times those of direct convolution, "fast" always: there F(4x4) and
F(6x6) are within 1e-5 of the exact result (root mean square, relative). Candidates that
measurements have ruled out for a class of shapes aren't offered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from headrace._src.compile.codegen.epilogue import NOTHING, Epilogue
from headrace._src.compile.kernels.conv.conv_1x1 import Conv1x1, Conv1x1BackwardFilter
from headrace._src.compile.kernels.conv.conv_few import FewChannels
from headrace._src.compile.kernels.conv.conv_few_backward import FewChannelsBackwardFilter
from headrace._src.compile.kernels.conv.conv_general import GeneralConv
from headrace._src.compile.kernels.conv.conv_onednn import OneDnnConvolution
from headrace._src.compile.kernels.conv.direct_windows import DirectDepthwise
from headrace._src.compile.kernels.conv.winograd.winograd_backward import WinogradBackwardFilter
from headrace._src.compile.kernels.conv.winograd.winograd_filter import WinogradFilter
from headrace._src.compile.kernels.conv.winograd.winograd_forward import WinogradForward
from headrace._src.compile.kernels.conv.winograd.winograd_transform import Tile
from headrace._src.compile.kernels.images.conv_geometry import Geometry
from headrace._src.compile.kernels.images.pooling_loops import Depthwise, DepthwiseGradient
from headrace._src.compile.kernels.onednn_calls import can
from headrace._src.core.config import settings
from headrace._src.devices.target import Target, host

__all__ = ["ACCURACIES", "Candidate", "candidates", "takes_pool"]

ACCURACIES = ("strict", "default", "fast")
_BUFFERS = {
    "forward": ("x", "w", "y"),
    "backward_data": ("y", "w", "x"),
    "backward_filter": ("x", "y", "w"),
}


@dataclass(frozen=True)
class Candidate:
    """A way to do one pass: calls of specs on named buffers, the last of which gives the result.

    temporaries: bytes of buffers other than x, y and w
    x_layout, y_layout: "nhwc", or that of blocked images
    fuses: whether the last call has the epilogue that was asked for in it: its operands and outputs
        then take the place of the call's last buffer. Otherwise the epilogue is left to do.
    """

    name: str
    direction: str
    calls: tuple[tuple[Any, tuple[str, ...]], ...]
    x_layout: str
    y_layout: str
    temporaries: tuple[tuple[str, int], ...] = ()
    fuses: bool = True


def candidates(
    direction: str,
    geometry: Geometry,
    accuracy: str = "default",
    epilogue: Epilogue = NOTHING,
    pool: bool = False,
    types: Sequence[str] = ("float32",),
    plain: bool = False,
    target: Target | None = None,
    images: int | None = None,
) -> list[Candidate]:
    """All ways to do it that are worth timing, the likeliest first. There is always one, but for a
    fused max-pool.

    plain: for a depthwise convolution, that images are "nhwc" whatever their channels
    types: those in which products may be computed
    pool: with a max-pool of 2 x 2 behind the epilogue of a forward pass, in the same kernel
    target: the processor; oneDNN's kernels are for this machine's alone
    images: those that are convolved in the end, where the candidates are for a part of them
    """
    g, target = geometry, target or host()
    types = types if target == host() else ()
    _check(direction, accuracy, pool)
    if pool and (g.out_height % 2 or g.out_width % 2):
        return []
    if g.depthwise:
        layouts = ("nhwc", "nhwc") if plain else g.layouts
        if pool:
            return []
        found = _depthwise(direction, g, epilogue, layouts)
        found += _onednn(direction, g, epilogue, types, layouts)
        return found or [_general(direction, g, epilogue, layouts)]
    found: list[Candidate] = []
    if g.blocked and g.dense and g.kernel in _ACCURATE and accuracy != "strict":
        whole = replace(g, batch=images or g.batch)
        if accuracy == "fast" or _ACCURATE[g.kernel].holds(direction, whole, target):
            found += _winograds(direction, g, accuracy, epilogue, pool, target)
    if _is_1x1(g) and not pool:
        found.append(_1x1(direction, g, epilogue))
    few = g.channels < g.block and g.filters % g.block == 0 and g.dilations == (1, 1)
    if few and direction != "backward_data":
        found.append(_few(direction, g, epilogue, pool))
    if pool or (found and "bfloat16" not in types and _settled(direction, g, accuracy)):
        return found
    found += _onednn(direction, g, epilogue, types, g.layouts)
    return found or [_general(direction, g, epilogue, g.layouts)]


def takes_pool(g: Geometry) -> bool:
    """Return whether a max-pool of 2 x 2 can be fused into the convolution's kernel."""
    return bool(candidates("forward", g, settings().accuracy, pool=True))


def _check(direction: str, accuracy: str, pool: bool) -> None:
    if direction not in _BUFFERS:
        raise ValueError(f"a convolution's direction is one of {list(_BUFFERS)}, not {direction!r}")
    if accuracy not in ACCURACIES:
        raise ValueError(f"accuracy is one of {ACCURACIES}, not {accuracy!r}")
    if pool and direction != "forward":
        raise ValueError("only a forward pass can have a max-pool behind it")


def _settled(direction: str, g: Geometry, accuracy: str) -> bool:
    """Whether the kernel of ours that there is won all measurements against oneDNN's, so that a
    cold start needn't compile and time both. Left open: Winograd's algorithm with few channels or
    pixels, and the gradient of 1 x 1 filters.
    """
    if g.kernel == (1, 1):
        return direction != "backward_filter"
    if g.channels < g.block:
        return True
    least = 12 if g.kernel == (5, 5) and accuracy == "default" else 6
    return min(g.channels, g.filters) >= 2 * g.block and min(g.out_height, g.out_width) >= least


class _Accurate(NamedTuple):
    """Where the errors of Winograd's algorithm stay within four times those of direct convolution:
    if direct convolution's own sums have some length, either of `terms` (channels and taps) or, for
    the filter's gradient, of `places` (of all images). `tiles`: their results in each pass, and
    without fused multiply-adds, where every product is rounded twice; None for no such tiles.
    """

    terms: int
    places: int
    tiles: dict[str, Tile]
    unfused: dict[str, Tile]

    def tile(self, direction: str, target: Target) -> Tile | None:
        return (self.tiles if target.fma else self.unfused).get(direction)

    def holds(self, direction: str, g: Geometry, target: Target) -> bool:
        if self.tile(direction, target) is None:
            return False
        if direction == "backward_filter":
            return g.batch * g.out_height * g.out_width >= self.places
        channels = g.channels if direction == "forward" else g.filters
        return math.prod(g.kernel) * channels >= self.terms


# Half of the gradients behind a ReLU are zero: direct convolution's errors are smaller for that,
# those of Winograd's algorithm aren't. So images' gradients have smaller tiles than images.
_ACCURATE = {
    (3, 3): _Accurate(
        128,
        192,
        {"forward": 4, "backward_data": (4, 3), "backward_filter": 4},
        dict.fromkeys(_BUFFERS, 2),
    ),
    (5, 5): _Accurate(128, 512, dict.fromkeys(_BUFFERS, 2), {"forward": 2}),
}


def _winograds(
    direction: str, g: Geometry, accuracy: str, epilogue: Epilogue, pool: bool, target: Target
) -> list[Candidate]:
    """F(4x4), mostly: larger tiles mostly lose in memory what they save in products, and are less
    exact; smaller ones save less.
    """
    make = partial(_winograd, direction, g, epilogue, pool, target.l2)
    if accuracy == "default":
        tile = _ACCURATE[g.kernel].tile(direction, target)
        return [make("accurate winograd", tile, True)] if tile else []
    larger = [make("winograd 6", 6, False)] if g.kernel == (3, 3) and not pool else []
    return [make("winograd", 4, False), *larger]


def _winograd(
    direction: str,
    g: Geometry,
    epilogue: Epilogue,
    pool: bool,
    cache: int,
    name: str,
    m: Tile,
    accurate: bool,
) -> Candidate:
    r = g.kernel[0]
    if direction == "backward_filter":
        assert isinstance(m, int)
        kernel = WinogradBackwardFilter(g, m, accurate, epilogue)
        return Candidate(name, direction, ((kernel, _BUFFERS[direction]),), *g.layouts)
    backward = direction == "backward_data"
    transform = WinogradFilter(g.channels, g.filters, m, r, accurate, backward, g.block)
    shape = g.backward_data() if backward else g
    kernel = WinogradForward(shape, m, accurate, epilogue, pool, cache)
    source, _, result = _BUFFERS[direction]
    calls = ((transform, ("w", "u")), (kernel, (source, "u", result)))
    return Candidate(name, direction, calls, *g.layouts, (("u", 4 * transform.layout.size),))


def _is_1x1(g: Geometry) -> bool:
    return g.kernel == (1, 1) and g.dense and g.blocked and g.pads == ((0, 0), (0, 0))


def _1x1(direction: str, g: Geometry, epilogue: Epilogue) -> Candidate:
    kernel: Any
    if direction == "backward_filter":
        kernel = Conv1x1BackwardFilter(g, epilogue)
    elif direction == "backward_data":
        kernel = Conv1x1(g.backward_data(), epilogue, transposed=True)
    else:
        kernel = Conv1x1(g, epilogue)
    return Candidate("1x1", direction, ((kernel, _BUFFERS[direction]),), *g.layouts)


def _few(direction: str, g: Geometry, epilogue: Epilogue, pool: bool) -> Candidate:
    kernel: Any = (
        FewChannels(g, epilogue, pool)
        if direction == "forward"
        else FewChannelsBackwardFilter(g, epilogue)
    )
    return Candidate("few", direction, ((kernel, _BUFFERS[direction]),), *g.layouts)


def _depthwise(
    direction: str, g: Geometry, epilogue: Epilogue, layouts: tuple[str, str]
) -> list[Candidate]:
    """Our kernels; the filter's gradient, and gradients of plain images, are oneDNN's alone."""
    kernel: Any = None
    if layouts == ("nhwc", "nhwc"):
        kernel = DirectDepthwise(g, epilogue) if direction == "forward" else None
    elif g.channels == g.filters and g.dilations == (1, 1):
        kernels = {"forward": Depthwise, "backward_data": DepthwiseGradient}
        kernel = kernels[direction](g, epilogue) if direction in kernels else None
    calls = ((kernel, _BUFFERS[direction]),)
    return [Candidate("depthwise", direction, calls, *layouts)] if kernel is not None else []


def _general(
    direction: str, g: Geometry, epilogue: Epilogue, layouts: tuple[str, str]
) -> Candidate:
    """The kernel that can do anything, and nothing fast."""
    kernel = GeneralConv(direction, g, *layouts, epilogue)
    return Candidate("general", direction, ((kernel, _BUFFERS[direction]),), *layouts)


def _onednn(
    direction: str, g: Geometry, epilogue: Epilogue, types: Sequence[str], layouts: tuple[str, str]
) -> list[Candidate]:
    x, y = layouts
    found = []
    for dtype in types:
        spec = OneDnnConvolution(direction, g, x, y, precision=dtype)
        if can(spec):
            name = "onednn" if dtype == "float32" else f"onednn {dtype}"
            calls = ((spec, _BUFFERS[direction]),)
            plain = epilogue == NOTHING
            found.append(Candidate(name, direction, calls, x, y, fuses=plain))
    return found
