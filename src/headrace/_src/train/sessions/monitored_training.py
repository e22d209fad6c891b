"""MonitoredTrainingSession: a monitored session with the hooks that most training needs. In: the
directories and intervals of checkpoints and summaries. Out: a MonitoredSession, for the chief or a
worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._src.core.export import export
from headrace._src.train.sessions.hooks.counting import StepCounterHook
from headrace._src.train.sessions.hooks.saving import CheckpointSaverHook
from headrace._src.train.sessions.hooks.summary_hooks import SummarySaverHook
from headrace._src.train.sessions.monitored_session import MonitoredSession
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_creators import ChiefSessionCreator, WorkerSessionCreator
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = ["MonitoredTrainingSession"]

# An argument that was not given; None and 0 mean never.
USE_DEFAULT: Any = object()

_CHECKPOINT_SECS = 600
_SUMMARY_STEPS = 100


def _frequency(
    steps: Any, secs: Any, default_steps: int | None, default_secs: float | None
) -> tuple[int | None, float | None]:
    """Return the intervals: the defaults if neither is given, else the given ones."""
    if steps is USE_DEFAULT and secs is USE_DEFAULT:
        return default_steps, default_secs
    return (None if steps is USE_DEFAULT else steps), (None if secs is USE_DEFAULT else secs)


@export("train.MonitoredTrainingSession")
def MonitoredTrainingSession(
    master: str | bytes = "",
    is_chief: bool = True,
    checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: float | None = USE_DEFAULT,
    save_summaries_steps: int | None = USE_DEFAULT,
    save_summaries_secs: float | None = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float | None = 7200,
    save_checkpoint_steps: int | None = USE_DEFAULT,
    summary_dir: str | None = None,
) -> MonitoredSession:
    """Return a MonitoredSession that restores, saves, counts steps and writes summaries.

    is_chief                 whether to initialise and save, or to wait for the chief
    checkpoint_dir           where to restore from and to save to; None: neither
    chief_only_hooks         hooks that a worker doesn't have
    save_checkpoint_secs, save_checkpoint_steps  every 600 seconds by default
    save_summaries_secs, save_summaries_steps    every 100 steps by default
    log_step_count_steps     how often to log the steps per second
    max_wait_secs            how long a worker waits for the chief
    summary_dir              where summaries go, `checkpoint_dir` by default

    master: the target of a server (`tf.train.Server.target`), or "" for this process. In a cluster
    the session recovers from the loss of tasks: that of the chief or of a parameter server restores
    the last checkpoint, that of another worker restores nothing. A session waits for the tasks that
    `config.device_filters` names, by default for all.

    None or 0 in place of a number: never.
    """
    scaffold = scaffold or Scaffold()
    if not is_chief:
        worker = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(worker, hooks, stop_grace_period_secs)

    all_hooks = list(chief_only_hooks or [])
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            all_hooks.append(StepCounterHook(log_step_count_steps, output_dir=summary_dir))
        steps, secs = _frequency(save_summaries_steps, save_summaries_secs, _SUMMARY_STEPS, None)
        if _is_positive(steps) or _is_positive(secs):
            all_hooks.append(SummarySaverHook(steps, secs, summary_dir, scaffold=scaffold))
    if checkpoint_dir:
        steps, secs = _frequency(
            save_checkpoint_steps, save_checkpoint_secs, None, _CHECKPOINT_SECS
        )
        if _is_positive(steps) or _is_positive(secs):
            all_hooks.append(CheckpointSaverHook(checkpoint_dir, secs, steps, scaffold=scaffold))
    all_hooks.extend(hooks or [])
    chief = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    return MonitoredSession(chief, all_hooks, stop_grace_period_secs)


def _is_positive(number: float | None) -> bool:
    return number is not None and number > 0
