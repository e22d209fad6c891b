"""Ops and functions that sample candidate classes and detect accidental hits.

Each sampler takes the true classes of a batch, [batch, num_true], and returns (candidates, expected
counts of the true classes, expected counts of the candidates). `candidates` does the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace._src.core.export import export
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.resumable import Resumable
from headrace._src.devices.room import check_room
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.nn import candidate_kernels
from headrace._src.ops.nn.candidate_kernels import Distribution
from headrace._src.ops.random.philox import PhiloxState
from headrace._src.ops.random.random_functions import get_seed

__all__ = [
    "all_candidate_sampler",
    "compute_accidental_hits",
    "fixed_unigram_candidate_sampler",
    "learned_unigram_candidate_sampler",
    "log_uniform_candidate_sampler",
    "uniform_candidate_sampler",
]

_SIGNATURE = (
    "true_classes: int64 -> sampled_candidates: int64, true_expected_count: float32, "
    "sampled_expected_count: float32"
)
_COUNTS = "num_true: int >= 1; num_sampled: int >= 1; unique: bool"
_SEEDS = "seed: int = 0; seed2: int = 0"
_RANGED = f"{_COUNTS}; range_max: int >= 1; {_SEEDS}"
_TRUE = [[1], [2]]


def _infer(c: Any, true_classes: TensorShape) -> list[Any]:
    (batch, _) = infer.with_rank(true_classes, 2).as_list()
    drawn = TensorShape([c.attrs["num_sampled"]])
    return [drawn, (batch, c.attrs["num_true"]), drawn]


def _check(true_classes: np.ndarray, num_true: int) -> None:
    if true_classes.ndim != 2:
        raise ValueError("true_classes must be a matrix")
    if true_classes.shape[1] != num_true:
        raise ValueError(
            f"true_classes must have num_true columns, expected: {true_classes.shape[1]} was: "
            f"{num_true}"
        )


def _outcome(
    ctx: Any,
    distribution: Distribution,
    true_classes: np.ndarray,
    given: tuple[int, int, bool],
    seeds: tuple[int, int],
) -> Any:
    num_true, num_sampled, unique = given
    _check(true_classes, num_true)
    check_room([num_sampled], np.int64, "num_sampled")
    state = ctx.state(PhiloxState, lambda: PhiloxState(*seeds))
    return candidate_kernels.outcome(state, distribution, true_classes, num_sampled, unique)


# -- Samplers of a range ---------------------------------------------------------------------------


def _ranged(op_type: str, distribution: Any) -> Any:
    """Define a sampler over the classes below range_max."""

    def kernel(true_classes, *, num_true, num_sampled, unique, range_max, seed, seed2, ctx):
        given = num_true, num_sampled, unique
        return _outcome(ctx, distribution(range_max), true_classes, given, (seed, seed2))

    return define(
        op_type,
        _SIGNATURE,
        _RANGED,
        infer=_infer,
        kernel=kernel,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.RANDOM,
        samples=[
            Sample(_TRUE, num_true=1, num_sampled=3, unique=True, range_max=5, seed=1),
            Sample(_TRUE, num_true=1, num_sampled=7, unique=False, range_max=5),
        ],
    )


@_ranged("UniformCandidateSampler", candidate_kernels.uniform)
def uniform_candidate_sampler_op(
    true_classes, num_true, num_sampled, unique, range_max, seed=0, seed2=0, name=None
):
    """Return classes below range_max, all equally likely."""


@_ranged("LogUniformCandidateSampler", candidate_kernels.log_uniform)
def log_uniform_candidate_sampler_op(
    true_classes, num_true, num_sampled, unique, range_max, seed=0, seed2=0, name=None
):
    """Return classes below range_max; lower ones are more likely, like words sorted by
    frequency.
    """


def _all(true_classes, *, num_true, num_sampled, unique, seed, seed2):
    _check(true_classes, num_true)
    check_room([num_sampled], np.int64, "num_sampled")
    drawn = np.arange(num_sampled, dtype=np.int64)
    return drawn, np.ones(true_classes.shape, np.float32), np.ones(num_sampled, np.float32)


@define(
    "AllCandidateSampler",
    _SIGNATURE,
    f"{_COUNTS}; {_SEEDS}",
    infer=_infer,
    kernel=_all,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    samples=[Sample(_TRUE, num_true=1, num_sampled=3, unique=True)],
)
def all_candidate_sampler_op(
    true_classes, num_true, num_sampled, unique, seed=0, seed2=0, name=None
):
    """Return all classes from 0 to num_sampled - 1."""


# -- Samplers of unigrams --------------------------------------------------------------------------


class _Learned(Resumable):
    """Counts of how often each class was a true one, plus one. A lock guards it: steps share it."""

    def __init__(self, size: int, seeds: tuple[int, int]) -> None:
        check_room([size], np.int64, "range_max")
        self.lock = Lock()
        self.weights = np.ones(size, np.int64)
        self.random = PhiloxState(*seeds)

    def saved(self) -> dict[str, np.ndarray]:
        with self.lock:
            return self.random.saved() | {"weights": self.weights.copy()}

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        if saved["weights"].shape != self.weights.shape:
            raise ValueError(
                f"{len(saved['weights'])} classes were saved, the sampler has {len(self.weights)}"
            )
        with self.lock:
            self.random.resume(saved)
            self.weights = saved["weights"].copy()


def _learned(true_classes, *, num_true, num_sampled, unique, range_max, seed, seed2, ctx):
    _check(true_classes, num_true)
    if true_classes.size and not 0 <= true_classes.min() <= true_classes.max() < range_max:
        raise ValueError(f"true classes must be in [0, {range_max}), got {true_classes.tolist()}")
    learned = ctx.state(_Learned, lambda: _Learned(range_max, (seed, seed2)))
    with learned.lock:
        distribution = candidate_kernels.weighed(learned.weights)
        found = candidate_kernels.outcome(
            learned.random, distribution, true_classes, num_sampled, unique
        )
        np.add.at(learned.weights, true_classes.reshape(-1), 1)
    return found


def _learning(op_type: str) -> Any:
    return define(
        op_type,
        _SIGNATURE,
        _RANGED,
        infer=_infer,
        kernel=_learned,
        gradient=NOT_DIFFERENTIABLE,
        effect=Effect.RANDOM,
        samples=[Sample(_TRUE, num_true=1, num_sampled=3, unique=True, range_max=5, seed=1)],
    )


@_learning("LearnedUnigramCandidateSampler")
def learned_unigram_candidate_sampler_op(
    true_classes, num_true, num_sampled, unique, range_max, seed=0, seed2=0, name=None
):
    """Return classes with probabilities proportional to how often they were true in
    earlier steps.
    """


@_learning("ThreadUnsafeUnigramCandidateSampler")
def thread_unsafe_unigram_candidate_sampler_op(
    true_classes, num_true, num_sampled, unique, range_max, seed=0, seed2=0, name=None
):
    """As LearnedUnigramCandidateSampler."""


class _Fixed(Resumable):
    """The distribution that the attributes describe, built once, and a generator."""

    def __init__(self, distribution: Distribution, seeds: tuple[int, int]) -> None:
        self.distribution = distribution
        self.random = PhiloxState(*seeds)

    def saved(self) -> dict[str, np.ndarray]:
        return self.random.saved()

    def resume(self, saved: Mapping[str, np.ndarray]) -> None:
        self.random.resume(saved)


def _fixed_distribution(
    range_max: int,
    vocab_file: Any,
    distortion: float,
    num_reserved_ids: int,
    num_shards: int,
    shard: int,
    unigrams: Any,
) -> Distribution:
    vocab_file = vocab_file.decode() if isinstance(vocab_file, bytes) else vocab_file
    if bool(vocab_file) == bool(len(unigrams)):
        raise ValueError("Must provide either vocab_file or unigrams, but not both.")
    if shard >= num_shards:
        raise ValueError(f"shard must be less than num_shards: {shard} of {num_shards}")
    check_room([num_reserved_ids], np.float64, "num_reserved_ids")
    counts = np.asarray(_counts_of(vocab_file) if vocab_file else unigrams, np.float32)
    weights = np.concatenate([np.zeros(num_reserved_ids, np.float32), counts**distortion])
    weights = weights[shard::num_shards].astype(np.float32)
    if len(weights) != range_max:
        raise ValueError(f"range_max is {range_max}, but there are {len(weights)} classes")
    if not (weights >= 0).all() or not weights.any() or not np.isfinite(weights).all():
        raise ValueError("unigrams must be finite and not negative, and one of them positive")
    return candidate_kernels.fixed(weights.tolist())


def _counts_of(path: str) -> list[float]:
    """Return the last column of each line of a comma-separated file."""
    with open(path, encoding="utf-8") as lines:
        rows = [line.rstrip("\n").rsplit(",", 1)[-1] for line in lines if line.strip()]
    try:
        return [float(row) for row in rows]
    except ValueError as error:
        raise ValueError(f"{path}: the last column must be a count: {error}") from None


def _fixed(
    true_classes,
    *,
    num_true,
    num_sampled,
    unique,
    range_max,
    vocab_file,
    distortion,
    num_reserved_ids,
    num_shards,
    shard,
    unigrams,
    seed,
    seed2,
    ctx,
):
    options = range_max, vocab_file, distortion, num_reserved_ids, num_shards, shard, unigrams
    kept = ctx.state(_Fixed, lambda: _Fixed(_fixed_distribution(*options), (seed, seed2)))
    _check(true_classes, num_true)
    return candidate_kernels.outcome(
        kept.random, kept.distribution, true_classes, num_sampled, unique
    )


@define(
    "FixedUnigramCandidateSampler",
    _SIGNATURE,
    f"{_COUNTS}; range_max: int >= 1; vocab_file: string = ''; distortion: float = 1.0; "
    "num_reserved_ids: int = 0; num_shards: int >= 1 = 1; shard: int >= 0 = 0; "
    f"unigrams: list(float) = []; {_SEEDS}",
    infer=_infer,
    kernel=_fixed,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    samples=[
        Sample(_TRUE, num_true=1, num_sampled=2, unique=True, range_max=3, unigrams=[1.0, 2.0, 3.0])
    ],
)
def fixed_unigram_candidate_sampler_op(
    true_classes,
    num_true,
    num_sampled,
    unique,
    range_max,
    vocab_file="",
    distortion=1.0,
    num_reserved_ids=0,
    num_shards=1,
    shard=0,
    unigrams=(),
    seed=0,
    seed2=0,
    name=None,
):
    """Return classes with probabilities proportional to given counts to the power of
    `distortion`.
    """


# -- Accidental hits -------------------------------------------------------------------------------

_LOWEST = np.finfo(np.float32).min


def _hits(true_classes, sampled_candidates, *, num_true, seed, seed2):
    _check(true_classes, num_true)
    if sampled_candidates.ndim != 1:
        raise ValueError("sampled_candidates must be a vector")
    # If a candidate was drawn more than once, its last position counts.
    places = candidate_kernels.last_places(sampled_candidates, true_classes.reshape(-1))
    hit = np.flatnonzero(places >= 0)
    weights = np.full(len(hit), _LOWEST, np.float32)
    return (hit // num_true).astype(np.int32), places[hit], weights


def _hits_infer(c: Any, true_classes: TensorShape, sampled: TensorShape) -> list[Any]:
    infer.with_rank(true_classes, 2).merge_with([None, c.attrs["num_true"]])
    infer.with_rank(sampled, 1)
    return [TensorShape([None])] * 3


@define(
    "ComputeAccidentalHits",
    "true_classes: int64, sampled_candidates: int64 -> indices: int32, ids: int64, "
    "weights: float32",
    f"num_true: int; {_SEEDS}",
    infer=_hits_infer,
    kernel=_hits,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample([[1, 2], [2, 5]], [2, 5, 2], num_true=2), Sample([[1]], [3], num_true=1)],
)
def compute_accidental_hits_op(
    true_classes, sampled_candidates, num_true, seed=0, seed2=0, name=None
):
    """Return (row, position, -FLT_MAX) for each candidate that is one of a row's true classes."""


