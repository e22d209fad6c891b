"""SyncReplicasOptimizer: one update from the gradients of several workers.

In: an optimizer, and the (gradient, variable) pairs that each worker computes. Out: an operation
that a worker runs for each batch, and a queue runner in which the chief applies updates.

Each variable has an accumulator on its own device. A worker adds its gradients, with the global
step at which it read the variables, and waits for a token. The chief takes the mean of each
accumulator as soon as it has enough gradients, applies the update, and adds a token for every
worker, which holds the new global step (OSDI'16 §4.4). A gradient of an earlier step is dropped by
the accumulator, which counts it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core import dtypes, log
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import name_scope
from headrace._src.ops.control.grouping import group, no_op
from headrace._src.ops.state.accumulator_ops import (
    ConditionalAccumulator,
    ConditionalAccumulatorBase,
    SparseConditionalAccumulator,
)
from headrace._src.ops.state.queue_classes import FIFOQueue
from headrace._src.train.inputs.queue_runners import QueueRunner
from headrace._src.train.optimizers.moving_averages import ExponentialMovingAverage
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.replicas.tuning import BackupTuning
from headrace._src.train.sessions.session_manager import reason_not_ready
from headrace._src.train.sessions.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from headrace._src.variables.collections import global_variables, report_uninitialized_variables
from headrace._src.variables.variable import Variable

__all__ = ["SyncReplicasOptimizer"]


@export("train.SyncReplicasOptimizer")
class SyncReplicasOptimizer(Optimizer):
    """An optimizer that updates variables once `replicas_to_aggregate` workers have sent gradients.

    opt                    the optimizer that computes gradients and applies their means
    replicas_to_aggregate  the number of gradients of one update
    total_num_replicas     the number of workers; the same number if None. More workers than
                           gradients: the others are backup workers, and gradients that come too
                           late are dropped. Fewer: workers compute several batches per update.
                           "auto" (not in TensorFlow): the number of backup workers is chosen from
                           the measured times of all workers' batches, and again as they change
    variable_averages      an ExponentialMovingAverage to maintain, of `variables_to_average`

    The training session needs the hook of `make_session_run_hook`.
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int | str,
        total_num_replicas: int | None = None,
        variable_averages: ExponentialMovingAverage | None = None,
        variables_to_average: Any = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        super().__init__(use_locking, name)
        self._tuning: BackupTuning | None = None
        if isinstance(replicas_to_aggregate, str):
            if replicas_to_aggregate != "auto" or total_num_replicas is None:
                raise ValueError(
                    "replicas_to_aggregate must be a number, or 'auto' with total_num_replicas: "
                    f"{replicas_to_aggregate!r}, {total_num_replicas}"
                )
            self._tuning = BackupTuning(total_num_replicas)
            replicas_to_aggregate = total_num_replicas
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        log.info(
            "SyncReplicasV2: replicas_to_aggregate=%s; total_num_replicas=%s",
            *(replicas_to_aggregate, total),
        )
        self._opt = opt
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = total
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._accumulators: list[tuple[ConditionalAccumulatorBase, str]] = []
        self._global_step: Any = None
        self._local_step: Any = None
        self._sync_token_queue: Any = None
        self._chief_queue_runner: QueueRunner | None = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the result of the wrapped optimizer's compute_gradients: gradients of this worker,
        which may be clipped before they are averaged.
        """
        return self._opt.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return the names of the wrapped optimizer's slots."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """Return the wrapped optimizer's variables."""
        return self._opt.variables()

    # -- The graph ---------------------------------------------------------------------------------

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Return the operation of one worker's step: it adds its gradients, and waits for a token.

        global_step: a variable that counts the updates, and by which late gradients are recognised.
        name: of the operation (TensorFlow ignores it).
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        graph = get_default_graph()
        self._global_step = global_step
        with graph.colocate_with(no_op()):
            self._local_step = Variable(
                0,
                trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES],
                dtype=global_step.dtype.base_dtype,
                name="sync_rep_local_step",
            )
        if self._tuning is not None:
            self._tuning.build(global_step, self._local_step)
        self.local_step_init_op = b.assign(self._local_step, global_step)
        self.ready_for_local_init_op = report_uninitialized_variables(global_variables())
        with name_scope(None, self._name):
            sent, means = [], []
            for gradient, variable in pairs:
                if gradient is None:
                    means.append((None, variable))
                    continue
                with graph.device(variable.device):
                    apply, mean = self._accumulate(gradient, variable)
                sent.append(apply)
                means.append((mean, variable))
            with graph.device(global_step.device), name_scope(""):
                update = self._opt.apply_gradients(means, global_step)
                step = self._exchange_tokens(sent, update, name)
            self.chief_init_op = self._init_chief()
        return step

    def _accumulate(self, gradient: Any, variable: Any) -> tuple[Operation, Any]:
        """Return the operation that adds a worker's gradient, and the mean over workers."""
        step = self._local_step
        required = self._replicas_to_aggregate if self._tuning is None else self._tuning.required
        shared = f"{variable.name}/grad_accum"
        accumulator: Any
        if isinstance(gradient, Tensor):
            accumulator = ConditionalAccumulator(
                gradient.dtype, shape=variable.get_shape(), shared_name=shared
            )
            parts = accumulator.apply_grad(gradient, step), accumulator.take_grad(required)
        elif isinstance(gradient, IndexedSlices):
            accumulator = SparseConditionalAccumulator(gradient.dtype, shape=(), shared_name=shared)
            add = accumulator.apply_indexed_slices_grad(gradient, step)
            parts = add, accumulator.take_indexed_slices_grad(required)
        else:
            raise ValueError(f"Unknown grad type! The gradient of {variable.name} is {gradient}")
        self._accumulators.append((accumulator, variable.device))
        return parts

    def _exchange_tokens(self, sent: list[Operation], update: Operation, name: str | None) -> Any:
        """Return the operation by which a worker waits for a token; make the chief's runner, which
        adds tokens after each update.
        """
        graph, global_step = get_default_graph(), self._global_step
        tokens = FIFOQueue(
            -1,
            global_step.dtype.base_dtype,
            shapes=(),
            name="sync_token_q",
            shared_name="sync_token_q",
        )
        # A queue runner belongs to a queue; nothing enters this one.
        unused = FIFOQueue(
            1, dtypes.int32, shapes=(), name="dummy_queue", shared_name="dummy_queue"
        )
        self._sync_token_queue = tokens
        with graph.control_dependencies(sent):
            token = tokens.dequeue()
        if self._tuning is not None:
            token = self._tuning.timed(sent, token)
        step = b.assign(self._local_step, token, name=name)
        with graph.control_dependencies([update]):
            count = max(self._total_num_replicas, self._replicas_to_aggregate)
            synced: Operation = tokens.enqueue_many((b.fill([count], global_step),))
        if self._variable_averages is not None:
            with graph.control_dependencies([synced]), name_scope(""):
                synced = self._variable_averages.apply(self._variables_to_average)
        self._chief_queue_runner = _UpdateRunner(unused, [synced])
        return step

    def _init_chief(self) -> Operation:
        inits: list[Any] = [self.local_step_init_op]
        for accumulator, device in self._accumulators:
            with get_default_graph().device(device):
                inits.append(accumulator.set_global_step(self._global_step, name="SetGlobalStep"))
        return group(*inits)

    # -- For the session ---------------------------------------------------------------------------

    def get_chief_queue_runner(self) -> QueueRunner:
        """Return the runner in which the chief applies updates and adds tokens."""
        if self._chief_queue_runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._chief_queue_runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """Return an operation that adds the first `num_tokens` tokens (-1: as many as gradients
        make an update). With fewer workers than gradients per update, the first update needs them.
        """
        if self._chief_queue_runner is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        needed = self._replicas_to_aggregate - self._total_num_replicas
        if num_tokens == -1:
            num_tokens = self._replicas_to_aggregate
        elif num_tokens < needed:
            raise ValueError(
                f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} "
                "(needed)"
            )
        if num_tokens <= 0:
            return no_op(name="no_init_tokens")
        with get_default_graph().device(self._global_step.device), name_scope(""):
            tokens = b.fill([num_tokens], self._global_step)
            return self._sync_token_queue.enqueue_many((tokens,))

    def num_dropped(self) -> Tensor:
        """Return the number of batches so far whose gradients came too late and were dropped.

        TensorFlow doesn't count them. A batch counts if a gradient of any variable was dropped.
        """
        if self._chief_queue_runner is None:
            raise ValueError("num_dropped() should be called after apply_gradients().")
        graph, counts = get_default_graph(), []
        with name_scope("num_dropped"):
            for accumulator, device in self._accumulators:
                with graph.device(device):
                    counts.append(accumulator.num_dropped())
            with graph.device(self._global_step.device):
                return b.reduce_max(b.stack(counts))

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SessionRunHook:
        """Return the hook that a worker's session needs: it initialises the worker's step; the
        chief's hook also adds the first tokens and starts to apply updates.
        """
        return _SyncReplicasHook(self, is_chief, num_tokens, self._tuning)


