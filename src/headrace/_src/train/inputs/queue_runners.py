"""Queue runners: threads that keep a queue filled. In: a queue and its enqueue operations. Out: a
thread for each.

A runner is kept in a collection of the graph, so that `start_queue_runners` finds it, and is saved
with the graph. It runs once per session at a time: the queue is closed when its last thread ends.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import errors, proto
from headrace._src.core.export import export
from headrace._src.core.locks import Lock
from headrace._src.graph import default
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation
from headrace._src.graph.proto_functions import register_proto_function
from headrace._src.ops.state.queue_classes import QueueBase
from headrace._src.session.resuming import gate
from headrace._src.session.session import BaseSession
from headrace._src.train.sessions.coordinator import Coordinator

__all__ = ["QueueRunner", "add_queue_runner", "start_queue_runners"]

_log = logging.getLogger("headrace")


@export("train.QueueRunner", "train.queue_runner.QueueRunner")
class QueueRunner:
    """The enqueue operations of a queue, for threads that run them repeatedly.

    close_op, cancel_op: close the queue at the end of the input, and when a coordinator stops.
    queue_closed_exception_types: errors that mean the end of the input. queue_runner_def: a saved
    runner, instead of all others.
    """

    _joined = True  # whether a coordinator's `join` waits for the threads

    def __init__(
        self,
        queue: QueueBase | None = None,
        enqueue_ops: Sequence[Any] | None = None,
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: tuple[type[errors.OpError], ...] | None = None,
        queue_runner_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        if queue_runner_def is not None:
            if queue is not None or enqueue_ops:
                raise ValueError("queue_runner_def and queue are mutually exclusive.")
            self._restore(queue_runner_def, import_scope)
        else:
            self._prepare(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types)
        self._lock = Lock()
        self._running: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._errors: list[BaseException] = []

    def _prepare(
        self, queue: Any, enqueue_ops: Any, close_op: Any, cancel_op: Any, closed_types: Any
    ) -> None:
        if not queue or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        self._queue = queue
        self._enqueue_ops = list(enqueue_ops)
        self._close_op = queue.close() if close_op is None else close_op
        if cancel_op is None:
            cancel_op = queue.close(cancel_pending_enqueues=True)
        self._cancel_op = cancel_op
        kinds = closed_types or (errors.OutOfRangeError,)
        if not isinstance(kinds, tuple) or not all(
            isinstance(k, type) and issubclass(k, errors.OpError) for k in kinds
        ):
            raise TypeError(
                "queue_closed_exception_types, when provided, must be a tuple of tf.error types, "
                f"but saw: {closed_types}"
            )
        self._closed_types = kinds

    @property
    def queue(self) -> QueueBase:
        return self._queue

    @property
    def enqueue_ops(self) -> list[Any]:
        return self._enqueue_ops

    @property
    def close_op(self) -> Any:
        return self._close_op

    @property
    def cancel_op(self) -> Any:
        return self._cancel_op

    @property
    def queue_closed_exception_types(self) -> tuple[type[errors.OpError], ...]:
        return self._closed_types

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """The errors of threads without a coordinator since threads were last created."""
        return self._errors

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._queue.name

    # -- Threads -----------------------------------------------------------------------------------

    def create_threads(
        self,
        sess: BaseSession,
        coord: Coordinator | None = None,
        daemon: bool = False,
        start: bool = False,
    ) -> list[threading.Thread]:
        """Return threads that run the enqueue operations in a session, and one that closes the
        queue when `coord` stops; none if the session has them already.
        """
        with self._lock:
            if self._running.get(sess, 0) > 0:
                return []
            self._running[sess] = len(self._enqueue_ops)
            self._errors = []
        sess.graph.queue_runners_started = True
        works: list[Any] = [(self._run, op, op.name) for op in self._enqueue_ops]
        if coord is not None:
            works.append((self._close_on_stop, self._cancel_op, "close_on_stop"))
        threads = [
            threading.Thread(
                target=work,
                args=(sess, op, coord),
                name=f"QueueRunnerThread-{self.name}-{name}",
                daemon=daemon,
            )
            for work, op, name in works
        ]
        for thread in threads:
            if coord is not None and self._joined:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads

    def _run(self, sess: BaseSession, enqueue_op: Any, coord: Coordinator | None) -> None:
        """Enqueue until the input or the coordinator ends."""
        finished = False
        try:
            enqueue, entrance = self._enqueuer(sess, enqueue_op), gate(sess)
            while coord is None or not coord.should_stop():
                try:
                    with entrance:
                        enqueue()
                except self._closed_types as error:
                    finished = True
                    if error.__cause__ is not None:  # the queue that it reads from was cancelled
                        self._blame(sess, error.__cause__)
                    if self._ended(sess):
                        _quietly(sess, self._close_op)
                    return
        except Exception as error:
            if isinstance(error, errors.CancelledError) and coord and coord.should_stop():
                return  # the session was closed at the end of the training
            self._blame(sess, error)
            if coord is None:
                _log.error("Exception in QueueRunner: %s", error)
                with self._lock:
                    self._errors.append(error)
                raise
            coord.request_stop(error)
        finally:
            if not finished:
                self._ended(sess)

    def _enqueuer(self, sess: BaseSession, enqueue_op: Any) -> Callable[[], Any]:
        """Return the function that a thread calls repeatedly."""
        return sess.make_callable(enqueue_op)

    def _ended(self, sess: BaseSession) -> bool:
        """Count a thread's end; return whether it was the last one."""
        with self._lock:
            self._running[sess] -= 1
            return not self._running[sess]

    def _close_on_stop(self, sess: BaseSession, cancel_op: Any, coord: Coordinator) -> None:
        coord.wait_for_stop()
        if coord.error is not None:
            self._blame(sess, coord.error)
        _quietly(sess, cancel_op)

    def _blame(self, sess: BaseSession, error: BaseException) -> None:
        """Make the queue report to its readers why no more elements come: the first error. A queue
        of another process does not report it; the coordinator does.
        """
        try:
            if sess._remote is not None:
                return
            state = sess._resources.find(sess.run(self._queue.queue_ref))
        except Exception as lost:  # the session was closed: there are no readers
            _log.debug("Ignored exception: %s", lost)
        else:
            state.failure = state.failure or error

    # -- Saving ------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """A QueueRunnerDef; None if the queue is outside `export_scope`."""
        if export_scope is not None and not self.name.startswith(f"{export_scope}/"):
            return None

        def strip(name: str) -> str:
            return name if export_scope is None else name.removeprefix(f"{export_scope}/")

        return proto.QueueRunnerDef(
            queue_name=strip(self.name),
            enqueue_op_name=[strip(op.name) for op in self._enqueue_ops],
            close_op_name=strip(self._close_op.name),
            cancel_op_name=strip(self._cancel_op.name),
            queue_closed_exception_types=[
                errors.error_code_from_exception_type(kind)  # type: ignore[misc]
                for kind in self._closed_types
            ],
        )

    @staticmethod
    def from_proto(queue_runner_def: Any, import_scope: str | None = None) -> QueueRunner:
        """Restore the runner that was saved as `queue_runner_def`."""
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)

    def _restore(self, message: Any, import_scope: str | None) -> None:
        graph = get_default_graph()

        def find(name: str) -> Any:
            return graph.as_graph_element(f"{import_scope}/{name}" if import_scope else name)

        handle = find(message.queue_name).outputs[0]
        # The elements' types aren't saved; a runner doesn't need them.
        self._queue = QueueBase([], [], None, handle)
        self._enqueue_ops = [find(name) for name in message.enqueue_op_name]
        self._close_op = find(message.close_op_name)
        self._cancel_op = find(message.cancel_op_name)
        kinds = map(errors.exception_type_from_error_code, message.queue_closed_exception_types)
        self._closed_types = tuple(kinds) or (errors.OutOfRangeError,)


