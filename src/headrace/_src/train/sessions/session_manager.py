"""SessionManager: sessions with initialised variables. In: a graph, and a check whether its model
is ready. Out: a session, restored from a checkpoint, initialised, or initialised by another task.

The chief restores the latest checkpoint or else initialises. Other tasks poll with fresh sessions
until they can see the chief's variables and these have values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.checkpoint.bundle import remove_abandoned_parts
from headrace._src.core import errors, log
from headrace._src.core.export import export
from headrace._src.core.file_errors import file_errors
from headrace._src.core.versions_and_text import as_text
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.session.session import Session
from headrace._src.train.saving.checkpoint_state import get_checkpoint_state
from headrace._src.train.saving.saver import Saver

__all__ = ["SessionManager", "reason_not_ready"]

_SHORTEST_PAUSE = 0.1  # seconds between two checks for a ready model; long waits have longer ones
_FIRST_NOTICE, _NEXT_NOTICE = 2.0, 30.0  # seconds until a task says whom it waits for


@export("train.SessionManager")
class SessionManager:
    """Makes sessions for a graph, and ensures that its variables have values.

    local_init_op            run in each new session once `ready_for_local_init_op` reports no
                             variables
    ready_op                 returns the names of uninitialised variables; None: the model is always
                             ready
    ready_for_local_init_op  the same, for the variables that `local_init_op` needs
    recovery_wait_secs       seconds between two checks for a checkpoint; the most seconds between
                             two checks for a ready model
    local_init_run_options   the RunOptions of `local_init_op`
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Graph | None = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op , "
                f"ready_for_local_init_op [{ready_for_local_init_op}]"
            )
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = get_default_graph() if graph is None else graph
        self._wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options

    def prepare_session(
        self,
        master: str | bytes,
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Any = None,
        init_fn: Callable[[Session], Any] | None = None,
    ) -> Session:
        """Return a session that is ready: restored from the latest checkpoint, or if there is none,
        initialised by `init_op` (with `init_feed_dict`) and `init_fn`, a function of the session.

        RuntimeError if some variables still have no values after that.
        """
        session, restored = self._restored_session(
            master,
            saver,
            checkpoint_dir,
            checkpoint_filename_with_path,
            wait_for_checkpoint,
            max_wait_secs,
            config,
        )
        if restored is None:
            if init_op is None and not init_fn and self._local_init_op is None:
                raise RuntimeError(
                    "Model is not initialized and no init_op or init_fn or local_init_op was given"
                )
            if init_op is not None:
                session.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(session)
        missing = self._run_local_init(session)
        _resume(session, saver, restored)
        if missing is not None:
            raise RuntimeError(
                "Init operations did not make model ready for local_init.  "
                f"Init op: {_name(init_op)}, init fn: {init_fn}, error: {missing}"
            )
        missing = self._lacking(session)
        if missing is not None:
            raise RuntimeError(
                "Init operations did not make model ready.  "
                f"Init op: {_name(init_op)}, init fn: {init_fn}, "
                f"local_init_op: {_name(self._local_init_op)}, error: {missing}"
            )
        return session

    def recover_session(
        self,
        master: str | bytes,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Return a session, and whether it was restored from a checkpoint and is ready."""
        session, restored = self._restored_session(
            master,
            saver,
            checkpoint_dir,
            checkpoint_filename_with_path,
            wait_for_checkpoint,
            max_wait_secs,
            config,
        )
        missing = self._run_local_init(session)
        if restored is None:
            return session, False
        _resume(session, saver, restored)
        place = checkpoint_dir or checkpoint_filename_with_path
        complaint = "Restoring model from %s did not make model %s: %s"
        if missing is not None:
            log.info(complaint, place, "ready for local init", missing)
            return session, False
        missing = self._lacking(session)
        if missing is not None:
            log.info(complaint, place, "ready", missing)
            return session, False
        log.info("Restored model from %s", place)
        return session, True

    def wait_for_session(
        self, master: str | bytes, config: Any = None, max_wait_secs: float | None = float("Inf")
    ) -> Session:
        """Return a session once another one, such as the chief's, has initialised the variables;
        DeadlineExceededError if that takes longer than `max_wait_secs`.
        """
        limit = float("Inf") if max_wait_secs is None else max_wait_secs
        began = time.monotonic()
        deadline = began + limit
        notice = _FIRST_NOTICE
        while True:
            session = Session(master, graph=self._graph, config=config)
            missing_before = self._run_local_init(session)
            missing = None
            if missing_before is None:
                missing = self._lacking(session)
                if missing is None:
                    return session
            _close_quietly(session)
            if deadline - time.monotonic() < self._wait_secs:
                raise errors.DeadlineExceededError(
                    None,
                    None,
                    f"Session was not ready after waiting {max_wait_secs} secs.",
                    hint=f"the chief has not initialised the model: {missing_before or missing}",
                )
            log.info(
                "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s",
                missing_before,
                missing,
            )
            waited = time.monotonic() - began
            if waited >= notice:
                notice = waited + _NEXT_NOTICE
                log.warning(
                    "This task has been waiting for the chief for %.0f s. The chief is the worker "
                    "with is_chief=True: start it if it does not run. It initialises the model or "
                    "restores a checkpoint. %s",
                    *(waited, missing_before or missing),
                )
            time.sleep(min(self._wait_secs, max(_SHORTEST_PAUSE, waited / 10)))

    # -- Restoring ---------------------------------------------------------------------------------

    def _restored_session(
        self,
        master: str | bytes,
        saver: Any,
        directory: str | None,
        filename: str | None,
        wait: bool,
        max_wait_secs: float,
        config: Any,
    ) -> tuple[Session, str | None]:
        """Return a new session, and the checkpoint that was found and restored, or None."""
        session = Session(master, graph=self._graph, config=config)
        if directory and filename:
            raise ValueError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path."
            )
        if not saver or not (directory or filename):
            return session, None
        if isinstance(saver, Saver):
            saver.wait()  # it may still be writing the latest checkpoint
        if filename:
            saver.restore(session, filename)
            return session, filename
        assert directory is not None
        state = self._state(directory, max_wait_secs if wait else 0)
        if state is None:
            return session, None
        saver.restore(session, state.model_checkpoint_path)
        with file_errors(directory):  # the chief alone saves there, and it has just begun again
            remove_abandoned_parts(directory, age=0.0)
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        return session, state.model_checkpoint_path

    def _state(self, directory: str, max_wait_secs: float) -> Any:
        """Return the checkpoint state of a directory, or None; may wait some time for it."""
        waited = 0.0
        state = get_checkpoint_state(directory)
        while state is None and waited < max_wait_secs:
            log.info("Waiting for checkpoint to be available.")
            time.sleep(self._wait_secs)
            waited += self._wait_secs
            state = get_checkpoint_state(directory)
        return state

    # -- Is it ready? ------------------------------------------------------------------------------

    def _run_local_init(self, session: Session) -> str | None:
        """Run `local_init_op` if the model is ready for it; otherwise report what is missing."""
        if self._local_init_op is None:
            return None
        missing = reason_not_ready(
            self._ready_for_local_init_op, session, "Model not ready for local init"
        )
        if missing is None:
            log.info("Running local_init_op.")
            session.run(self._local_init_op, options=self._local_init_run_options)
            log.info("Done running local_init_op.")
        return missing

    def _lacking(self, session: Session) -> str | None:
        return reason_not_ready(self._ready_op, session, "Model not ready")


def reason_not_ready(ready_op: Any, session: Session, complaint: str) -> str | None:
    """Return the reason why a model isn't ready, None if it is ready.

    A ready_op returns names, or fails (older ones, made by `assert_variables_initialized`).
    """
    if ready_op is None:
        return None
    try:
        found = session.run(ready_op)
    except errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            log.warning("%s : error [%s]", complaint, error)
            raise
        return str(error)
    if found is None or np.size(found) == 0 or np.asarray(found).dtype == np.int32:
        return None
    return "Variables not initialized: " + ", ".join(as_text(name) for name in np.ravel(found))


def _resume(session: Session, saver: Any, restored: str | None) -> None:
    """Restore the saved values of local variables, which were initialised after the restore."""
    if restored is not None and isinstance(saver, Saver) and saver.exact_resume:
        saver.resume(session, restored)


def _name(op: Any) -> Any:
    """Return an operation's name; lists of operations and None unchanged."""
    return getattr(op, "name", op)


def _close_quietly(session: Session) -> None:
    try:
        session.close()
    except Exception as error:
        log.debug("Ignored exception: %s", error)
