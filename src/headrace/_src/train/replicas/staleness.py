"""StalenessHook: how old the variables are that gradients were computed with. In: the operation
that trains. Out: a number per update of this worker, in the log and as summaries.

The staleness of an update is the number of updates by other workers between this worker's read of
the variables and its own update: the global step when the update is applied, minus the global step
just before the variables are read. It is 0 with one worker, and about n - 1 with n workers of equal
speed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace._src.core import dtypes, log, nest, proto
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.summary.writer import FileWriterCache
from headrace._src.train.replicas.sync_replicas import SyncReplicasOptimizer
from headrace._src.train.sessions.global_step import get_global_step
from headrace._src.train.sessions.hooks.timers import SecondOrStepTimer
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from headrace._src.variables.collections import trainable_variables

__all__ = ["StalenessHook"]


@export("train.StalenessHook")
class StalenessHook(SessionRunHook):
    """Measures the staleness of each update of this worker; TensorFlow has no such hook.

    train_op       the operation that `Optimizer.minimize` or `apply_gradients` has returned. Runs
                   that do not fetch it are not counted.
    every_n_steps  how often (by the global step) the log is told, and summaries are written
    output_dir     where summaries go (`staleness/mean`, `staleness/max`, and `dropped_gradients`
                   with an optimizer); None: nowhere
    optimizer      a SyncReplicasOptimizer: its late gradients are counted, not applied

    counts: how many updates had which staleness. dropped: of the optimizer, at the last report.
    """

    def __init__(
        self,
        train_op: Any,
        every_n_steps: int = 100,
        output_dir: str | None = None,
        optimizer: SyncReplicasOptimizer | None = None,
    ) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be positive: {every_n_steps}")
        self._train_op = getattr(train_op, "op", train_op)
        self._timer = SecondOrStepTimer(every_steps=every_n_steps)
        self._output_dir = output_dir
        self._optimizer = optimizer
        self.counts: Counter[int] = Counter()
        self.dropped = 0
        self._recent: Counter[int] = Counter()

    @property
    def mean(self) -> float:
        """The mean staleness of all updates so far; NaN before the first one."""
        return _mean(self.counts)

    def begin(self) -> None:
        graph, step = get_default_graph(), get_global_step()
        if step is None:
            raise RuntimeError("Global step should be created to use StalenessHook.")
        with name_scope("staleness"), graph.colocate_with(step.op):
            # A copy: an Identity could share the variable's memory, which others write.
            before = b.cast(step, dtypes.float64, name="before")
            self._read_first(before.op)
            with graph.control_dependencies([self._train_op]):
                after = b.identity(step.read_value(), name="after")
        self._steps = [before, after]
        self._dropped = None if self._optimizer is None else self._optimizer.num_dropped()
        if self._output_dir is not None:
            self._writer = FileWriterCache.get(self._output_dir)

    def _read_first(self, before: Operation) -> None:
        """Let everything that uses a variable for the update wait for the read of the global step:
        nothing else would keep that read from coming last.
        """
        needed, stack = set(), [self._train_op]
        while stack:
            op = stack.pop()
            if op not in needed:
                needed.add(op)
                stack += [t.op for t in op.inputs] + list(op.control_inputs)
        for variable in trainable_variables():
            for source in variable.op.outputs:
                for user in source.consumers():
                    if user in needed:
                        user._add_control_input(before)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        fetched = nest.flatten(run_context.original_args.fetches)
        graph = run_context.session.graph
        trains = any(_operation(graph, f) is self._train_op for f in fetched)
        return SessionRunArgs(self._steps) if trains else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if run_values.results is None:
            return
        before, after = map(int, run_values.results)
        # A synchronous update is made by the chief: this worker's gradients counted or did not.
        staleness = max(0, after - before - 1)
        self.counts[staleness] += 1
        self._recent[staleness] += 1
        if self._timer.should_trigger_for_step(after):
            self._timer.update_last_triggered_step(after)
            self._tell(run_context.session, after)

    def end(self, session: Any) -> None:
        if self._dropped is not None:
            self.dropped = int(session.run(self._dropped))

    def _tell(self, session: Any, step: int) -> None:
        values = {
            "staleness/mean": _mean(self._recent),
            "staleness/max": float(max(self._recent)),
        }
        text = "staleness of {} updates: mean {:.2f}, max {}".format(
            self._recent.total(), values["staleness/mean"], max(self._recent)
        )
        if self._dropped is not None:
            self.dropped = int(session.run(self._dropped))
            values["dropped_gradients"] = float(self.dropped)
            text += f"; {self.dropped} late gradients dropped"
        log.info("%s", text)
        self._recent.clear()
        if self._output_dir is not None:
            summary = proto.Summary()
            for tag, value in values.items():
                summary.value.add(tag=tag, simple_value=value)
            self._writer.add_summary(summary, step)


def _operation(graph: Any, fetch: Any) -> Any:
    """Return the operation of a fetch, by its object or name."""
    try:
        found = graph.as_graph_element(fetch)
    except (TypeError, ValueError, KeyError):
        return None  # a variable's handle, a composite: not what trains
    return getattr(found, "op", found)


def _mean(counts: Counter[int]) -> float:
    total = counts.total()
    return sum(value * n for value, n in counts.items()) / total if total else float("nan")
