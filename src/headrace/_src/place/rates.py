"""Fit the rates of a machine to measured steps. In: what some steps do (`estimate.workload`), and
what they took. Out: seconds per unit of each kind of work, for `Roofs.rates`.

The fit is linear: a step takes the sum of its amounts of work, each times its rate. Errors count in
proportion to a step's time. Each rate is also drawn to its roof, the rate that peak and bandwidth
alone would give, so that a few steps suffice and work that none of them does keeps its roof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace._src.place.estimate import Roofs

__all__ = ["TimedSample", "fit_rates", "show_rates"]

_PULL = 0.01  # the weight of a rate's distance to its roof, against that of a step's error
_LEAST = 0.05  # of its roof: no rate is lower, because no work is free
_SWEEPS = 500


@dataclass(frozen=True)
class TimedSample:
    """A step that was measured: what it does, and its seconds."""

    name: str
    amounts: Mapping[str, float] = field(repr=False)
    seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"step {self.name} can't have taken {self.seconds} seconds")


def fit_rates(samples: Sequence[TimedSample], roofs: Roofs) -> dict[str, float]:
    """Return the rates under which the steps would take nearly what they took."""
    names = sorted({what for sample in samples for what in sample.amounts})
    if not names:
        return {}
    start = [roofs.rate(what) for what in names]
    shares = np.array(
        [
            [s.amounts.get(what, 0.0) * rate / s.seconds for what, rate in zip(names, start)]
            for s in samples
        ]
    )
    square = shares.T @ shares + _PULL * np.eye(len(names))
    wanted = shares.sum(axis=0) + _PULL
    factors = np.ones(len(names))
    for _ in range(_SWEEPS):  # one rate after the other, so that none passes its limit
        for j in range(len(names)):
            rest = square[j] @ factors - square[j, j] * factors[j]
            factors[j] = max(_LEAST, (wanted[j] - rest) / square[j, j])
    return {what: float(f) * rate for what, f, rate in zip(names, factors, start, strict=True)}


def show_rates(rates: Mapping[str, float]) -> str:
    """Return the rates as a table: units of work per second, and nanoseconds for single things."""
    width = max((len(what) for what in rates), default=0)
    lines = []
    for what, rate in sorted(rates.items()):
        each = f"{rate * 1e9:10.1f} ns each" if rate > 1e-8 else f"{1e-9 / rate:10.1f} G/s"
        lines.append(f"{what:{width}}  {each}")
    return "\n".join(lines)
