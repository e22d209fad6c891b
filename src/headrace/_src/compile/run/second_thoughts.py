"""Think over choices of kernels between real steps. In: the questions that a plan depends on, and
how long each step took. Out: whether the plan should be built again.

A first step may have run beside other load, and so may the process whose choices the cache has. So
the leading candidates of each question are timed again between steps, those first whose evidence
isn't clear, for a small share of the time that steps take. The plan is worth building again if by
clear evidence other kernels would save some share of a step; what is nearly a tie stays. After a
few visits a question rests.

Only a visit changes what to time next, so nothing is searched for after other steps: short ones
take as long as a look at all evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace._src.compile.run.choose import Question, time_again
from headrace._src.compile.run.evidence import Evidence

__all__ = ["SecondThoughts"]

_SHARE = {False: 0.04, True: 0.005}  # of the steps' time, by whether the evidence is clear
_VISIT = 0.05  # seconds that timing one question again takes, at first
_VISITS = {False: 40, True: 2}  # of one question, at most, by whether its evidence is clear
_GAIN = 0.01  # of a step: what building a plan again should save
_SETTLED = 3  # runs of a step; the first ones touch new memory


class SecondThoughts:
    """The questions of one plan.

    State: the evidence of each question, and how often it was visited; the question to time next,
    and whether its evidence is clear (None: all rest).
    """

    def __init__(
        self,
        questions: Iterable[Question],
        again: Callable[[Question], Evidence] = time_again,
    ) -> None:
        self._questions = list(questions)
        self._again = again
        self._evidence = {q.key: q.evidence for q in self._questions}
        self._visits = dict.fromkeys(self._evidence, 0)
        self._cost = _VISIT
        self._saved = 0.0  # seconds of steps since the last visit
        self._step = float("inf")  # seconds of the fastest step
        self._steps = 0
        self._following = self._next()

    def after(self, seconds: float) -> bool:
        """Return whether it is time for `visit`, after a step that took some seconds."""
        self._saved += seconds
        self._step = min(self._step, seconds)
        self._steps += 1
        if self._steps <= _SETTLED or self._following is None:
            return False
        _, clear = self._following
        return self._saved * _SHARE[clear] >= self._cost

    def visit(self, clock: Callable[[], float]) -> bool:
        """Time one question again; return whether the plan is now worth building again."""
        if self._following is None:
            return False
        question, _ = self._following
        start = clock()
        self._evidence[question.key] = self._again(question)
        self._visits[question.key] += 1
        self._following = self._next()
        self._cost, self._saved = clock() - start, 0.0
        return self.gain() >= _GAIN * self._step

    def gain(self) -> float:
        """Return the seconds that a step loses, by clear evidence, to the kernels that it has."""
        found = ((q, self._evidence[q.key]) for q in self._questions)
        return sum(e.loss(q.chosen) for q, e in found if e.is_clear)

    @property
    def is_done(self) -> bool:
        """Whether all questions rest."""
        return self._following is None

    def _next(self) -> tuple[Question, bool] | None:
        """The question to time next: one that isn't clear, then the one that was seen least, then
        the one about the longest work; and whether it is clear.
        """
        waiting = []
        for i, question in enumerate(self._questions):
            evidence, visits = self._evidence[question.key], self._visits[question.key]
            clear = evidence.is_clear
            if visits < _VISITS[clear]:
                longest = -evidence.seconds.get(question.chosen, 0.0)
                waiting.append((clear, visits, longest, i))
        if not waiting:
            return None
        clear, *_, i = min(waiting)
        return self._questions[i], clear