def _quietly(sess: BaseSession, op: Operation) -> None:
    """Close a queue; ignore the error if that is no longer possible."""
    try:
        sess.run(op)
    except Exception as error:
        _log.debug("Ignored exception: %s", error)


@export("train.add_queue_runner", "train.queue_runner.add_queue_runner")
def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """Put a runner into a collection of the graph, for `start_queue_runners`."""
    get_default_graph().add_to_collection(collection, qr)


@export("train.start_queue_runners", "train.queue_runner.start_queue_runners")
def start_queue_runners(
    sess: BaseSession | None = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Start the threads of all runners of the session's graph; return them.

    A monitored session has already started them, so there are none left to start.
    """
    if sess is None:
        sess = default.default_session()
        if sess is None:
            raise ValueError(
                "Cannot start queue runners: No default session is registered. Use `with "
                "sess.as_default()` or pass an explicit session to "
                "tf.start_queue_runners(sess=sess)"
            )
    if getattr(sess, "starts_queue_runners", False):
        return []
    if not isinstance(sess, BaseSession):
        raise TypeError(f"sess must be a `tf.Session` object. Given class: {type(sess)}")
    runners = sess.graph.get_collection(collection)
    if not runners:
        _log.warning(
            "`tf.train.start_queue_runners()` was called when no queue runners were defined. You "
            "can safely remove the call to this deprecated function."
        )
    with sess.graph.as_default():
        return [t for r in runners for t in r.create_threads(sess, coord, daemon, start)]


_to_proto: Callable[..., Any] = QueueRunner.to_proto
register_proto_function(
    GraphKeys.QUEUE_RUNNERS, "QueueRunnerDef", _to_proto, QueueRunner.from_proto
)
