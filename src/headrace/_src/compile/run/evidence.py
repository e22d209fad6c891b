"""Decide between ways to do the same work by their timings. In: samples. Out: the fastest way, and
whether that is clear.

Pure: nothing here runs or waits, so that tests can inject any noise. Other load only ever adds to a
time. So the fastest sample of a way, its minimum, is what counts, and it is a bound from above: a
way is clearly slower than the best one if its own minimum can be believed. A minimum can be
believed if samples agree on it: two that were undisturbed, or more where none was, which happens
only beside a steady load. Ways that differ by less than a few percent are a tie, and either is
right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Evidence", "TimedRun", "gather"]

_VERSION = 2  # of the form in which evidence is stored
_AGREE = 1.03  # factor within which samples agree, and ways are a tie
_UNDISTURBED, _DISTURBED = 2, 5  # samples that have to agree
_KEPT = 6  # samples of a way: its fastest ones
_LEADING = 1.5  # factor of the best time beyond which a way is far behind


class TimedRun(NamedTuple):
    """One run of a way; `alone`: no other process used its processors meanwhile."""

    seconds: float
    alone: bool


@dataclass(frozen=True)
class Evidence:
    """The fastest samples of each way, in order, and how often each has run."""

    samples: Mapping[str, tuple[TimedRun, ...]]
    rounds: Mapping[str, int]

    @staticmethod
    def none(names: Iterable[str]) -> Evidence:
        names = list(names)
        return Evidence(dict.fromkeys(names, ()), dict.fromkeys(names, 0))

    def plus(self, name: str, sample: TimedRun) -> Evidence:
        """Return the evidence with one more sample."""
        best = tuple(sorted((*self.samples[name], sample))[:_KEPT])
        # An undisturbed sample says more than a faster one beside other load.
        if not any(s.alone for s in best) and sample.alone:
            best = (*best[:-1], sample)
        return Evidence({**self.samples, name: best}, {**self.rounds, name: self.rounds[name] + 1})

    @property
    def seconds(self) -> dict[str, float]:
        """The minimum of each way that has run."""
        return {name: s[0].seconds for name, s in self.samples.items() if s}

    @property
    def best(self) -> str:
        """The fastest way; of equally fast ones, the one that was named first."""
        found = self.seconds
        return min(self.samples, key=lambda name: found.get(name, float("inf")))

    @property
    def leading(self) -> list[str]:
        """The ways that may be the fastest, the best first: all but those that are known to be far
        behind. One that was only ever disturbed may look so.
        """
        found, best = self.seconds, self.best
        near = [n for n in self.samples if n != best and not self._is_far_behind(n)]
        return [best, *near] if near else sorted(found, key=lambda n: found[n])[:2]

    def is_believable(self, name: str) -> bool:
        """Return whether samples agree on a way's minimum."""
        samples = self.samples[name]
        if not samples:
            return False
        limit = _AGREE * samples[0].seconds
        agreeing = [s for s in samples if s.seconds <= limit]
        return sum(s.alone for s in agreeing) >= _UNDISTURBED or len(agreeing) >= _DISTURBED

    def _is_far_behind(self, name: str) -> bool:
        """Return whether a way is so slow that its minimum need not be known exactly."""
        samples, best = self.samples[name], self.samples[self.best]
        enough = any(s.alone for s in samples)
        if not any(s.alone for s in best):  # beside a steady load, they are compared alike
            enough = enough or len(samples) >= _DISTURBED
        return enough and samples[0].seconds > _LEADING * best[0].seconds

    @property
    def is_clear(self) -> bool:
        """Return whether further samples would hardly change the choice."""
        if not all(self.rounds.values()):
            return False
        found, best = self.seconds, self.best
        others = [n for n in found if n != best and not self._is_far_behind(n)]
        if any(not self.is_believable(n) for n in others):
            return False
        tied = any(found[n] <= _AGREE * found[best] for n in others)
        return not tied or self.is_believable(best)

    def loss(self, name: str) -> float:
        """Return how many seconds a run loses by taking a way instead of the best one."""
        found = self.seconds
        return found[name] - found[self.best]

    # -- Storing ---------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Return what a cache can keep."""
        return {
            "version": _VERSION,
            "ways": {
                name: {"rounds": self.rounds[name], "samples": [[*s] for s in samples]}
                for name, samples in self.samples.items()
            },
        }

    @staticmethod
    def from_json(stored: Any, names: Iterable[str]) -> Evidence | None:
        """Return the evidence that was stored about these ways; None if there is none."""
        try:
            if stored["version"] != _VERSION or set(stored["ways"]) != set(names):
                return None
            ways = {name: stored["ways"][name] for name in names}
            samples = {n: tuple(TimedRun(*s) for s in w["samples"]) for n, w in ways.items()}
            found = Evidence(samples, {n: w["rounds"] for n, w in ways.items()})
        except (TypeError, KeyError, ValueError):
            return None
        return found if all(found.samples.values()) else None


def gather(
    evidence: Evidence,
    names: Sequence[str],
    time: Callable[[str], TimedRun],
    now: Callable[[], float],
    least: int,
    enough: float,
    patience: float,
) -> Evidence:
    """Run the ways in turn until it is clear which is the fastest; which of them begins alternates.

    least: rounds in any case
    enough: seconds for short ways, whose times vary most, though it is clear
    patience: seconds after which it ends in any case
    """
    began, number = now(), 0
    while True:
        if number >= least:
            passed = now() - began
            if passed > patience or (passed > enough and evidence.is_clear):
                return evidence
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            evidence = evidence.plus(name, time(name))
        number += 1
