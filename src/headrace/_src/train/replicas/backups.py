"""How many backup workers pay. In: how long each worker took for its batches. Out: the time of a
synchronous step for each number of backup workers, and the number that computes most per second.

Pure functions over the simulator of `place/replicas.py`. A worker draws the time of a batch from
its own samples, so workers that are always slow and workers that are slow at times are told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace._src.core.export import export
from headrace._src.place.replicas import ReplicaCluster, ReplicaStep, Way, simulate_replicas

__all__ = ["SyncPrediction", "choose_backups", "predict_sync"]

_BATCHES = 20_000  # of one simulation
_WORTH = 1.02  # a further backup worker has to pay this much


@export("cluster.SyncPrediction")
@dataclass(frozen=True)
class SyncPrediction:
    """What a simulation predicts for a number of backup workers.

    backups: that number. step_secs: the mean time between updates. dropped: the share of batches
    that are computed in vain. batches_per_sec: the batches that count, of all workers together.
    """

    backups: int
    step_secs: float
    dropped: float
    batches_per_sec: float


@export("cluster.predict_sync")
def predict_sync(
    times: Sequence[Sequence[float]], backups: int, overhead: float = 0.0, seed: int = 0
) -> SyncPrediction:
    """Predict synchronous training with `backups` backup workers among all workers.

    times     for each worker, how many seconds its batches took
    overhead  seconds from the last gradient of an update to the workers' next start
    """
    samples = _checked(times)
    count = len(samples)
    if not 0 <= backups < count:
        raise ValueError(f"backups must be between 0 and {count - 1}: {backups}")
    if overhead < 0:
        raise ValueError(f"overhead must not be negative: {overhead}")
    found = simulate_replicas(
        ReplicaStep(samples, update=overhead),
        ReplicaCluster(count, network=None),
        Way.SYNCHRONOUS,
        backups,
        max(100, math.ceil(_BATCHES / count)),
        seed,
    )
    return SyncPrediction(backups, 1 / found.rate, found.dropped, (count - backups) * found.rate)


@export("cluster.choose_backups")
def choose_backups(
    times: Sequence[Sequence[float]], overhead: float = 0.0, seed: int = 0
) -> SyncPrediction:
    """Return the prediction for the number of backup workers that computes the most batches per
    second. A further backup worker has to gain 2 %. The arguments are those of `predict_sync`.
    """
    best = predict_sync(times, 0, overhead, seed)
    for backups in range(1, (len(times) + 1) // 2):
        found = predict_sync(times, backups, overhead, seed)
        if found.batches_per_sec > best.batches_per_sec * _WORTH ** (backups - best.backups):
            best = found
    return best


def _checked(times: Sequence[Sequence[float]]) -> list[list[float]]:
    samples = [np.asarray(t, np.float64) for t in times]
    if not samples:
        raise ValueError("there must be at least one worker")
    for worker, found in enumerate(samples):
        if found.ndim != 1 or not found.size:
            raise ValueError(f"worker {worker} has no times: {times[worker]}")
        if not np.all(np.isfinite(found)) or np.any(found <= 0):
            raise ValueError(f"the times of worker {worker} must be positive: {times[worker]}")
    return [found.tolist() for found in samples]