class _UpdateRunner(QueueRunner):
    """Applies updates until the session is closed. A coordinator does not wait for the thread,
    which may wait for gradients that no worker computes any more (TensorFlow: for two minutes).
    """

    _joined = False


class _SyncReplicasHook(SessionRunHook):
    """Initialises a worker's part of synchronous training."""

    def __init__(
        self,
        optimizer: SyncReplicasOptimizer,
        is_chief: bool,
        num_tokens: int,
        tuning: BackupTuning | None,
    ) -> None:
        self._optimizer = optimizer
        self._tuning = tuning
        self._is_chief = is_chief
        self._num_tokens = num_tokens

    def begin(self) -> None:
        optimizer = self._optimizer
        if optimizer._chief_queue_runner is None:
            raise ValueError(
                "SyncReplicasOptimizer.apply_gradient should be called before using the hook."
            )
        self._init: list[Operation] = [optimizer.local_step_init_op.op]
        self._runner: QueueRunner | None = None
        if self._is_chief:
            self._runner = optimizer.get_chief_queue_runner()
            tokens = optimizer.get_init_tokens_op(self._num_tokens)
            self._init = [optimizer.chief_init_op, tokens]

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Initialise; RuntimeError if the model's variables have no values."""
        complaint = "Model is not ready for SyncReplicasOptimizer local init."
        lacking = reason_not_ready(self._optimizer.ready_for_local_init_op, session, complaint)
        if lacking is not None:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init. "
                f"Init op: {self._init[0].name}, error: {lacking}"
            )
        for init in self._init:
            session.run(init)
        if self._runner is not None:
            self._runner.create_threads(session, coord=coord, daemon=True, start=True)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return None if self._tuning is None else SessionRunArgs(self._tuning.times)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._tuning is not None:
            self._tuning.note(run_context.session, run_values.results, self._is_chief)
