"""Loops for training and evaluation: run steps until a supervisor stops, wait for new
checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from headrace._src.core import errors, log
from headrace._src.core.export import export
from headrace._src.train.saving.checkpoint_state import latest_checkpoint
from headrace._src.train.sessions.supervisor import Supervisor

__all__ = ["basic_train_loop", "checkpoints_iterator"]


@export("train.basic_train_loop")
def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Any],
    args: Any = None,
    kwargs: Any = None,
    master: str | bytes = "",
) -> None:
    """Call `train_step_fn(session, *args, **kwargs)` until the supervisor stops. After an
    AbortedError, a new session continues from the last checkpoint.
    """
    args = args or []
    kwargs = kwargs or {}
    should_retry = True
    while should_retry:
        try:
            should_retry = False
            with supervisor.managed_session(master) as session:
                while not supervisor.should_stop():
                    train_step_fn(session, *args, **kwargs)
        except errors.AbortedError:
            should_retry = True


_GLANCE = 1.0  # seconds between two checks of a directory


@export("train.checkpoints_iterator")
def checkpoints_iterator(
    checkpoint_dir: str,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yield the latest checkpoint of a directory whenever there is a new one.

    min_interval_secs: the least time between two of them. timeout: how long to wait for a new one;
    after that, iteration ends unless `timeout_fn()` is given and returns False.
    """
    seen = None
    while True:
        path = _new_checkpoint(checkpoint_dir, seen, timeout)
        if path is None:
            if timeout_fn is None:
                log.info("Timed-out waiting for a checkpoint.")
                return
            if timeout_fn():
                return
            continue
        start = time.monotonic()
        seen = path
        yield path
        time.sleep(max(0.0, start + min_interval_secs - time.monotonic()))


def _new_checkpoint(directory: str, seen: str | None, timeout: float | None) -> str | None:
    """Return the latest checkpoint if it isn't `seen`; None if there's no new one in time."""
    log.info("Waiting for new checkpoint at %s", directory)
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    while True:
        path = latest_checkpoint(directory)
        if path is not None and path != seen:
            log.info("Found new checkpoint at %s", path)
            return path
        if time.monotonic() + _GLANCE > deadline:
            return None
        time.sleep(_GLANCE)
