"""Session creators: how a monitored session gets a session, at first and after each failure.

The chief's creator restores variables from a checkpoint or initialises them; a worker's waits for
that. Both finalize their Scaffold, and with it the graph.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_manager import SessionManager

__all__ = ["ChiefSessionCreator", "SessionCreator", "WorkerSessionCreator"]


@export("train.SessionCreator")
class SessionCreator(metaclass=ABCMeta):
    """Makes sessions for a monitored session."""

    @abstractmethod
    def create_session(self) -> Any:
        """Return a new session, a tf.Session or a wrapper, whose model is ready."""


class _ScaffoldedCreator(SessionCreator):
    """The base class of creators. State: the manager, made with the first session."""

    def __init__(self, scaffold: Scaffold | None, master: str | bytes, config: Any) -> None:
        self._scaffold = scaffold or Scaffold()
        self._master = master
        self._config = config
        self._manager: SessionManager | None = None

    def _finalized(self) -> SessionManager:
        """Return the manager, configured from the scaffold."""
        self._scaffold.finalize()
        if self._manager is None:
            self._manager = SessionManager(
                local_init_op=self._scaffold.local_init_op,
                ready_op=self._scaffold.ready_op,
                ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
                graph=get_default_graph(),
            )
        return self._manager


@export("train.ChiefSessionCreator")
class ChiefSessionCreator(_ScaffoldedCreator):
    """Restores the latest checkpoint of a directory, or a given one, or else initialises.

    master: the target of a server, or "" for this process. config: a ConfigProto.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str | bytes = "",
        config: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename = checkpoint_filename_with_path

    def create_session(self) -> Any:
        manager = self._finalized()
        return manager.prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )


@export("train.WorkerSessionCreator")
class WorkerSessionCreator(_ScaffoldedCreator):
    """Waits until the chief has initialised the variables, for at most `max_wait_secs`."""

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str | bytes = "",
        config: Any = None,
        max_wait_secs: float | None = 30 * 60,
    ) -> None:
        super().__init__(scaffold, master, config)
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Any:
        manager = self._finalized()
        return manager.wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )
