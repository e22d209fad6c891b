"""ReexecutionHook: another worker repeats the batch that a slow one still computes, as MapReduce's
backup tasks do. In: a SyncReplicasOptimizer without backup workers. Out: more tokens, when an
update takes long.

Backup workers are proactive: they compute in every step. Re-execution is reactive: only when an
update takes longer than `patience` times the usual time, as many tokens are added as gradients are
missing. A worker that is done with its own batch takes one, and computes another batch of the same
step. The update happens with whichever gradients come first; the slow worker's come late, and are
dropped.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from typing import Any

from headrace._src.core import errors
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.train.replicas.sync_replicas import SyncReplicasOptimizer
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = ["ReexecutionHook"]

_REMEMBERED = 50  # updates whose times say what is usual
_FEWEST = 5  # updates before anything is repeated


@export("train.ReexecutionHook")
class ReexecutionHook(SessionRunHook):
    """For the chief's session: repeats batches of updates that take long. TensorFlow has no such
    hook.

    optimizer  whose apply_gradients has been called
    patience   how many times longer than the median of recent updates an update has to take; less
               than 2 repeats batches in vain where workers have come out of step

    repeated: how many batches were given to another worker.
    """

    def __init__(self, optimizer: SyncReplicasOptimizer, patience: float = 2.5) -> None:
        if patience <= 1:
            raise ValueError(f"patience must be more than 1: {patience}")
        self._optimizer = optimizer
        self._patience = patience
        self.repeated = 0

    def begin(self) -> None:
        optimizer, graph = self._optimizer, get_default_graph()
        if not optimizer._accumulators:
            raise ValueError(
                "SyncReplicasOptimizer.apply_gradient should be called before using the hook."
            )
        step = optimizer._global_step
        with name_scope("reexecution"), graph.device(step.device):
            with graph.device(optimizer._accumulators[0][1]):
                received = optimizer._accumulators[0][0].num_accumulated()
            self._state = [b.identity(step), received]
            self._label = placeholder(step.dtype.base_dtype, [None])
            self._repeat = optimizer._sync_token_queue.enqueue_many((self._label,))

    def after_create_session(self, session: Any, coord: Any) -> None:
        thread = threading.Thread(
            target=self._watch, args=(session, coord), name="ReexecutionHook", daemon=True
        )
        thread.start()  # it ends with the session; a coordinator need not wait for it

    def _watch(self, session: Any, coord: Any) -> None:
        """Look at the update under way, some times per usual duration."""
        times: deque[float] = deque(maxlen=_REMEMBERED)
        look = session.make_callable(self._state)
        repeat = session.make_callable(self._repeat, [self._label])
        current, began, helped = -1, time.monotonic(), False
        pause = 0.005
        while not coord.wait_for_stop(pause):
            try:
                step, received = map(int, look())
            except (errors.OpError, RuntimeError):  # the session has ended or is made again
                return
            now = time.monotonic()
            if step != current:
                if current >= 0 and not helped:
                    times.append((now - began) / max(1, step - current))
                current, began, helped = step, now, False
                continue
            if len(times) < _FEWEST or helped:
                continue
            usual = statistics.median(times)
            pause = min(max(usual / 10, 0.001), 0.1)
            missing = self._optimizer._replicas_to_aggregate - received
            if received and missing > 0 and now - began > self._patience * usual:
                try:
                    repeat([step] * missing)
                except (errors.OpError, RuntimeError):
                    return
                self.repeated += missing
                helped = True
