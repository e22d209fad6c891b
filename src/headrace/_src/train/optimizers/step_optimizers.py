"""Optimizers whose update of a variable is one op, such as ApplyMomentum: four ops each, for
references and handles, whole gradients and rows. The ops' formulas are in `ops/training_ops`,
`ops/proximal_training_ops`.

A class names the op (`_step`) and maps its arguments to slots and hyperparameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.array.constants_and_placeholders import identity
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.variables.initializers import Constant, Ones

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "StepOptimizer",
]


_Pairs = tuple[tuple[str, str], ...]


class StepOptimizer(Optimizer):
    """An optimizer with one op per update.

    State: `_settings`, hyperparameters by name: numbers, tensors or functions that return one; and
    `_tensors`, which `_prepare` makes from them.
    """

    _step: str  # the op's name without "apply_" and its prefix
    _slot_arguments: _Pairs = ()  # of the op: argument and slot
    _numbers: _Pairs = ()  # of the op: argument and hyperparameter
    _gradient_argument = "grad"  # of the op for whole gradients

    def __init__(self, use_locking: bool, name: str, settings: Mapping[str, Any]) -> None:
        super().__init__(use_locking, name)
        self._settings = dict(settings)
        self._tensors: dict[str, Tensor] = {}

    def _prepare(self) -> None:
        self._tensors = {
            name: convert_to_tensor(self._call_if_callable(value), name=name)
            for name, value in self._settings.items()
        }

    def _operands(self, var: Any) -> dict[str, Any]:
        """Return the op's scalars, in the variable's dtype."""
        dtype = var.dtype.base_dtype
        return {a: b.cast(self._tensors[name], dtype) for a, name in self._numbers}

    def _options(self) -> dict[str, Any]:
        """The op's attributes."""
        return {}

    def _run(self, kind: str, var: Any, **gradient: Any) -> Any:
        apply = getattr(b, f"{kind}apply_{self._step}")
        variables = {"var": var}
        variables |= {a: self.get_slot(var, name) for a, name in self._slot_arguments}
        if kind.startswith("resource"):
            variables = {a: v.handle for a, v in variables.items()}
        else:
            variables = {a: v._ref() for a, v in variables.items()}
        operands = self._operands(var)
        return apply(
            **variables, **operands, **gradient, **self._options(), use_locking=self._use_locking
        )

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._run("", var, **{self._gradient_argument: grad}).op

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._run("resource_", var, **{self._gradient_argument: grad})

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        return self._run("sparse_", var, grad=grad.values, indices=grad.indices).op

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Operation:
        return self._run("resource_sparse_", var, grad=grad, indices=indices)


@export("train.GradientDescentOptimizer")
class GradientDescentOptimizer(StepOptimizer):
    """Subtract the learning rate times the gradient."""

    _step = "gradient_descent"
    _numbers = (("alpha", "learning_rate"),)
    _gradient_argument = "delta"

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name, {"learning_rate": learning_rate})

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Operation:
        rate = b.cast(self._tensors["learning_rate"], var.dtype.base_dtype)
        step = IndexedSlices(grad.values * rate, grad.indices, grad.dense_shape)
        return var.scatter_sub(step, use_locking=self._use_locking).op

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, var: Any, indices: Tensor
    ) -> Operation:
        rate = self._call_if_callable(self._settings["learning_rate"])
        return b.resource_scatter_add(var.handle, indices, -grad * rate)


@export("train.MomentumOptimizer")
class MomentumOptimizer(StepOptimizer):
    """Step along a sum of gradients in which old ones decay by `momentum`; with `use_nesterov`, as
    if the next step had already been taken.
    """

    _step = "momentum"
    _slot_arguments = (("accum", "momentum"),)
    _numbers = (("lr", "learning_rate"), ("momentum", "momentum"))

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        settings = {"learning_rate": learning_rate, "momentum": momentum}
        super().__init__(use_locking, name, settings)
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _options(self) -> dict[str, Any]:
        return {"use_nesterov": self._use_nesterov}


@export("train.AdagradOptimizer")
class AdagradOptimizer(StepOptimizer):
    """Divide gradients by the square root of the sum of their squares so far."""

    _step = "adagrad"
    _slot_arguments = (("accum", "accumulator"),)
    _numbers = (("lr", "learning_rate"),)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        _check_positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name, {"learning_rate": learning_rate})
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            initializer = Constant(self._initial_accumulator_value, dtype=dtype)
            self._get_or_make_slot_with_initializer(
                var, initializer, var.shape, dtype, "accumulator", self._name
            )


@export("train.AdagradDAOptimizer")
class AdagradDAOptimizer(StepOptimizer):
    """Dual averaging: the variable is computed from the sums of all gradients and of their squares,
    and from their number. Meant for sparse models: `l1` gives exact zeros.
    """

    _step = "adagrad_da"
    _slot_arguments = (
        ("gradient_accumulator", "gradient_accumulator"),
        ("gradient_squared_accumulator", "gradient_squared_accumulator"),
    )

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        _check_positive(
            "initial_gradient_squared_accumulator_value", initial_gradient_squared_accumulator_value
        )
        super().__init__(use_locking, name, {"learning_rate": learning_rate})
        self._initial_squares = initial_gradient_squared_accumulator_value
        self._l1 = l1_regularization_strength
        self._l2 = l2_regularization_strength
        self._global_step = global_step
        self._next_step: Any = None

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            with get_default_graph().colocate_with(var):
                sums = b.constant(0.0, shape=var.shape, dtype=dtype)
                squares = b.constant(self._initial_squares, shape=var.shape, dtype=dtype)
            self._get_or_make_slot(var, sums, "gradient_accumulator", self._name)
            self._get_or_make_slot(var, squares, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        with get_default_graph().colocate_with(self._tensors["learning_rate"]):
            self._next_step = identity(self._global_step) + 1

    def _operands(self, var: Any) -> dict[str, Any]:
        dtype = var.dtype.base_dtype
        with get_default_graph().device(var.device):
            step = identity(self._next_step)
        return {
            "lr": b.cast(self._tensors["learning_rate"], dtype),
            "l1": b.cast(self._l1, dtype),
            "l2": b.cast(self._l2, dtype),
            "global_step": step,
        }


@export("train.AdadeltaOptimizer")
class AdadeltaOptimizer(StepOptimizer):
    """Scale gradients by the ratio of the recent magnitudes of steps and of gradients."""

    _step = "adadelta"
    _slot_arguments = (("accum", "accum"), ("accum_update", "accum_update"))
    _numbers = (("lr", "lr"), ("rho", "rho"), ("epsilon", "epsilon"))

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name, {"lr": learning_rate, "rho": rho, "epsilon": epsilon})

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "accum", self._name)
            self._zeros_slot(var, "accum_update", self._name)


