"""EagerGraph: a graph whose operations run while they are built. In: operations, one by one. Out:
tensors with values.

Building an operation infers its types and shapes as always; then its kernel runs, as the executor
would run it. The operations built so far are the tape: a gradient is tf.gradients in the same
graph, evaluated as it's built. Effects happen in program order.

Tensors of other eager graphs (a function may keep some between its calls) enter as values; those of
graphs that sessions run are refused. State that operations create lives in the graph's own
resources, and its handles keep it alive.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from headrace._src.core.dtypes import DType
from headrace._src.core.errors import UnimplementedError
from headrace._src.devices.pending import Pending
from headrace._src.devices.step_context import StepContext, active, current
from headrace._src.devices.variable_state import VariableState
from headrace._src.eager.context import CONTEXT, EAGER, EagerNodeContext, EagerResources
from headrace._src.eager.tensor import EagerTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor, made_at
from headrace._src.graph.schema import Schema
from headrace._src.runtime.kernels import bind, failure

__all__ = ["EagerGraph"]

_numbers = itertools.count()
_SECONDS_BETWEEN_LOOKS = 0.1  # for cancellation, while an operation waits


def _read(op: Operation, values: list[Any]) -> list[Any]:
    """Return the inputs' values; a reference is read where the op doesn't ask for one."""
    if not any(isinstance(v, VariableState) for v in values):
        return values
    wanted = op.definition.schema.references(op._attrs)
    return [
        v.read() if isinstance(v, VariableState) and not reference else v
        for v, reference in zip(values, wanted, strict=True)
    ]


def _held_kernel() -> Any:
    raise AssertionError("a value that is held needs no kernel")


HELD = Definition(
    schema=Schema("_EagerValue", "-> output: T", "T: type"),
    infer=lambda c: None,
    kernel=_held_kernel,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    doc="A value that came into an eager graph from outside.",
)


class EagerGraph(Graph):
    """Operations that have run, and their values."""

    executes = True
    tensor_type = EagerTensor

    def __init__(self) -> None:
        super().__init__()
        step = current()
        self.resources = EagerResources(None if step is None else step.resources)
        # What operations keep is in a container that lives as long as this graph.
        self.own_container = f"{EAGER}{next(_numbers)}"
        weakref.finalize(self, CONTEXT.resources.drop, self.own_container).atexit = False
        self._captured: dict[Tensor, EagerTensor] = {}

    @property
    def seed(self) -> int | None:  # type: ignore[override]  # of the process, as in TensorFlow
        return CONTEXT.seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        CONTEXT.seed = seed

    def operation_seed(self) -> int:
        return CONTEXT.operation_seed()

    def hold(self, value: Any, dtype: DType, like: Tensor | None = None) -> EagerTensor:
        """Return a new tensor of this value; a handle's static information comes from `like`."""
        with self._swap("controls", []), self._swap("name", ""):
            name = self.unique_name("value")
            op = super().add_operation(HELD, (), {"T": dtype.base_dtype}, name)
        (tensor,) = op._outputs
        assert isinstance(tensor, EagerTensor)
        if like is not None:
            tensor._shape = like._shape
            known = getattr(like, "_handle_data", None)
            if known is not None:
                tensor._handle_data = known  # type: ignore[attr-defined]
        tensor.fill(value)
        return tensor

    def capture(self, tensor: Tensor) -> Tensor:
        """Return this graph's tensor for a tensor of another graph; ValueError if it has no
        value.
        """
        if tensor.op.graph is self:
            return tensor
        if not isinstance(tensor, EagerTensor):
            raise ValueError(
                f"{tensor} belongs to another graph, and has no value here: pass it (of a "
                f"variable, its value) in `inp` of tf.py_function.{made_at(tensor.op)}"
            )
        if tensor not in self._captured:
            self._captured[tensor] = self.hold(tensor.value, tensor.dtype, tensor)
        return self._captured[tensor]

    def add_operation(
        self,
        definition: Definition,
        inputs: Sequence[Tensor],
        attrs: dict[str, Any],
        name: str,
        control_inputs: Iterable[Operation] = (),
        device: str | None = None,
    ) -> Operation:
        """As Graph.add_operation; then run the operation, and give its outputs their values."""
        if definition.flow is not None:
            raise UnimplementedError(
                None,
                None,
                f"{definition.op_type} '{name}' controls what a session runs: where operations run "
                "as they are built, use tf.cond, tf.while_loop or Python",
            )
        own = [self.capture(t) for t in inputs]
        controls = [c for c in control_inputs if c.graph is self]
        op = super().add_operation(definition, own, attrs, name, controls, device)
        self._run(op)
        return op

    def _run(self, op: Operation) -> None:
        kernel = bind(op, self.resources, context_type=EagerNodeContext)
        given = [t.value for t in op._inputs if isinstance(t, EagerTensor)]
        failed = None
        try:
            outer = current()
            if outer is not None:
                outer.cancellation.check()
            with np.errstate(all="ignore"), active(self._step(outer)):
                result = kernel(*_read(op, given))
            if isinstance(result, Pending):
                result = _wait(result)
            _fill(op, result)
        except Exception as error:
            failed = failure(error, op, given, ())
        if failed is not None:
            raise failed

    def _step(self, outer: StepContext | None) -> StepContext:
        """Return the step of an operation, which the outer step can cancel. State that it keeps
        lives as long as the graph.
        """
        step = StepContext(self.resources, None if outer is None else outer.cancellation)
        step.container = self.own_container
        return step

    def forget(self) -> None:
        """Drop all operations once they are no longer needed. Tensors that are still referenced
        keep their values. (Operations and tensors refer to each other: without this, the values
        would be freed only when Python next collects cycles.)
        """
        for op in self._operations:
            for t in op._outputs:
                t._consumers = []
            op._inputs = []
            op._outputs = []
            op._control_inputs = []
        self._operations.clear()
        self._by_name.clear()
        self._collections.clear()
        self._captured.clear()
        self._gradient_functions.clear()
        self._py_functions.clear()


def _fill(op: Operation, result: Any) -> None:
    outputs = op._outputs
    single = len(outputs) == 1 and not op.definition.schema.has_list_outputs
    results = [result] if single else result if outputs else ()
    if len(results) != len(outputs):
        raise RuntimeError(f"{op.type} gave {len(results)} outputs, not {len(outputs)}")
    for t, value in zip(outputs, results, strict=True):
        assert isinstance(t, EagerTensor)
        t.fill(value)


def _wait(pending: Pending) -> Any:
    """Wait in this thread for a kernel's pending result; the step that it runs for may be
    cancelled.
    """
    over = threading.Event()
    pending.then(lambda _: over.set())
    while not over.wait(_SECONDS_BETWEEN_LOOKS):
        running = current()
        if running is not None and running.cancellation.error is not None:
            pending.cancel(running.cancellation.error)
    return pending.result()
