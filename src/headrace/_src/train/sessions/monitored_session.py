"""MonitoredSession: a session for training. In: a session creator, and hooks. Out: runs that hooks
extend, that survive lost sessions, and that end cleanly.

The graph is finalized while a monitored session exists. A with-block around it ends
quietly on OutOfRangeError and StopIteration: the end of the input.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import source
from headrace._src.core.errors import OutOfRangeError
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.train.inputs.queue_runners import start_queue_runners
from headrace._src.train.sessions.coordinator import Coordinator
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_creators import ChiefSessionCreator, SessionCreator
from headrace._src.train.sessions.session_run_hook import SessionRunHook
from headrace._src.train.sessions.wrapped_sessions import (
    CoordinatedSession,
    HookedSession,
    RecoverableSession,
)

__all__ = ["MonitoredSession", "SessionStepContext", "SingularMonitoredSession"]

_ENDS = (OutOfRangeError, StopIteration)


class SessionStepContext:
    """The argument of a function passed to `run_step_fn`: `session`, which bypasses all hooks, and
    `run_with_hooks`.
    """

    def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self) -> Any:
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """As `MonitoredSession.run`."""
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self) -> None:
        """End the step function and the training loop around it."""
        raise StopIteration("step_fn has requested the iterations to stop.")


class _CoordinatedCreator:
    """Makes a session, starts its threads and informs the hooks. State: the current session and
    coordinator.
    """

    def __init__(
        self, creator: SessionCreator, hooks: Sequence[SessionRunHook], grace: float
    ) -> None:
        self._creator = creator
        self._hooks = hooks
        self._grace = grace
        self.tf_sess: Any = None
        self.coord: Coordinator | None = None

    def create_session(self) -> CoordinatedSession:
        self.tf_sess = session = self._creator.create_session()
        # The main thread must also see the end of the input.
        self.coord = coord = Coordinator(clean_stop_exception_types=[])
        try:
            if get_default_graph().get_collection(GraphKeys.QUEUE_RUNNERS):
                start_queue_runners(sess=session, coord=coord)
            for hook in self._hooks:
                hook.after_create_session(session, coord)
        except BaseException:  # nothing else would close it
            coord.request_stop()
            session.close()
            raise
        return CoordinatedSession(HookedSession(session, self._hooks), coord, self._grace)


class _MonitoredSession:
    """The base class of monitored sessions; see MonitoredSession."""

    StepContext = SessionStepContext
    starts_queue_runners = True

    def __init__(
        self,
        session_creator: SessionCreator | None,
        hooks: Sequence[SessionRunHook] | None,
        should_recover: bool,
        stop_grace_period_secs: float = 120,
    ) -> None:
        self._graph_was_finalized = get_default_graph().finalized
        self._hooks = list(hooks or [])
        for hook in self._hooks:
            hook.begin()
        self._creator = _CoordinatedCreator(
            session_creator or ChiefSessionCreator(), self._hooks, stop_grace_period_secs
        )
        self._sess: Any
        if should_recover:
            self._sess = RecoverableSession(self._creator)
        else:
            self._sess = self._creator.create_session()

    @property
    def graph(self) -> Any:
        """The graph, None after `close`."""
        return None if self._is_closed() else self._tf_sess().graph

    def run(
        self,
        fetches: Any,
        feed_dict: dict[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Run one step, with the hooks; see `Session.run`."""
        return self._open_session().run(
            fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata
        )

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Return the result of `step_fn(step_context)`, which may run several steps, with hooks or
        without. If the session is lost, it is called again from the start.
        """
        if not callable(step_fn):
            raise TypeError(f"step_fn must be callable, but got {step_fn!r}")
        names = tuple(_argument_names(step_fn))
        if names not in (("step_context",), ("self", "step_context")):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and "
                "`step_context` arguments if it's an instance method. Got "
                f"{names} instead."
            )
        return self._open_session().run_step_fn(
            lambda run: step_fn(SessionStepContext(self._tf_sess(), run))
        )

    def should_stop(self) -> bool:
        """Return whether the training loop should end."""
        return self._sess is None or self._sess.should_stop()

    def close(self) -> None:
        """Call the hooks' `end`, stop the threads, and close the session."""
        self._close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: Any) -> bool:
        failed = exception_type is not None and exception_type not in _ENDS
        self._close(failed)
        return not failed

    def _close(self, failed: bool = False) -> None:
        session = self._sess
        try:
            if not failed:
                for hook in self._hooks:
                    hook.end(self._creator.tf_sess)
        finally:
            if session is None:
                raise RuntimeError("Session is already closed.")
            try:
                session.close()
            finally:
                self._sess = None
                self._closed_at = source.capture()
                self._creator.tf_sess = None
                self._creator.coord = None
                if not self._graph_was_finalized:
                    get_default_graph()._unsafe_unfinalize()

    def _open_session(self) -> Any:
        if self._sess is None:
            closed = source.trail(self._closed_at, "closed at")
            raise RuntimeError(
                f"Attempted to use a closed Session.{source.here('used at')}{closed}"
            )
        return self._sess

    def _is_closed(self) -> bool:
        return self._creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._creator.tf_sess


def _argument_names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@export("train.MonitoredSession")
class MonitoredSession(_MonitoredSession):
    """A session with hooks that is recreated when it is lost (AbortedError, UnavailableError) and
    continues from the last checkpoint.

    Creation calls `begin` of each hook, finalizes the scaffold and the graph, makes a session,
    restores or initialises its variables, starts its queue runners, and calls
    `after_create_session` of each hook. Closing calls `end` of each hook, unless there was an
    error, then stops the threads and closes the session.

    session_creator: a ChiefSessionCreator by default. stop_grace_period_secs: how long threads may
    take to end.
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        stop_grace_period_secs: float = 120,
    ) -> None:
        super().__init__(session_creator, hooks, True, stop_grace_period_secs)


@export("train.SingularMonitoredSession")
class SingularMonitoredSession(_MonitoredSession):
    """A session with hooks that raises every error, and gives access to the session inside."""

    def __init__(
        self,
        hooks: Sequence[SessionRunHook] | None = None,
        scaffold: Scaffold | None = None,
        master: str | bytes = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path
        )
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Any:
        """Return the tf.Session inside."""
        return self._tf_sess()
