"""Timers for hooks, which trigger every n seconds or every n steps.

State: the step and the time of the last action. Before the first one, a timer always triggers.
"""

from __future__ import annotations

import time

from headrace._src.core.export import export

__all__ = ["NeverTimer", "SecondOrStepTimer", "Timer"]


class Timer:
    """The base class of timers."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the last action."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether to act at a step."""
        raise NotImplementedError

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Record an action at a step; return the seconds and steps since the last one, or Nones."""
        now = time.monotonic()
        if self._last_step is None:
            elapsed = None, None
        else:
            elapsed = now - self._last_time, step - self._last_step
        self._last_step, self._last_time = step, now
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step of the last action, None if there was none."""
        return self._last_step


@export("train.SecondOrStepTimer", "estimator.SecondOrStepTimer")
class SecondOrStepTimer(Timer):
    """Triggers every `every_secs` seconds or `every_steps` steps, and never twice at a step."""

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None) -> None:
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        super().__init__()

    def should_trigger_for_step(self, step: int) -> bool:
        if self._last_step is None:
            return True
        if self._last_step == step:
            return False
        if self._every_secs is not None:
            return time.monotonic() >= self._last_time + self._every_secs
        assert self._every_steps is not None
        return bool(step >= self._last_step + self._every_steps)


class NeverTimer(Timer):
    """Never triggers."""

    def should_trigger_for_step(self, step: int) -> bool:
        return False

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        return None, None
