"""The nested sessions that make up a monitored session. From the inside out:

    tf.Session
    HookedSession       calls the hooks before and after each run
    CoordinatedSession  raises the errors of the session's threads here
    RecoverableSession  when it is lost (AbortedError, UnavailableError), recreates all of these

`should_stop` of each checks itself, then the session inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace._src.core import errors, log, proto
from headrace._src.train.sessions.coordinator import Coordinator
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["CoordinatedSession", "HookedSession", "RecoverableSession", "WrappedSession"]

# After these, training can continue from a checkpoint; other errors would recur.
_LOSSES = (errors.AbortedError, errors.UnavailableError)


class WrappedSession:
    """Forwards everything to the session inside, which is None once it's closed."""

    def __init__(self, sess: Any) -> None:
        self._sess: Any = sess

    @property
    def graph(self) -> Any:
        return self._sess.graph

    @property
    def sess_str(self) -> str:
        return self._sess.sess_str

    def should_stop(self) -> bool:
        """Return whether there should be no further run."""
        if self._check_stop():
            return True
        if self._sess is None:
            return True
        return isinstance(self._sess, WrappedSession) and self._sess.should_stop()

    def _check_stop(self) -> bool:
        """Return whether this session itself wants no further run."""
        return False

    def close(self) -> None:
        """Close the session inside; ignore the error if it's already lost."""
        if self._sess is not None:
            try:
                self._sess.close()
            except _LOSSES as error:
                log.warning(
                    "An error occurred when attempting to close the session. This may be due to a "
                    "preemption in a connected worker or parameter server. Error: %s",
                    error,
                )
            finally:
                self._sess = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._sess.run(*args, **kwargs)

    def run_step_fn(self, call: Callable[[Callable[..., Any]], Any]) -> Any:
        """Call a function with a `run` that calls the hooks."""
        return call(self.run)


class HookedSession(WrappedSession):
    """Lets hooks extend each run, see its results, and request a stop."""

    def __init__(self, sess: Any, hooks: Sequence[SessionRunHook]) -> None:
        super().__init__(sess)
        self._hooks = hooks
        self._should_stop = False

    def _check_stop(self) -> bool:
        return self._should_stop

    def run(
        self,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._sess)
        options = _copied(options)
        run_metadata = run_metadata or proto.RunMetadata()
        wanted = _Wanted(fetches)
        feed_dict = self._ask_hooks(context, wanted, feed_dict, options)
        # Empty options would only keep the step from its fast path.
        if options.ByteSize():
            got = self._sess.run(wanted.fetches, feed_dict, options, run_metadata)
        else:
            got = self._sess.run(wanted.fetches, feed_dict)
        for hook in self._hooks:
            values = SessionRunValues(wanted.of(hook, got), options, run_metadata)
            hook.after_run(context, values)
        self._should_stop = self._should_stop or context.stop_requested
        return wanted.of_caller(got)

    def _ask_hooks(
        self, context: SessionRunContext, wanted: _Wanted, feed_dict: Any, options: Any
    ) -> Any:
        """Add the hooks' requests to `wanted` and `options`; return all feeds."""
        fed: dict[Any, Any] = {}
        for hook in self._hooks:
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                wanted.add(hook, request.fetches)
            if request.feed_dict:
                _check_disjoint(fed, request.feed_dict, "Same tensor is fed by two hooks.")
                fed.update(request.feed_dict)
            if request.options:
                _merge_options(options, request.options)
        if not fed:
            return feed_dict
        if not feed_dict:
            return fed
        _check_disjoint(feed_dict, fed, "Same tensor is fed by a SessionRunHook and user.")
        return {**feed_dict, **fed}


