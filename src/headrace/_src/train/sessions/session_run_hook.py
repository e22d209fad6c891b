"""SessionRunHook: observes, extends and ends the runs of a monitored session. In: calls before and
after each run. Out: more fetches and feeds, and requests to stop.

The order of calls: `begin` once, before the graph is finalized; `after_create_session` for each
session (again after a recovery); `before_run` and `after_run` around each run; `end` once, unless
the training ended with an error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace._src.core.export import export

__all__ = ["SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues"]


@export("train.SessionRunArgs", "estimator.SessionRunArgs")
class SessionRunArgs(NamedTuple):
    """The additional fetches and feeds of a run, and its RunOptions."""

    fetches: Any
    feed_dict: Any = None
    options: Any = None


@export("train.SessionRunValues", "estimator.SessionRunValues")
class SessionRunValues(NamedTuple):
    """The results of a run for a hook: the values of its fetches, and the run's options and
    metadata.
    """

    results: Any
    options: Any
    run_metadata: Any


@export("train.SessionRunContext", "estimator.SessionRunContext")
class SessionRunContext:
    """A run that is about to happen or has happened.

    original_args: the fetches and feeds of the caller of `run`. session: the tf.Session inside the
    monitored one. stop_requested: whether some hook wants this run to be the last one.
    """

    def __init__(self, original_args: SessionRunArgs, session: Any) -> None:
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        return self._original_args

    @property
    def session(self) -> Any:
        return self._session

    @property
    def stop_requested(self) -> bool:
        return self._stop_requested

    def request_stop(self) -> None:
        """Make this run the last one: `should_stop` of the monitored session becomes true."""
        self._stop_requested = True


@export("train.SessionRunHook", "estimator.SessionRunHook")
class SessionRunHook:
    """Override the methods of interest; by default they do nothing."""

    def begin(self) -> None:
        """Called once before a session is made: the last chance to change the graph."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called after a session is made, its variables are initialised and its queues are being
        filled. The graph is finalized; `coord` coordinates the session's threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; returns SessionRunArgs with additional fetches and feeds, or
        None.
        """

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each successful run, with the values that `before_run` asked for."""

    def end(self, session: Any) -> None:
        """Called at the end of training, with the session still open; not after an error other
        than OutOfRangeError and StopIteration.
        """
