"""Anchors: the geometry of ops that have kernels of their own in the compiler.

In: a `Site`. Out: a frozen, hashable description with everything that a kernel needs to know but
its data, or None where this use is better left to the op's own kernel (nothing to compute, a type
or a corner that isn't worth machine code). `operands` are the numbers of the op's inputs that a
kernel reads; all others are in the description. Arrays are row-major, sizes are ints.

16-bit floats: sums are taken in float32 and rounded once, unless said otherwise.
Anchors that take or change rows by their numbers are in `lowering.row_anchors`, those of
convolutions and poolings in `lowering.window_anchors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.pointwise import FLOATS
from headrace._src.lowering.rules import COMPILED, Anchor, Site

if TYPE_CHECKING:
    from headrace._src.graph.dataflow import Node

__all__ = [
    "Advance",
    "BatchNorm",
    "Contraction",
    "CrossEntropy",
    "Divisor",
    "LocalResponse",
    "Largest",
    "Random",
    "Scan",
    "Softmax",
    "SparseCrossEntropy",
    "contraction_of",
]


# ---- Products of matrices -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contraction(AnchorGeometry):
    """product[b] = op(x[b]) op(y[b]): matrices [m, k] and [k, n], stored transposed as [k, m] and
    [n, k] if said so. `batch` is the product's; x and y are broadcast to it from their own batch
    shapes. `precision`: the narrower type, if any, in which elements of x and y can be held without
    loss, but for an operand that is to be rounded to it first: `rounds_x`, `rounds_y`.
    """

    x_batch: tuple[int, ...]
    y_batch: tuple[int, ...]
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    transpose_x: bool
    transpose_y: bool
    dtype: str
    precision: str = ""
    rounds_x: bool = False
    rounds_y: bool = False

    operands: ClassVar[tuple[int, ...]] = (0, 1)
    fuses: ClassVar[bool] = True
    fills_parts: ClassVar[bool] = True


def contraction(site: Site) -> Contraction | None:
    """MatMul, BatchMatMul, BatchMatMulV2."""
    x, y = site.input_shapes
    dtype = site.output_dtypes[0]
    if dtype not in FLOATS or not prod(x) or not prod(y):
        return None
    attrs = site.attrs
    transpose_x = attrs["transpose_a"] if "transpose_a" in attrs else attrs["adj_x"]
    transpose_y = attrs["transpose_b"] if "transpose_b" in attrs else attrs["adj_y"]
    *batch, m, n = site.output_shapes[0]
    k = x[-2] if transpose_x else x[-1]
    return Contraction(x[:-2], y[:-2], tuple(batch), m, n, k, transpose_x, transpose_y, dtype)


def contraction_of(node: Node) -> Contraction | None:
    """The geometry of a matrix product; None for other nodes."""
    rule = node.definition.lower
    return node.geometry if isinstance(rule, Anchor) and rule.family == "contraction" else None


# ---- Rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Softmax(AnchorGeometry):
    """exp(x - max) / sum of that, per row; if `log`, x - max - log(sum)."""

    rows: int
    classes: int
    log: bool
    dtype: str

    operands: ClassVar[tuple[int, ...]] = (0,)


def softmax(site: Site) -> Softmax | None:
    return _softmax(site, log=False)


def log_softmax(site: Site) -> Softmax | None:
    return _softmax(site, log=True)


def _softmax(site: Site, log: bool) -> Softmax | None:
    *rows, classes = site.input_shapes[0]
    if not prod(rows) or not classes:
        return None
    return Softmax(prod(rows), classes, log, site.input_dtypes[0])


@dataclass(frozen=True, slots=True)
class CrossEntropy(AnchorGeometry):
    """Of logits and labels [rows, classes]: loss[r] = sum of labels * (log(sum of exp(x - max)) -
    (x - max)) and backprop = softmax - labels.
    """

    rows: int
    classes: int
    dtype: str

    operands: ClassVar[tuple[int, ...]] = (0, 1)
    fuses: ClassVar[bool] = True
    result: ClassVar[int] = 1  # the gradient


def cross_entropy(site: Site) -> CrossEntropy | None:
    features, labels = site.input_shapes
    if features != labels or not prod(features):
        return None
    rows, classes = features
    return CrossEntropy(rows, classes, site.input_dtypes[0])


@dataclass(frozen=True, slots=True)
class SparseCrossEntropy(AnchorGeometry):
    """CrossEntropy where labels[r] is the only class of row r; it's checked to be in range."""

    rows: int
    classes: int
    dtype: str
    label_dtype: str

    operands: ClassVar[tuple[int, ...]] = (0, 1)
    fuses: ClassVar[bool] = True
    result: ClassVar[int] = 1  # the gradient

    @property
    def limits(self) -> tuple[tuple[int, int], ...]:
        return ((1, self.classes),)


