"""BackupTuning: lets SyncReplicasOptimizer choose the number of its backup workers. In: the times
of all workers' batches. Out: a variable with the number of gradients that an update needs.

A worker's batch takes from the token that began it to the arrival of its gradients. The task of the
global step tells both times, so no two clocks are compared. Each worker sends its times, a few at a
time, through a queue on that task to the chief, which simulates steps (`backups.py`) and sets the
variable when another number of backup workers is better.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from headrace._src.core import dtypes, log
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.state.queue_classes import FIFOQueue
from headrace._src.train.replicas.backups import choose_backups
from headrace._src.variables.variable import Variable

__all__ = ["BackupTuning"]

_SENT = 10  # times that a worker sends at once
_FEWEST, _MOST = 20, 200  # times of each worker that a choice needs, and those that it considers
# New times of each worker between two choices: twice as many each time that nothing changes, since
# a choice takes the chief a few tenths of a second.
_AFTER, _LONGEST = 50, 1600


class BackupTuning:
    """The graph of the choice, and what a session's hook has seen of it.

    required: the variable, which begins with all workers. times: a variable of this worker: when
    its batch began, and how long the last one took.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.chosen = total
        self._own: list[float] = []
        self._last = 0.0
        self._seen: dict[bytes, deque[float]] = {}
        self._new, self._after = 0, _AFTER

    # -- The graph ---------------------------------------------------------------------------------

    def build(self, global_step: Any, local_step: Any) -> None:
        """Make the variables and the queue."""
        graph = get_default_graph()
        self._place = global_step.device
        with graph.device(self._place), name_scope("sync_rep_tuning"):
            self.required = Variable(
                self._total, trainable=False, dtype=dtypes.int32, name="replicas_to_aggregate"
            )
            self._given = placeholder(dtypes.int32, [])
            self._set = b.assign(self.required, self._given)
            queue = FIFOQueue(
                -1,
                [dtypes.string, dtypes.float64],
                shapes=[[], [_SENT]],
                name="step_times",
                shared_name="sync_rep_step_times",
            )
            self._filled = placeholder(dtypes.float64, [_SENT])
            self._send = queue.enqueue([local_step.device or "worker", self._filled])
            self._held, self._number = queue.size(), placeholder(dtypes.int32, [])
            self._receive = queue.dequeue_many(self._number)
        with graph.colocate_with(local_step.op), name_scope("sync_rep_tuning"):
            self.times = Variable(
                np.zeros(2),
                trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES],
                name="step_times_of_worker",
            )

    def timed(self, sent: list[Any], token: Any) -> Any:
        """Return the token, once the times of the batch and of the token are noted."""
        graph = get_default_graph()
        with graph.control_dependencies(sent):
            arrived = b.timestamp()
        with graph.control_dependencies([token]):
            began = b.timestamp()
        with graph.colocate_with(self.times.op):
            noted = b.assign(self.times, b.stack([began, arrived - self.times[0]]))
        with graph.control_dependencies([noted]):
            return b.identity(token)

    # -- Sessions ----------------------------------------------------------------------------------

    def note(self, session: Any, times: Any, is_chief: bool) -> None:
        """Take the times that a run has seen, those of the batch before; send them or choose."""
        began, seconds = map(float, times)
        if began == self._last:  # this run was no step
            return
        first, self._last = self._last == 0.0, began
        if first or seconds <= 0:
            return
        self._own.append(seconds)
        if len(self._own) == _SENT:
            session.run(self._send, {self._filled: self._own})
            self._own = []
            if is_chief:
                self._choose(session)

    def _choose(self, session: Any) -> None:
        held = int(session.run(self._held))
        names, times = session.run(self._receive, {self._number: held})
        for name, found in zip(names, times, strict=True):
            self._seen.setdefault(name, deque(maxlen=_MOST)).extend(found)
            self._new += _SENT
        ready = len(self._seen) == self._total
        if not ready or min(map(len, self._seen.values())) < _FEWEST:
            return
        if self._new < self._after * self._total:
            return
        self._new, self._after = 0, min(2 * self._after, _LONGEST)
        best = choose_backups([list(found) for found in self._seen.values()])
        if self._total - best.backups != self.chosen:
            self.chosen, self._after = self._total - best.backups, _AFTER
            log.info(
                "SyncReplicasOptimizer: %d backup workers of %d from now on; %.1f ms per step are "
                "expected, and %.0f %% of the batches are computed in vain",
                *(best.backups, self._total, best.step_secs * 1e3, best.dropped * 100),
            )
            session.run(self._set, {self._given: self.chosen})
