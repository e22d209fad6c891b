"""Supervisor: the older way to train. In: a graph, a directory. Out: a managed session, and threads
that save, summarise and count steps in the background.

Arguments that aren't given are looked up in the graph's collections; missing ones are made and
added. Then the graph is finalized. Only the chief's supervisor has a directory to write to.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from headrace._src.core import log, proto
from headrace._src.core.export import export
from headrace._src.graph import meta_graph
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_io import write_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation
from headrace._src.ops.control.grouping import group
from headrace._src.ops.io.summary_functions import merge_all
from headrace._src.ops.state.ref_variable_ops import REFERENCE_VARIABLES
from headrace._src.ops.state.table_classes import tables_initializer
from headrace._src.summary.writer import FileWriter
from headrace._src.train.saving.saver import Saver
from headrace._src.train.sessions.coordinator import Coordinator, LooperThread
from headrace._src.train.sessions.global_step import global_step as global_step_value
from headrace._src.train.sessions.session_manager import SessionManager
from headrace._src.variables.collections import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)

__all__ = ["Supervisor"]


@export("train.Supervisor")
class Supervisor:
    """Trains with a directory: restores or initialises, starts queues and services, and stops them.

    USE_DEFAULT stands for the item in the graph's collections; None disables it.

    ready_op, ready_for_local_init_op, init_op, init_feed_dict, local_init_op, summary_op, saver,
    init_fn (a function of the session): see Scaffold
    is_chief             whether to initialise and save, or to wait for the chief
    logdir               where checkpoints and summaries go
    global_step          the step, for names of checkpoints and summaries
    save_summaries_secs, save_model_secs  how often; 0: never
    recovery_wait_secs   seconds between two checks whether the model is ready
    stop_grace_secs      how long threads may take to end
    checkpoint_basename  the prefix of checkpoint names
    session_manager, summary_writer  used instead of the default ones
    """

    USE_DEFAULT: Any = 0

    def __init__(
        self,
        graph: Graph | None = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Any = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: str | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Any], Any] | None = None,
        local_init_run_options: Any = None,
    ) -> None:
        self._graph = graph or get_default_graph()
        self._is_chief = is_chief
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        self._coord = Coordinator()
        self._stop_grace_secs = stop_grace_secs
        self._started_threads: list[threading.Thread] = []
        self._graph_added_to_summary = False
        with self._graph.as_default():
            self._ready_op = _choose(ready_op, GraphKeys.READY_OP, report_uninitialized_variables)
            self._ready_for_local_init_op = _choose(
                ready_for_local_init_op, GraphKeys.READY_FOR_LOCAL_INIT_OP, lambda: None
            )
            self._init_op = _choose(init_op, GraphKeys.INIT_OP, global_variables_initializer)
            self._local_init_op = _choose(
                local_init_op, GraphKeys.LOCAL_INIT_OP, _default_local_init_op
            )
            self._saver = _choose(saver, GraphKeys.SAVERS, _default_saver)
            self._summary_op = _choose(summary_op, GraphKeys.SUMMARY_OP, merge_all)
            self._global_step = _choose(global_step, GraphKeys.GLOBAL_STEP, _default_global_step)
        self._set_outputs(
            logdir, save_summaries_secs, save_model_secs, checkpoint_basename, summary_writer
        )
        self._session_manager = session_manager or SessionManager(
            local_init_op=self._local_init_op,
            ready_op=self._ready_op,
            ready_for_local_init_op=self._ready_for_local_init_op,
            graph=self._graph,
            recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )
        if not is_chief:
            self._check_devices()
        self._graph.finalize()

    def _set_outputs(
        self,
        logdir: str | None,
        save_summaries_secs: float,
        save_model_secs: float,
        checkpoint_basename: str,
        summary_writer: Any,
    ) -> None:
        self._logdir = logdir if self._is_chief else None
        self._save_summaries_secs = save_summaries_secs if self._is_chief else None
        self._save_model_secs = save_model_secs if self._is_chief else None
        self._save_path = None
        if self._logdir:
            self._save_path = os.path.join(self._logdir, checkpoint_basename)
        if summary_writer is Supervisor.USE_DEFAULT:
            summary_writer = FileWriter(self._logdir) if self._logdir else None
        self._summary_writer: Any = summary_writer if self._is_chief else None

    def _check_devices(self) -> None:
        """Variables that another task initialises must be on a device that it can reach."""
        for op in self._graph.get_operations():
            if op.type in REFERENCE_VARIABLES and not op.device:
                raise ValueError(
                    f"When using replicas, all Variables must have their device set: {op}"
                )

    @property
    def is_chief(self) -> bool:
        return self._is_chief

    @property
    def session_manager(self) -> SessionManager:
        return self._session_manager

    @property
    def coord(self) -> Coordinator:
        return self._coord

    @property
    def init_op(self) -> Any:
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        return self._ready_for_local_init_op

    @property
    def summary_writer(self) -> Any:
        return self._summary_writer

    @property
    def summary_op(self) -> Any:
        return self._summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        return self._save_summaries_secs

    @property
    def global_step(self) -> Any:
        return self._global_step

    @property
    def saver(self) -> Any:
        return self._saver

    @property
    def save_model_secs(self) -> float | None:
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """The prefix of the checkpoints' names."""
        return self._save_path

    # -- Sessions ----------------------------------------------------------------------------------

    @contextmanager
    def managed_session(
        self,
        master: str | bytes = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:
        """Yield a ready session, with its queues and services running; stop them afterwards. Errors
        of the with-block also stop them, and are raised, except OutOfRangeError.
        """
        session = None
        try:
            session = self.prepare_or_wait_for_session(
                master, config, start_standard_services=start_standard_services
            )
            yield session
        except Exception as error:
            self.request_stop(error)
        finally:
            try:
                self.stop(close_summary_writer=close_summary_writer)
            finally:
                if session is not None:
                    session.close()

    def prepare_or_wait_for_session(
        self,
        master: str | bytes = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Any:
        """Return a ready session: the chief restores or initialises it, other tasks wait for it."""
        self._coord.clear_stop()
        if self._summary_writer is not None:
            self._summary_writer.reopen()
        if self._is_chief:
            session = self._session_manager.prepare_session(
                master,
                init_op=self._init_op,
                saver=self._saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
                init_fn=self._init_fn,
            )
            self._write_graph()
            if start_standard_services:
                log.info("Starting standard services.")
                self.start_standard_services(session)
        else:
            session = self._session_manager.wait_for_session(
                master, config=config, max_wait_secs=max_wait_secs
            )
        if start_standard_services:
            log.info("Starting queue runners.")
            self.start_queue_runners(session)
        return session

    def _write_graph(self) -> None:
        graph_def = self._graph.as_graph_def(add_shapes=True)
        if self._logdir:
            write_graph(graph_def, self._logdir, "graph.pbtxt")
        if self._summary_writer is not None and not self._graph_added_to_summary:
            saver_def = self._saver.saver_def if self._saver is not None else None
            self._summary_writer.add_graph(self._graph)
            self._summary_writer.add_meta_graph(
                meta_graph.export_meta_graph(
                    graph=self._graph, graph_def=graph_def, saver_def=saver_def
                )
            )
            self._graph_added_to_summary = True

    def start_standard_services(self, sess: Any) -> list[threading.Thread] | None:
        """Start the threads that save, summarise and count steps; return them."""
        if not self._is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. Because only chief supervisors "
                "can write events."
            )
        if not self._logdir:
            log.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        if self._global_step is not None and self._summary_writer is not None:
            step = global_step_value(sess, self._global_step)
            self._log_status(proto.SessionLog(status=proto.SessionLog.START), step)
        threads: list[threading.Thread] = []
        if self._save_summaries_secs and self._summary_writer is not None:
            every = self._save_summaries_secs
            if self._summary_op is not None:
                threads.append(LooperThread(self._coord, every, self._summarise, (sess,)))
            if self._global_step is not None:
                counter = _StepCounter(self, sess, self._global_step)
                threads.append(LooperThread(self._coord, every, counter.tell))
        if self._saver is not None and self._save_model_secs:
            threads.append(LooperThread(self._coord, self._save_model_secs, self._save, (sess,)))
        for thread in threads:
            thread.start()
        self._started_threads.extend(threads)
        return threads

    def start_queue_runners(
        self, sess: Any, queue_runners: Sequence[Any] | None = None
    ) -> list[threading.Thread]:
        """Start the threads of queue runners, those of the graph by default; return them."""
        runners = queue_runners
        if runners is None:
            runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        started: list[threading.Thread] = []
        for runner in runners:
            started.extend(runner.create_threads(sess, coord=self._coord, daemon=True, start=True))
        self._started_threads.extend(started)
        return started

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
    ) -> LooperThread:
        """Start a thread that calls `target(*args, **kwargs)` at an interval in seconds; return
        it.
        """
        looper = LooperThread(self._coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        self._started_threads.append(looper)
        return looper

    # -- Stopping ----------------------------------------------------------------------------------

    def stop(
        self,
        threads: Sequence[threading.Thread] | None = None,
        close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stop the threads (by default, those that this supervisor started), wait for them, and
        raise the error that one of them failed with.
        """
        self._coord.request_stop()
        try:
            self._coord.join(
                self._started_threads if threads is None else threads,
                stop_grace_period_secs=self._stop_grace_secs,
                ignore_live_threads=ignore_live_threads,
            )
        finally:
            self._started_threads = []
            if close_summary_writer and self._summary_writer is not None:
                self._log_status(proto.SessionLog(status=proto.SessionLog.STOP))
                self._summary_writer.close()
                self._graph_added_to_summary = False

    def request_stop(self, ex: Any = None) -> None:
        """Ask all threads to stop; see Coordinator.request_stop."""
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Return whether a stop was requested."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """Return a context manager whose errors stop the threads; see
        Coordinator.stop_on_exception.
        """
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Wait until a stop is requested."""
        self._coord.wait_for_stop()

    # -- Services ----------------------------------------------------------------------------------

    def summary_computed(self, sess: Any, summary: Any, global_step: int | None = None) -> None:
        """Write a summary, serialised or not, at a step: the global one by default."""
        if self._summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = global_step_value(sess, self._global_step)
        self._summary_writer.add_summary(summary, global_step)

    def _log_status(self, session_log: Any, step: int | None = None) -> None:
        self._summary_writer.add_session_log(session_log, step)

    def _summarise(self, sess: Any) -> None:
        step = None
        if self._global_step is None:
            summaries = sess.run(self._summary_op)
        else:
            summaries, found = sess.run([self._summary_op, self._global_step])
            step = int(found.item())
        log.info("Recording summary at step %s.", step)
        self._summary_writer.add_summary(summaries, step)

    def _save(self, sess: Any) -> None:
        log.info("Saving checkpoint to path %s", self._save_path)
        self._saver.save(sess, self._save_path, global_step=self._global_step)
        if self._summary_writer is not None and self._global_step is not None:
            done = proto.SessionLog(
                status=proto.SessionLog.CHECKPOINT, checkpoint_path=self._save_path
            )
            self._log_status(done, global_step_value(sess, self._global_step))

    # Names from before TensorFlow's style was settled.
    PrepareSession = prepare_or_wait_for_session
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    Stop = stop
    RequestStop = request_stop
    Loop = loop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop
    SummaryComputed = summary_computed


class _StepCounter:
    """Logs the steps per second since the last call."""

    def __init__(self, supervisor: Supervisor, sess: Any, step: Any) -> None:
        self._supervisor = supervisor
        self._sess = sess
        self._step = step
        self._tag = f"{step.op.name}/sec"
        self._last_time = time.monotonic()
        self._last_step = global_step_value(sess, step)

    def tell(self) -> None:
        step, now = global_step_value(self._sess, self._step), time.monotonic()
        steps, seconds = step - self._last_step, now - self._last_time
        self._last_step, self._last_time = step, now
        rate = steps / seconds if seconds > 0 else float("inf")
        summary = proto.Summary()
        summary.value.add(tag=self._tag, simple_value=rate)
        self._supervisor.summary_computed(self._sess, summary, step)
        log.info("%s: %g", self._tag, rate)


def _choose(given: Any, key: str, make: Callable[[], Any]) -> Any:
    """Return the given value, or the first item of a collection, or the result of `make`."""
    if given is not Supervisor.USE_DEFAULT:
        return given
    graph = get_default_graph()
    found = graph.get_collection(key)
    if found:
        return found[0]
    made = make()
    if made is not None:
        graph.add_to_collection(key, made)
    return made


def _default_local_init_op() -> Operation:
    return group(local_variables_initializer(), tables_initializer())


def _default_global_step() -> Any:
    """Return the variable or tensor "global_step:0" if it has an integer dtype, of any shape."""
    try:
        found: Any = get_default_graph().get_tensor_by_name("global_step:0")
    except KeyError:
        return None
    # A collection of variables can be exported, one of tensors can't.
    found = next((v for v in global_variables() if v.op is found.op), found)
    if not found.dtype.base_dtype.is_integer:
        log.warning("Found 'global_step' is not an int type: %s", found.dtype)
        return None
    return found


def _default_saver() -> Saver | None:
    return Saver() if global_variables() else None
