"""One evaluation. In: a graph that updates metrics. Out: their values after the whole input or a
number of steps, and the same in event files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace._src.core import log, proto
from headrace._src.core.tensor_proto import make_tensor_proto
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.scoped import control_dependencies
from headrace._src.ops.base.define import b
from headrace._src.summary.writer import FileWriterCache
from headrace._src.train.sessions.hooks.feeding import FinalOpsHook
from headrace._src.train.sessions.monitored_session import MonitoredSession
from headrace._src.train.sessions.scaffold import Scaffold
from headrace._src.train.sessions.session_creators import ChiefSessionCreator
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from headrace._src.variables.initializers import Zeros
from headrace._src.variables.lookup import get_variable

__all__ = ["StopAfterEvals", "evaluate_once", "eval_step", "write_results"]


class StopAfterEvals(SessionRunHook):
    """Stops an evaluation after a number of steps, and logs its progress."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._every = 1 if count < 20 else count // 10
        self.done: Any = None  # a tensor: the number of finished steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self.done)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        done = int(run_values.results)
        if done % self._every == 0 or done == self._count:
            log.info("Evaluation [%d/%d]", done, self._count)
        if done >= self._count:
            run_context.request_stop()


def eval_step() -> Any:
    """Return the graph's counter of evaluation steps, a local variable."""
    found = get_default_graph().get_collection(GraphKeys.EVAL_STEP)
    if len(found) > 1:
        raise ValueError("Multiple tensors added to tf.GraphKeys.EVAL_STEP")
    return (
        found[0]
        if found
        else get_variable(
            "eval_step",
            shape=[],
            dtype="int64",
            initializer=Zeros(),
            trainable=False,
            collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.EVAL_STEP],
        )
    )


def evaluate_once(
    checkpoint_path: str | None,
    scaffold: Scaffold | None,
    update_op: Any,
    values: Mapping[str, Any],
    hooks: Sequence[SessionRunHook],
    config: Any,
    master: str,
) -> dict[str, Any]:
    """Run `update_op` until the input ends or a hook stops; then return `values`."""
    updates = [update_op, b.assign_add(eval_step(), 1, use_locking=True)]
    with control_dependencies(updates):
        done = b.identity(eval_step().read_value())
    for hook in hooks:
        if isinstance(hook, StopAfterEvals):
            hook.done = done
    log.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    creator = ChiefSessionCreator(
        scaffold, master, config, checkpoint_filename_with_path=checkpoint_path
    )
    final = FinalOpsHook(values)
    with MonitoredSession(creator, [*hooks, final]) as session:
        while not session.should_stop():
            session.run(updates)
    log.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S", time.gmtime()))
    return final.final_ops_values


def write_results(
    directory: str, results: Mapping[str, Any], step: int, checkpoint_path: str | None
) -> None:
    """Write an evaluation's results as summaries, with the path of their checkpoint."""
    shown = ", ".join(
        f"{k} = {v!s}" for k, v in sorted(results.items()) if not isinstance(v, bytes)
    )
    log.info("Saving dict for global step %d: %s", step, shown)
    summary = proto.Summary()
    for key, value in results.items():
        if key != GraphKeys.GLOBAL_STEP and value is not None:
            _add_value(summary, key, value)
    if checkpoint_path:
        log.info("Saving 'checkpoint_path' summary for global step %d: %s", step, checkpoint_path)
        summary.value.add(tag="checkpoint_path", tensor=make_tensor_proto(checkpoint_path))
    writer = FileWriterCache.get(directory)
    writer.add_summary(summary, step)
    writer.flush()


def _add_value(summary: Any, key: str, value: Any) -> None:
    if isinstance(value, bytes):
        try:
            for i, item in enumerate(proto.Summary.FromString(value).value):
                item.tag = f"{key}/{i}"
                summary.value.append(item)
        except proto.DecodeError:
            log.warning("Skipping summary for %s, cannot parse string to Summary.", key)
    elif isinstance(value, np.ndarray) and value.ndim:
        summary.value.add(tag=key, node_name=key, tensor=make_tensor_proto(value))
    elif isinstance(value, int | float | np.number | np.ndarray):
        summary.value.add(tag=key, simple_value=float(value))
    else:
        log.warning("Skipping summary for %s: it's no number, array or serialized Summary.", key)