class _Wanted:
    """Return the fetches of the caller and of hooks as one flat list: a session caches the plans of
    flat lists.
    """

    def __init__(self, fetches: Any) -> None:
        self._spread = type(fetches) if type(fetches) in (list, tuple) else None
        self.fetches = list(fetches) if self._spread else [fetches]
        self._size = len(self.fetches)
        self._places: dict[int, int] = {}  # by the id of a hook: hooks need not be hashable

    def add(self, hook: SessionRunHook, fetches: Any) -> None:
        self._places[id(hook)] = len(self.fetches)
        self.fetches.append(fetches)

    def of(self, hook: SessionRunHook, got: list[Any]) -> Any:
        place = self._places.get(id(hook))
        return None if place is None else got[place]

    def of_caller(self, got: list[Any]) -> Any:
        return self._spread(got[: self._size]) if self._spread else got[0]


def _check_disjoint(first: Any, second: Any, message: str) -> None:
    common = [key for key in second if key in first]
    if common:
        raise RuntimeError(f"{message} Conflict(s): {common}")


def _copied(options: Any) -> Any:
    """RunOptions that hooks may add to."""
    copy = proto.RunOptions()
    if options is not None:
        copy.CopyFrom(options)
    return copy


def _merge_options(options: Any, more: Any) -> None:
    """Merge two RunOptions."""
    for field in ("trace_level", "timeout_in_ms", "inter_op_thread_pool"):
        setattr(options, field, max(getattr(options, field), getattr(more, field)))
    for field in ("output_partition_graphs", "report_tensor_allocations_upon_oom"):
        setattr(options, field, getattr(options, field) or getattr(more, field))
    watches = more.debug_options.debug_tensor_watch_opts
    options.debug_options.debug_tensor_watch_opts.extend(watches)


class CoordinatedSession(WrappedSession):
    """Stops with a coordinator, and raises the errors of its threads."""

    def __init__(self, sess: Any, coord: Coordinator, stop_grace_period_secs: float) -> None:
        super().__init__(sess)
        self._coord = coord
        self._grace = stop_grace_period_secs

    def _check_stop(self) -> bool:
        self._coord.raise_requested_exception()
        return self._coord.should_stop()

    def close(self) -> None:
        """Stop and join the threads, then close; raise a thread's error."""
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._grace, ignore_live_threads=True)
        finally:
            try:
                super().close()
            except Exception as error:  # the error from `join` matters more
                log.debug("Ignored exception: %s", error)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._sess.run(*args, **kwargs)
        except _LOSSES:
            raise
        except Exception:
            # A queue whose thread lost its session fails too: then the loss is the real cause.
            self._raise_loss()
            raise

    def _raise_loss(self) -> None:
        try:
            self._coord.raise_requested_exception()
        except _LOSSES:
            raise
        except Exception:
            return


class Creator(Protocol):
    """Makes the session inside a RecoverableSession."""

    def create_session(self) -> WrappedSession: ...


class RecoverableSession(WrappedSession):
    """Recreates its session when it's lost, and repeats the failed run."""

    def __init__(self, creator: Creator) -> None:
        self._creator = creator
        super().__init__(self._create())

    def _create(self) -> WrappedSession:
        while True:
            try:
                return self._creator.create_session()
            except _LOSSES as error:
                log.info(
                    "An error was raised while a session was being created. A new session will be "
                    "created. Error: %s",
                    error,
                )

    def _check_stop(self) -> bool:
        try:
            return self._sess is not None and self._sess._check_stop()
        except _LOSSES as error:
            self._lose("while considering whether the session is complete", error)
            self._sess = self._create()
            return False
        except Exception:  # closing the session will raise it
            return True

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._persist(lambda session: session.run(*args, **kwargs))

    def run_step_fn(self, call: Callable[[Callable[..., Any]], Any]) -> Any:
        return self._persist(lambda session: session.run_step_fn(call))

    def _persist(self, work: Callable[[WrappedSession], Any]) -> Any:
        """Call a function with a session, again with a new one if it is lost meanwhile."""
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create()
                return work(self._sess)
            except _LOSSES as error:
                self._lose("by a run", error)

    def _lose(self, when: str, error: Exception) -> None:
        log.info(
            "An error was raised %s. The current session will be closed and a new session will be "
            "created. Error: %s",
            when,
            error,
        )
        self.close()
