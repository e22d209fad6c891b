"""Optimizer: what all optimizers share. In: a loss, and variables. Out: an operation that changes
the variables so that the loss gets smaller.

An optimizer is plain graph code (OSDI'16 §4.1). A subclass says how one variable is updated, for
each kind of variable and of gradient:

    _create_slots(var_list) make the variables kept between steps _prepare() make tensors of the
    hyperparameters _apply_dense(grad, var) update, through a reference _resource_apply_dense(grad,
    var) update, through a handle _apply_sparse(grad, var) update the rows of IndexedSlices
    _resource_apply_sparse(values, var, indices)      the same, through a handle
    _finish(update_ops, name_scope) run after all updates

State: `_slots[slot name][variable]` and `_non_slots[name, graph]`, both holding variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core import dtypes, nest
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.gradients.gradients import gradients
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.grouping import group, tuple_tensors
from headrace._src.train.optimizers.slots import (
    create_slot,
    create_slot_with_initializer,
    create_zeros_slot,
)
from headrace._src.variables.collections import trainable_variables
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.variable import Variable

__all__ = ["Optimizer"]


@export("train.Optimizer")
class Optimizer:
    """Base class of optimizers: `minimize`, or `compute_gradients` and `apply_gradients`.

    gate_gradients says what may run concurrently: GATE_NONE, everything; GATE_OP, a gradient is
    used once all gradients of its operation are computed; GATE_GRAPH, once all gradients are
    computed.
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        self._slots: dict[str, dict[Any, Any]] = {}
        self._non_slots: dict[tuple[str, Graph], Any] = {}

    def get_name(self) -> str:
        """Return the name of this optimizer's operations and slots."""
        return self._name

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """Return an operation that takes one step toward a smaller `loss`, and counts it in
        `global_step`. See compute_gradients and apply_gradients for the arguments.
        """
        pairs = self.compute_gradients(
            loss,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        if all(gradient is None for gradient, _ in pairs):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not "
                f"support gradients, between variables {[str(v) for _, v in pairs]} and loss "
                f"{loss}."
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    # -- Gradients ---------------------------------------------------------------------------------

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Return (gradient of `loss`, variable) pairs; the gradient is a tensor, IndexedSlices, or
        None where the loss doesn't depend on the variable.

        loss         a tensor, or a function that returns one
        var_list     the variables, all trainable ones by default
        grad_loss    the gradient to start from, instead of ones
        """
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
                f"Optimizer.GATE_GRAPH.  Not {gate_gradients}"
            )
        loss = loss() if callable(loss) else loss
        self._assert_valid_dtypes([t for t in (loss, grad_loss) if t is not None])
        variables = _trained() if var_list is None else nest.flatten(var_list)
        if not variables:
            raise ValueError("No variables to optimize.")
        for variable in variables:
            if not isinstance(variable, Variable | Tensor):
                raise NotImplementedError(f"Trying to optimize unsupported type {variable}")
        found = gradients(
            loss,
            variables,
            grad_ys=grad_loss,
            aggregation_method=aggregation_method,
            gate_gradients=gate_gradients == self.GATE_OP,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gate_gradients == self.GATE_GRAPH:
            found = tuple_tensors(found)
        pairs = list(zip(found, variables, strict=True))
        self._assert_valid_dtypes([v for g, v in pairs if g is not None])
        return pairs

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that updates variables by their gradients, then adds 1 to the
        variable `global_step`, if there is one.
        """
        given = tuple(grads_and_vars)
        if not given:
            raise ValueError("No variables provided.")
        pairs = [(_as_gradient(g), v) for g, v in given if g is not None]
        if not pairs:
            raise ValueError(
                f"No gradients provided for any variable: {[str(v) for _, v in given]}."
            )
        graph = get_default_graph()
        with graph.control_dependencies(None):
            self._create_slots([v for _, v in pairs])
        with name_scope(name, self._name) as scope:
            self._prepare()
            updates = []
            for gradient, variable in pairs:
                with name_scope(f"update_{variable.op.name}"), graph.colocate_with(variable):
                    updates.append(self._update(gradient, variable))
            train = self._finish_and_count(updates, global_step, scope)
        if train not in graph.get_collection_ref(GraphKeys.TRAIN_OP):
            graph.add_to_collection(GraphKeys.TRAIN_OP, train)
        return train

    def _finish_and_count(self, updates: list[Any], global_step: Any, scope: str) -> Operation:
        if global_step is None:
            return self._finish(updates, scope)
        graph = get_default_graph()
        finished = self._finish(updates, "update")
        with graph.control_dependencies([finished]), graph.colocate_with(global_step):
            if isinstance(global_step, ResourceVariable):
                one = convert_to_tensor(1, dtype=global_step.dtype)
                return b.assign_add_variable_op(global_step.handle, one, name=scope)
            return b.assign_add(global_step, 1, name=scope).op

    def _update(self, gradient: Any, variable: Any) -> Any:
        """Update one variable with the method for its kind and the gradient's."""
        if not isinstance(variable, Variable):
            raise NotImplementedError(f"Trying to update a Tensor {variable}")
        by_handle = isinstance(variable, ResourceVariable)
        if isinstance(gradient, IndexedSlices):
            if variable.constraint is not None:
                raise RuntimeError("Cannot use a constraint function on a sparse variable.")
            if by_handle:
                return self._resource_apply_sparse_duplicate_indices(
                    gradient.values, variable, gradient.indices
                )
            return self._apply_sparse_duplicate_indices(gradient, variable)
        apply = self._resource_apply_dense if by_handle else self._apply_dense
        update = apply(gradient, variable)
        if variable.constraint is None:
            return update
        with get_default_graph().control_dependencies([update]):
            return variable.assign(variable.constraint(variable))  # type: ignore[attr-defined]

    # -- Slots -------------------------------------------------------------------------------------

    def get_slot(self, var: Any, name: str) -> Any:
        """Return the slot `name` of a variable, or None."""
        return self._slots.get(name, {}).get(_key(var))

    def get_slot_names(self) -> list[str]:
        """Return the names of all slots."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """Return the optimizer's own variables in the default graph, by name."""
        graph = get_default_graph()
        own = [*self._non_slots.values(), *(v for s in self._slots.values() for v in s.values())]
        return sorted((v for v in own if v.op.graph is graph), key=lambda v: v.name)

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        """Return the slots of one name, by variable."""
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        """Return the slot of `var`; create it with the initial value `val` if needed."""
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = create_slot(var, val, op_name)
        return slots[_key(var)]

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        """Return the slot of `var`; create it with an initializer if needed."""
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = create_slot_with_initializer(var, initializer, shape, dtype, op_name)
        return slots[_key(var)]

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        """Return the slot of `var`; create it with zeros if needed."""
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = create_zeros_slot(var, op_name)
        return slots[_key(var)]

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        """Return the variable `name` of this optimizer; create it beside `colocate_with` if
        needed.
        """
        graph = colocate_with.op.graph
        found = self._non_slots.get((name, graph))
        if found is None:
            with graph.colocate_with(colocate_with):
                found = Variable(
                    initial_value,
                    name=name,
                    trainable=False,
                    use_resource=isinstance(colocate_with, ResourceVariable),
                )
            self._non_slots[name, graph] = found
        return found

    def _get_non_slot_variable(self, name: str, graph: Graph | None = None) -> Any:
        """Return the variable `name` of this optimizer, or None."""
        return self._non_slots.get((name, graph or get_default_graph()))

    def _non_slot_variables(self) -> list[Any]:
        """Return the optimizer's variables that are not slots."""
        return list(self._non_slots.values())

    # -- For subclasses ----------------------------------------------------------------------------

    def _valid_dtypes(self) -> set[DType]:
        """The types of losses, gradients and variables."""
        return {dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64}

    def _assert_valid_dtypes(self, tensors: Iterable[Any]) -> None:
        valid = self._valid_dtypes()
        for t in tensors:
            if t.dtype.base_dtype not in valid:
                raise ValueError(
                    f"Invalid type {t.dtype.base_dtype!r} for {t.name}, expected: "
                    f"{sorted(valid, key=lambda d: d.name)}."
                )

    def _create_slots(self, var_list: list[Any]) -> None:
        """Make the slots of variables; by default there are none."""

    def _prepare(self) -> None:
        """Make the tensors that all updates share; called in the optimizer's name scope."""

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        raise NotImplementedError

    def _resource_apply_dense(self, grad: Tensor, var: Any) -> Any:
        raise NotImplementedError

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        raise NotImplementedError

    def _resource_apply_sparse(self, grad: Tensor, var: Any, indices: Tensor) -> Any:
        raise NotImplementedError

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        """Update rows that may occur several times: their gradients are added up first."""
        values, indices = summed_rows(grad.values, grad.indices)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, var: Any, indices: Tensor
    ) -> Any:
        """As above, for a resource variable."""
        return self._resource_apply_sparse(*_with_var(summed_rows(grad, indices), var))

    def _finish(self, update_ops: list[Any], name_scope: str) -> Operation:
        """Return an operation that runs after all updates."""
        return group(*update_ops, name=name_scope)

    @staticmethod
    def _call_if_callable(param: Any) -> Any:
        """Return a hyperparameter; if it is a function, its result."""
        return param() if callable(param) else param


def summed_rows(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return each of `indices` once, in order of appearance, with the sum of its rows."""
    unique, positions = b.unique(indices)
    return b.unsorted_segment_sum(values, positions, b.shape(unique)[0]), unique


def _with_var(rows: tuple[Tensor, Tensor], var: Any) -> tuple[Tensor, Any, Tensor]:
    return rows[0], var, rows[1]


def _trained() -> list[Any]:
    graph = get_default_graph()
    return trainable_variables() + graph.get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES)


def _key(var: Any) -> Any:
    return var.op.graph, var.op.name


def _as_gradient(gradient: Any) -> Any:
    if isinstance(gradient, IndexedSlices):
        return gradient
    try:
        return convert_to_tensor(gradient)
    except TypeError:
        raise TypeError(
            f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {gradient}"
        ) from None