@export("train.RMSPropOptimizer")
class RMSPropOptimizer(StepOptimizer):
    """Divide gradients by the square root of the running mean of their squares, or, if `centered`,
    by their running standard deviation.
    """

    _numbers = (
        ("lr", "learning_rate"),
        ("rho", "decay"),
        ("momentum", "momentum"),
        ("epsilon", "epsilon"),
    )

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        settings = {
            "learning_rate": learning_rate,
            "decay": decay,
            "momentum": momentum,
            "epsilon": epsilon,
        }
        super().__init__(use_locking, name, settings)
        self._centered = centered
        self._step = "centered_rms_prop" if centered else "rms_prop"
        means = (("mg", "mg"),) if centered else ()
        self._slot_arguments = (*means, ("ms", "rms"), ("mom", "momentum"))

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            dtype = var.dtype.base_dtype
            self._get_or_make_slot_with_initializer(
                var, Ones(dtype=dtype), var.shape, dtype, "rms", self._name
            )
            if self._centered:
                self._zeros_slot(var, "mg", self._name)
            self._zeros_slot(var, "momentum", self._name)


@export("train.FtrlOptimizer")
class FtrlOptimizer(StepOptimizer):
    """Follow the regularized leader: for sparse models with very many features.

    l2_shrinkage_regularization_strength adds a penalty of magnitudes to the loss's gradient, so
    that it also acts on weights whose gradients are zero.
    """

    _slot_arguments = (("accum", "accum"), ("linear", "linear"))

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        settings = {
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        for argument, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            *settings.items(),
        ):
            if value < 0.0:
                raise ValueError(f"{argument} {value:f} needs to be positive or zero")
        if learning_rate_power > 0.0:
            raise ValueError(
                f"learning_rate_power {learning_rate_power:f} needs to be negative or zero"
            )
        super().__init__(
            use_locking,
            name,
            {
                "learning_rate": learning_rate,
                **settings,
                "learning_rate_power": learning_rate_power,
            },
        )
        self._initial_accumulator_value = initial_accumulator_value
        self._accum_name = accum_name or name
        self._linear_name = linear_name or name
        shrinks = l2_shrinkage_regularization_strength > 0
        self._step = "ftrl_v2" if shrinks else "ftrl"
        shrinkage = (("l2_shrinkage", "l2_shrinkage_regularization_strength"),) if shrinks else ()
        self._numbers = (
            ("lr", "learning_rate"),
            ("l1", "l1_regularization_strength"),
            ("l2", "l2_regularization_strength"),
            *shrinkage,
            ("lr_power", "learning_rate_power"),
        )

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            with get_default_graph().colocate_with(var):
                start = b.constant(
                    self._initial_accumulator_value, dtype=var.dtype.base_dtype, shape=var.shape
                )
            self._get_or_make_slot(var, start, "accum", self._accum_name)
            self._zeros_slot(var, "linear", self._linear_name)


@export("train.ProximalAdagradOptimizer")
class ProximalAdagradOptimizer(StepOptimizer):
    """Adagrad, with L2 and L1 penalties, which pull weights to zero, the latter to exactly zero."""

    _step = "proximal_adagrad"
    _slot_arguments = (("accum", "accumulator"),)
    _numbers = (
        ("lr", "learning_rate"),
        ("l1", "l1_regularization_strength"),
        ("l2", "l2_regularization_strength"),
    )

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        _check_positive("initial_accumulator_value", initial_accumulator_value)
        settings = {
            "learning_rate": learning_rate,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
        }
        super().__init__(use_locking, name, settings)
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: list[Any]) -> None:
        for var in var_list:
            with get_default_graph().colocate_with(var):
                start = b.constant(
                    self._initial_accumulator_value, shape=var.shape, dtype=var.dtype.base_dtype
                )
            self._get_or_make_slot(var, start, "accumulator", self._name)


@export("train.ProximalGradientDescentOptimizer")
class ProximalGradientDescentOptimizer(StepOptimizer):
    """Gradient descent, with L2 and L1 penalties, which pull weights to zero, the latter to exactly
    zero.
    """

    _step = "proximal_gradient_descent"
    _numbers = (
        ("alpha", "learning_rate"),
        ("l1", "l1_regularization_strength"),
        ("l2", "l2_regularization_strength"),
    )
    _gradient_argument = "delta"

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        settings = {
            "learning_rate": learning_rate,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
        }
        super().__init__(use_locking, name, settings)


def _check_positive(name: str, value: float) -> None:
    if value <= 0.0:
        raise ValueError(f"{name} must be positive: {value}")
