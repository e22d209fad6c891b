"""`tf.summary.FileWriter`. In: summaries, graphs, logs and run metadata. Out: Events with time and
step, in the event files of a directory.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from typing import Any, ClassVar

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.locks import RLock
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.meta_graph import export_meta_graph
from headrace._src.graph.mode import executing_eagerly
from headrace._src.summary.event_writer import EventFileWriter

__all__ = ["FileWriter", "FileWriterCache"]

_log = logging.getLogger("headrace")


@export("summary.FileWriter")
class FileWriter:
    """Writes summaries and other events of a run to a directory, in the background.

    session: in TensorFlow this session would run the operations that write. The resulting file is
    the same, except that its name ends in ".v2", so here the writer writes it itself.

    State: the tags whose metadata were already written; the tags of runs.
    """

    def __init__(
        self,
        logdir: str | bytes | os.PathLike[str],
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        if executing_eagerly():
            raise RuntimeError(
                "tf.summary.FileWriter is not compatible with eager execution. Use "
                "tf.contrib.summary instead."
            )
        if session is not None:
            if not isinstance(getattr(session, "graph", None), Graph):
                raise TypeError(f"session must be a tf.Session, but got {type(session)}")
            filename_suffix = filename_suffix or ".v2"
        self.event_writer = EventFileWriter(logdir, max_queue, flush_secs, filename_suffix)
        self._closed = False
        self._seen_tags: set[str] = set()
        self._run_tags: set[str] = set()
        if graph is not None or graph_def is not None:
            self.add_graph(graph=graph, graph_def=graph_def)
            self._add_whole_graph(graph if graph_def is None else graph_def)

    def _add_whole_graph(self, graph: Any) -> None:
        """Add the graph with its collections, so that it can be imported from the events."""
        if isinstance(graph, Graph):
            self.add_meta_graph(export_meta_graph(graph=graph))
        else:
            self.add_meta_graph(export_meta_graph(graph_def=graph))

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Add a Summary, serialised or not, such as the value of a summary op.

        The metadata of a tag are written once, with its first value.
        """
        parsed = proto.Summary()
        if isinstance(summary, bytes):
            parsed.MergeFromString(summary)
        else:
            parsed.CopyFrom(summary)
        for value in parsed.value:
            if value.tag in self._seen_tags:
                value.ClearField("metadata")
            self._seen_tags.add(value.tag)
        self._add(proto.Event(summary=parsed), global_step)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Add a SessionLog, which records that a session started, stopped, or saved a
        checkpoint.
        """
        self._add(proto.Event(session_log=session_log), global_step)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Add a graph, for TensorBoard to show."""
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        given = graph if graph is not None else graph_def
        if isinstance(given, Graph):
            if graph is None:
                _log.warning(
                    "When passing a `Graph` object, please use the `graph` named argument instead "
                    "of `graph_def`."
                )
            given = given.as_graph_def(add_shapes=True)
        elif isinstance(given, proto.GraphDef):
            _log.warning(
                "Passing a `GraphDef` to the SummaryWriter is deprecated. Pass a `Graph` object "
                "instead, such as `sess.graph`."
            )
        else:
            raise TypeError(
                "The passed graph must be an instance of `Graph` or the deprecated `GraphDef`"
            )
        self._add(proto.Event(graph_def=given.SerializeToString()), global_step)

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Add a MetaGraphDef."""
        if not isinstance(meta_graph_def, proto.MetaGraphDef):
            raise TypeError(
                f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}"
            )
        self._add(proto.Event(meta_graph_def=meta_graph_def.SerializeToString()), global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Add the trace of one Session.run under a new tag."""
        if tag in self._run_tags:
            raise ValueError("The provided tag was already used for this event type")
        self._run_tags.add(tag)
        tagged = proto.TaggedRunMetadata(tag=tag, run_metadata=run_metadata.SerializeToString())
        self._add(proto.Event(tagged_run_metadata=tagged), global_step)

    def add_event(self, event: Any) -> None:
        """Add an Event unchanged."""
        self._warn_if_closed()
        self.event_writer.add_event(event)

    def _add(self, event: Any, step: Any) -> None:
        event.wall_time = time.time()
        if step is not None:
            event.step = int(step)
        self.add_event(event)

    def get_logdir(self) -> str:
        """Return the directory that events are written to."""
        return self.event_writer.get_logdir()

    def flush(self) -> None:
        """Return when all events so far are in the file."""
        self._warn_if_closed()
        self.event_writer.flush()

    def close(self) -> None:
        """Write all events so far and close the file."""
        self.event_writer.close()
        self._closed = True

    def reopen(self) -> None:
        """Continue after `close`, in a new file."""
        self.event_writer.reopen()
        self._closed = False

    def _warn_if_closed(self) -> None:
        if self._closed:
            warnings.warn(
                "Attempting to use a closed FileWriter. The operation will be a noop unless the "
                "FileWriter is explicitly reopened.",
                stacklevel=3,
            )


@export("summary.FileWriterCache")
class FileWriterCache:
    """A cache with one shared FileWriter per directory."""

    _cache: ClassVar[dict[str, FileWriter]] = {}
    _lock: ClassVar[RLock] = RLock()

    @staticmethod
    def clear() -> None:
        """Close all writers, and forget them."""
        with FileWriterCache._lock:
            for logdir, writer in list(FileWriterCache._cache.items()):
                writer.close()  # a writer that can't be closed stays, and so do those after it
                del FileWriterCache._cache[logdir]

    @staticmethod
    def get(logdir: str) -> FileWriter:
        """Return the writer for a directory; a new writer starts with the default graph."""
        with FileWriterCache._lock:
            writer = FileWriterCache._cache.get(logdir)
            if writer is None:
                writer = FileWriter(logdir, graph=get_default_graph())
                FileWriterCache._cache[logdir] = writer
            return writer
