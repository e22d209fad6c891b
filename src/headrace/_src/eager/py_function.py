"""tf.py_function: Python functions of tensors as operations, with gradients.

Each call has its own eager graph. The last output of an EagerPyFunc, which users don't see,
is the call itself: a `Call` knows the eager tensors that the function got and returned. The
gradient is an EagerPyFunc that takes this value and builds tf.gradients in the call's graph; its
own last output serves the next order in the same way. So the step holds a call's graph as long as
it is needed, in a slot or in the list that a loop saves for its backward loop; after that it is
freed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.eager.eager_graph import EagerGraph
from headrace._src.gradients.gradients import gradients
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_n_to_tensor, convert_to_tensor
from headrace._src.ops.control.py_func import add_function, eager_py_func

__all__ = ["py_function"]


@overload
def py_function(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: list[Any] | tuple[Any, ...],
    name: str | None = None,
) -> list[Tensor]: ...
@overload
def py_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None
) -> Tensor: ...
@composed
@export("py_function")
def py_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None
) -> Any:
    """Return `func(*inp)` as tensors of the dtypes `Tout` (one, or a list), with gradients.

    Inside the function, operations run as they are built: it gets tensors with values, and returns
    tensors or values convertible to tensors of these dtypes, or None for no results. Gradients flow
    through the operations that it used. An exception that it raises ends the step and is the cause
    of the step's error.
    """
    if not callable(func):
        raise ValueError(f"Expected func to be callable, got func of type {type(func)}")
    is_list = isinstance(Tout, list | tuple)
    types = [dtypes.as_dtype(t) for t in (Tout if is_list else [Tout])]
    given = convert_n_to_tensor(inp)
    op = _add_call(_Forward(func, [t.dtype.base_dtype for t in given], types), given, types, name)
    if not types:
        return op
    results = op.outputs[:-1]
    return results if is_list else results[0]


def _add_call(
    function: Callable[..., Any], inp: list[Tensor], types: list[DType], name: str | None = None
) -> Operation:
    """Add an operation that calls `function`; its last output is the Call, unless it is the only
    one.
    """
    return add_function(eager_py_func, function, inp, types and [*types, dtypes.variant], name)


@composed
def py_function_gradients(op: Operation, grads: Sequence[Any]) -> list[Any]:
    """Return the gradients of an EagerPyFunc's inputs, for those that can have one."""
    xs = [i for i, t in enumerate(op.inputs) if _is_differentiable(t)]
    ys = [i for i, t in enumerate(op.outputs) if _is_differentiable(t)]
    found: list[Any] = [None] * len(op.inputs)
    if xs and ys:
        wanted = [op.inputs[i] for i in xs]
        # The inputs are passed for the second-order gradient, which depends on them.
        given = [op.outputs[-1], *wanted, *(convert_to_tensor(grads[i]) for i in ys)]
        backward = _add_call(_Backward(xs, ys), given, [t.dtype.base_dtype for t in wanted])
        for i, x, dx in zip(xs, wanted, backward.outputs, strict=False):
            dx.set_shape(x.shape)
            found[i] = dx
    return found


def _is_differentiable(t: Tensor) -> bool:
    return t.dtype.is_floating or t.dtype.is_complex


class _Lease:
    """Holds an eager graph for the calls in it, and clears it when the last one is gone."""

    def __init__(self, graph: EagerGraph) -> None:
        self.graph = graph

    def __del__(self) -> None:
        self.graph.forget()


class _Nothing:
    """Takes the place of a Call where gradients need a zero: no gradient flows through it."""

    def zeros(self) -> _Nothing:
        return self

    def __add__(self, other: _Nothing) -> _Nothing:
        return self


class RecordedCall:
    """A call of a Python function: its arguments and results, as tensors of its graph; None for an
    argument that isn't the function's.
    """

    def __init__(
        self, lease: _Lease, inputs: Sequence[Tensor | None], outputs: Sequence[Any]
    ) -> None:
        self.lease = lease
        self.inputs = inputs
        self.outputs = outputs

    @property
    def results(self) -> list[Any]:
        """Return the outputs of the operation: the values, then this call."""
        return [*(t.value for t in self.outputs), self] if self.outputs else []

    def zeros(self) -> _Nothing:
        return _Nothing()

    def __repr__(self) -> str:
        return f"<Call of {len(self.inputs)} arguments, {len(self.outputs)} results>"


class _Forward:
    """Calls a user's function of arguments of these types."""

    def __init__(
        self, func: Callable[..., Any], arguments: list[DType], types: list[DType]
    ) -> None:
        self._func = func
        self._arguments = arguments
        self._types = types

    def __call__(self, *values: Any) -> list[Any]:
        lease = _Lease(EagerGraph())
        with lease.graph.as_default():
            inputs = list(map(lease.graph.hold, values, self._arguments))
            returned = self._func(*inputs)
            return RecordedCall(lease, inputs, self._as_tensors(returned)).results

    def _as_tensors(self, returned: Any) -> list[Tensor]:
        if not self._types:
            return []
        found = returned if isinstance(returned, list | tuple) else [returned]
        count = 0 if returned is None else len(found)
        if count != len(self._types):
            raise ValueError(
                f"the function returns {count} values, but expects to see {len(self._types)} "
                "values: one for each type of Tout"
            )
        return [
            _as_result(value, dtype, i)
            for i, (value, dtype) in enumerate(zip(found, self._types, strict=True))
        ]


def _as_result(value: Any, dtype: DType, index: int) -> Tensor:
    if value is None:
        raise ValueError(f"result {index} is None, and can't become a tensor of {dtype.name}")
    if isinstance(value, np.ndarray | np.generic) and dtype.is_integer and value.dtype.kind in "fc":
        raise TypeError(f"result {index} is an array of {value.dtype}, but expects {dtype.name}")
    return convert_to_tensor(value, dtype)


class _Backward:
    """Computes the gradients of inputs `xs` of a call from those of its results `ys`."""

    def __init__(self, xs: list[int], ys: list[int]) -> None:
        self._xs = xs
        self._ys = ys

    def __call__(self, call: RecordedCall, *values: Any) -> list[Any]:
        xs: list[Any] = [call.inputs[i] for i in self._xs]
        ys = [call.outputs[i] for i in self._ys]
        with call.lease.graph.as_default():
            types = [y.dtype for y in ys]
            dys = list(map(call.lease.graph.hold, values[len(xs) :], types))
            found = gradients(ys, xs, dys)
            dxs = [
                b.zeros_like(x) if dx is None else convert_to_tensor(dx)
                for x, dx in zip(xs, found, strict=True)
            ]
            return RecordedCall(call.lease, [None, *xs, *dys], dxs).results