def sparse_cross_entropy(site: Site) -> SparseCrossEntropy | None:
    rows, classes = site.input_shapes[0]
    dtype, label_dtype = site.input_dtypes
    return SparseCrossEntropy(rows, classes, dtype, label_dtype) if rows and classes else None


@dataclass(frozen=True, slots=True)
class LocalResponse(AnchorGeometry):
    """x * (bias + alpha * sum of x² over the channels within `radius`) ** -beta, over the last axis
    of [rows, channels]; "gradient": of dy, x and y.
    """

    direction: str
    rows: int
    channels: int
    radius: int
    bias: float
    alpha: float
    beta: float
    dtype: str

    @property
    def operands(self) -> tuple[int, ...]:
        return (0,) if self.direction == "forward" else (0, 1, 2)


def local_response(site: Site) -> LocalResponse | None:
    *rows, channels = site.input_shapes[0]
    if not prod(rows) or not channels:
        return None
    attrs = site.attrs
    return LocalResponse(
        "forward" if len(site.input_shapes) == 1 else "gradient",
        prod(rows),
        channels,
        attrs["depth_radius"],
        attrs["bias"],
        attrs["alpha"],
        attrs["beta"],
        site.input_dtypes[0],
    )


# ---- Batch normalisation ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchNorm(AnchorGeometry):
    """(x - mean) * scale / sqrt(variance + epsilon) + offset, per channel of [n, pixels, c] or, for
    NCHW, [n, c, pixels]; statistics are float32.

    "forward" gives y, mean, variance, mean, variance (and a 0 in version 3). In training the
    moments are those of x, and of the two variances the first is the unbiased one; else they are
    inputs 3 and 4. "gradient", from dy, x, scale, mean and (biased) variance: dx, dscale, doffset
    and two scalar zeros; in training x's moments depend on x.
    """

    direction: str
    training: bool
    n: int
    pixels: int
    c: int
    epsilon: float
    data_format: str
    dtype: str
    outputs: int

    fuses: ClassVar[bool] = True

    def blocked_inputs(self, block: int) -> tuple[int, ...] | None:
        return (0,) if self.data_format == "NHWC" else None

    @property
    def operands(self) -> tuple[int, ...]:
        moments = self.direction == "gradient" or not self.training
        return (0, 1, 2, 3, 4) if moments else (0, 1, 2)


def batch_norm(site: Site) -> BatchNorm | None:
    return _batch_norm(site, "forward")


def batch_norm_gradient(site: Site) -> BatchNorm | None:
    return _batch_norm(site, "gradient")


def _batch_norm(site: Site, direction: str) -> BatchNorm | None:
    shape, attrs = site.input_shapes[0], site.attrs
    if not prod(shape):
        return None
    n, *rest = shape
    channel = 0 if attrs["data_format"] == "NCHW" else 2
    c = rest.pop(channel)
    return BatchNorm(
        direction,
        attrs["is_training"],
        n,
        prod(rest),
        c,
        attrs["epsilon"],
        attrs["data_format"],
        site.input_dtypes[0],
        len(site.output_dtypes),
    )


# ---- Running sums -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan(AnchorGeometry):
    """Running "sum" or "prod" along the middle axis of [outer, length, inner]; if `exclusive`
    without an element's own value, if `reverse` from the end. 16-bit floats are summed in float32
    and every result is rounded once.
    """

    combine: str
    outer: int
    length: int
    inner: int
    exclusive: bool
    reverse: bool
    dtype: str

    operands: ClassVar[tuple[int, ...]] = (0,)


def running_sum(site: Site) -> Scan | None:
    return _scan(site, "sum")


def running_product(site: Site) -> Scan | None:
    return _scan(site, "prod")


def _scan(site: Site, combine: str) -> Scan | None:
    axis, shape = site.constant_input(1), site.input_shapes[0]
    dtype = site.input_dtypes[0]
    if axis is None or dtype not in COMPILED or not prod(shape):
        return None
    at = int(axis) % len(shape)
    sizes = prod(shape[:at]), shape[at], prod(shape[at + 1 :])
    return Scan(combine, *sizes, site.attrs["exclusive"], site.attrs["reverse"], dtype)


