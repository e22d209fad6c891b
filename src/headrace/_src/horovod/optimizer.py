"""hvd.DistributedOptimizer, and the hook that gives all ranks the same variables at the start."""

from __future__ import annotations

from typing import Any

from headrace._src.collectives.communicator import Solo
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.horovod.functions import (
    Average,
    Compression,
    allreduce_all,
    broadcast_global_variables,
    reduction,
)
from headrace._src.horovod.process import communicator
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.train.optimizers.optimizer_wrapper import OptimizerWrapper
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = ["BroadcastGlobalVariablesHook", "DistributedOptimizer"]


class _DistributedOptimizer(OptimizerWrapper):
    """An optimizer that averages gradients over all ranks before the wrapped one applies them."""

    def __init__(
        self,
        optimizer: Optimizer,
        name: str,
        use_locking: bool,
        device_dense: str,
        device_sparse: str,
        compression: Any,
        sparse_as_dense: bool,
        kind: int,
    ) -> None:
        super().__init__(optimizer, use_locking, name)
        self._devices = device_dense, device_sparse
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._kind = kind

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the wrapped optimizer's gradients, averaged over all ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        if isinstance(communicator(), Solo):
            return pairs
        gradients = [g for g, _ in pairs]
        if self._sparse_as_dense:
            gradients = [
                convert_to_tensor(g) if isinstance(g, IndexedSlices) else g for g in gradients
            ]
        with get_default_graph().name_scope(f"{self._name}_Allreduce") as scope:
            found = allreduce_all(gradients, self._kind, self._compression, *self._devices, scope)
        return [(g, v) for g, (_, v) in zip(found, pairs, strict=True)]

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Let the wrapped optimizer apply gradients."""
        return self._optimizer.apply_gradients(*args, **kwargs)


@export("horovod.DistributedOptimizer")
def DistributedOptimizer(
    optimizer: Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
) -> Optimizer:
    """Return an optimizer that applies the average of all ranks' gradients, or their sum (op).

    sparse_as_dense: whether IndexedSlices become dense tensors before, instead of being gathered.
    For the other arguments see hvd.allreduce.
    """
    if backward_passes_per_step != 1:
        raise ValueError("backward_passes_per_step>1 is not supported yet with op != Adasum")
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"Provided optimizer is not a tf.train.Optimizer: {optimizer!r}")
    name = name or f"Distributed{type(optimizer).__name__}"
    return _DistributedOptimizer(
        optimizer,
        name,
        use_locking,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        reduction(None, op),
    )


@export("horovod.BroadcastGlobalVariablesHook")
class BroadcastGlobalVariablesHook(SessionRunHook):
    """Gives all ranks the global variables of `root_rank` when a session is made, so that all begin
    with the same random or restored values. device: where the broadcasts are.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Add the broadcasts to the graph."""
        if self.bcast_op is None or self.bcast_op.graph is not get_default_graph():
            with get_default_graph().device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run them."""
        session.run(self.bcast_op)
