"""The base class of optimizers that wrap another one and delegate to it."""

from __future__ import annotations

from typing import Any

from headrace._src.train.optimizers.optimizer import Optimizer

__all__ = ["OptimizerWrapper"]


class OptimizerWrapper(Optimizer):
    """An optimizer whose gradients, slots and variables are those of the one it wraps."""

    def __init__(
        self, optimizer: Optimizer, use_locking: bool | None = None, name: str | None = None
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"expected a tf.train.Optimizer to wrap, got: {optimizer!r}")
        locking = optimizer._use_locking if use_locking is None else use_locking
        super().__init__(locking, name or optimizer.get_name())
        self._optimizer = optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Return the result of the wrapped optimizer's compute_gradients."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def get_slot(self, var: Any, name: str) -> Any:
        """Return a slot of the wrapped optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the wrapped optimizer's slots."""
        return self._optimizer.get_slot_names()

    def variables(self) -> list[Any]:
        """Return the wrapped optimizer's variables."""
        return self._optimizer.variables()