@dataclass(frozen=True, slots=True)
class Largest(AnchorGeometry):
    """The k largest of each of `rows` rows of `length` elements, in descending order, and their
    places as int32: of equal ones the first comes first, and a NaN is larger than any number.
    """

    rows: int
    length: int
    k: int
    dtype: str

    operands: ClassVar[tuple[int, ...]] = (0,)


def largest(site: Site) -> Largest | None:
    """TopKV2, and TopK, whose number of elements is an attribute."""
    known = site.attrs.get("k")
    k = site.constant_input(1) if known is None else known
    shape, dtype = site.input_shapes[0], site.input_dtypes[0]
    if k is None or not int(k) or dtype not in COMPILED or not prod(shape):
        return None
    return Largest(prod(shape[:-1]), shape[-1], int(k), dtype)


# ---- Random numbers -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Random(AnchorGeometry):
    """`count` numbers, "uniform" in [0, 1), "normal", "truncated" (normal within (-2, 2)), or
    "integer", from bounds[0] to below bounds[1].

    They are the numbers of ops.random.philox: four 32-bit words (or two pairs, for 8-byte types)
    per sample of Philox 4x32-10 at key and 128-bit counter. Where these start, `source` says:

    "own": the op has its generator (made of `seeds`) as its state between steps. Every run reserves
    256 * count samples of it, which isn't for a kernel to do; see ops.base.internal.
    "stream": input 0 is the key and the halves of the counter, the lower one first, as uint64.
    "seed": input 1 is two integers, encrypted to a stream by ops.random.philox.stateless_stream.

    Group g of 4 (8-byte types: 2) outputs takes the sample at counter + g; of truncated numbers,
    the samples from counter + 256 * g (float64: 128 * g) on, and fills itself with the first that
    lie inside. Normal numbers come by Box-Muller in pairs, r sin t and r cos t; every step is
    rounded to float32 (or float64), the angle from the float64 product with 2 pi; log, sin and cos
    from float64.
    """

    distribution: str
    count: int
    dtype: str
    source: str
    seeds: tuple[int, int] = (0, 0)
    bounds: tuple[int, int] | None = None

    @property
    def operands(self) -> tuple[int, ...]:
        return {"own": (), "stream": (0,), "seed": (1,)}[self.source]


@dataclass(frozen=True, slots=True)
class Divisor(AnchorGeometry):
    """Integers of input 0, of which none may be 0."""

    count: int
    dtype: str

    @property
    def operands(self) -> tuple[int, ...]:
        return (0,)

    @staticmethod
    def of(site: Site) -> Divisor:
        return Divisor(prod(site.input_shapes[0]), site.input_dtypes[0])


@dataclass(frozen=True, slots=True)
class Advance(AnchorGeometry):
    """Give the stream of a generator, input 0, and move it on by 256 * count samples."""

    count: int

    @property
    def operands(self) -> tuple[int, ...]:
        return ()


def random(site: Site, distribution: str) -> Random | None:
    """RandomUniform and its kin; the stateless ones have a seed as input 1."""
    return _random(site, distribution, None)


def random_integers(site: Site) -> Random | None:
    """RandomUniformInt and the stateless one, whose last two inputs are the bounds."""
    found = [site.constant_input(len(site.input_shapes) - i) for i in (2, 1)]
    low, high = (None if b is None or b.ndim else int(b) for b in found)
    if low is None or high is None or low >= high:
        return None
    return _random(site, "integer", (low, high))


def _random(site: Site, distribution: str, bounds: tuple[int, int] | None) -> Random | None:
    count = prod(site.output_shapes[0])
    if not count:
        return None
    attrs, dtype = site.attrs, site.output_dtypes[0]
    if "seed" not in attrs:
        return Random(distribution, count, dtype, "seed", bounds=bounds)
    seeds = attrs["seed"], attrs["seed2"]
    return Random(distribution, count, dtype, "own", seeds, bounds)


def random_of_stream(site: Site) -> Random:
    """What ops.base.internal makes of an op with a generator of its own."""
    attrs, count = site.attrs, prod(site.output_shapes[0])
    dtype = site.output_dtypes[0]
    return Random(attrs["distribution"], count, dtype, "stream", bounds=attrs["bounds"])