# -- Public functions ------------------------------------------------------------------------------


@composed
@export("nn.uniform_candidate_sampler", "random.uniform_candidate_sampler")
def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes below range_max, all equally likely, and expected counts.

    true_classes: int64 [batch_size, num_true]. num_sampled: how many classes to draw. unique:
    whether they must all be different.
    """
    given = true_classes, num_true, num_sampled, unique, range_max
    return uniform_candidate_sampler_op(*given, *get_seed(seed), name=name)


@composed
@export("nn.log_uniform_candidate_sampler", "random.log_uniform_candidate_sampler")
def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes below range_max, lower ones more likely (Zipf), and expected counts.

    true_classes: int64 [batch_size, num_true]. num_sampled: how many classes to draw. unique:
    whether they must all be different.
    """
    given = true_classes, num_true, num_sampled, unique, range_max
    return log_uniform_candidate_sampler_op(*given, *get_seed(seed), name=name)


@composed
@export("nn.learned_unigram_candidate_sampler", "random.learned_unigram_candidate_sampler")
def learned_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes, likelier the more often they were true in earlier steps, and
    expected counts.

    true_classes: int64 [batch_size, num_true]. num_sampled: how many classes to draw. unique:
    whether they must all be different. range_max: the number of classes.
    """
    given = true_classes, num_true, num_sampled, unique, range_max
    return learned_unigram_candidate_sampler_op(*given, *get_seed(seed), name=name)


@composed
@export("nn.fixed_unigram_candidate_sampler", "random.fixed_unigram_candidate_sampler")
def fixed_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    vocab_file: str = "",
    distortion: float = 1.0,
    num_reserved_ids: int = 0,
    num_shards: int = 1,
    shard: int = 0,
    unigrams: Any = (),
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes with probabilities proportional to counts to the power of `distortion`, and
    expected counts. The counts are `unigrams`, or the last column of the file `vocab_file`.

    num_reserved_ids: this many first ids have probability 0. num_shards, shard: draw only from
    every num_shards-th class, starting at class `shard`.
    """
    return fixed_unigram_candidate_sampler_op(
        true_classes,
        num_true,
        num_sampled,
        unique,
        range_max,
        vocab_file,
        distortion,
        num_reserved_ids,
        num_shards,
        shard,
        list(unigrams),
        *get_seed(seed),
        name=name,
    )


@composed
@export("nn.all_candidate_sampler", "random.all_candidate_sampler")
def all_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return all classes from 0 to num_sampled - 1, and expected counts of 1.

    true_classes: int64 [batch_size, num_true]. unique has no effect.
    """
    given = true_classes, num_true, num_sampled, unique
    return all_candidate_sampler_op(*given, *get_seed(seed), name=name)


@composed
@export("nn.compute_accidental_hits")
def compute_accidental_hits(
    true_classes: Any,
    sampled_candidates: Any,
    num_true: int,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (rows, positions among the candidates, weights of -FLT_MAX) of the candidates that are
    also true classes.

    true_classes: int64 [batch_size, num_true]. sampled_candidates: the first result of a candidate
    sampler.
    """
    given = true_classes, sampled_candidates, num_true
    return compute_accidental_hits_op(*given, *get_seed(seed), name=name)
