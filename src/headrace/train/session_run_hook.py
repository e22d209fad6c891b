"""SessionRunHook: what watches, extends and ends the runs of a monitored session. In: calls before
and after each run. Out: more fetches and feeds, and requests to stop.

The order of calls: `begin` once, before the graph is finalized; `after_create_session` for each
session (again after a recovery); `before_run` and `after_run` around each run; `end` once, unless
the training ended with an error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.core.export import export

__all__ = ["SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues"]


@export("train.SessionRunArgs", "estimator.SessionRunArgs")
class SessionRunArgs(NamedTuple):
    """What a run is to fetch and feed, and its RunOptions."""

    fetches: Any
    feed_dict: Any = None
    options: Any = None


@export("train.SessionRunValues", "estimator.SessionRunValues")
class SessionRunValues(NamedTuple):
    """What a run gave to a hook: the values of its fetches, and the run's options and metadata."""

    results: Any
    options: Any
    run_metadata: Any


@export("train.SessionRunContext", "estimator.SessionRunContext")
class SessionRunContext:
    """A run that is about to happen or has happened.

    original_args: the fetches and feeds of whoever called `run`. session: the tf.Session below the
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
    """Override what is of interest; by default nothing happens."""

    def begin(self) -> None:
        """Called once before a session is made: the last time when the graph may change."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called when a session was made, its variables have values and queues are being filled.
        The graph is finalized; `coord` coordinates the session's threads.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; returns what the run should fetch and feed besides, or None."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that didn't fail, with the values of what `before_run` wanted."""

    def end(self, session: Any) -> None:
        """Called at the end of training, with the session still open; not after an error other
        than OutOfRangeError and StopIteration.
        """
