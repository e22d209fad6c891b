"""Hooks that feed each run, and that run operations at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import errors, log
from headrace._src.core.export import export
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
)

__all__ = ["FeedFnHook", "FinalOpsHook"]


@export("train.FeedFnHook", "estimator.FeedFnHook")
class FeedFnHook(SessionRunHook):
    """Feeds the result of `feed_fn()` to each run."""

    def __init__(self, feed_fn: Callable[[], dict[Any, Any]]) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())


@export("train.FinalOpsHook", "estimator.FinalOpsHook")
class FinalOpsHook(SessionRunHook):
    """Runs operations at the end of training and stores their values in `final_ops_values`."""

    def __init__(self, final_ops: Any, final_ops_feed_dict: dict[Any, Any] | None = None) -> None:
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        return self._final_ops_values

    def end(self, session: Any) -> None:
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(
                self._final_ops, feed_dict=self._final_ops_feed_dict
            )
        except (errors.OutOfRangeError, StopIteration) as error:
            log.warning(
                "An OutOfRangeError or StopIteration exception is raised by the code in "
                "FinalOpsHook: the final ops read from an input, which is at its end. They should "
                "depend on variables only. Error: %s",
                error,
            )
            raise
