"""Conditional accumulators: the ops, and the dense and sparse accumulator classes."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, show_shape
from headrace._src.devices.accumulators import Accumulator, DenseAccumulator, SparseAccumulator
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, define
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.state.shared_state import find_state, on, reference_infer

__all__ = ["ConditionalAccumulator", "ConditionalAccumulatorBase", "SparseConditionalAccumulator"]

_MAKE = (
    "dtype: {numbers}; shape: shape; container: string = ''; shared_name: string = ''; "
    "reduction_type: {'MEAN'|'SUM'} = 'MEAN'"
)


def _making(kind: type[Any]) -> Callable[..., Any]:
    def kernel(*, ctx, dtype, shape, container, shared_name, reduction_type):
        handle, found, shared = find_state(
            ctx,
            Accumulator,
            (container, shared_name),
            lambda name: kind(name, dtype, shape, reduction_type),
        )
        wanted = (kind, dtype, repr(shape), reduction_type)
        if shared and (type(found), found.dtype, repr(found.shape), found.reduction) != wanted:
            raise InvalidArgumentError(
                None,
                None,
                f"Shared accumulator '{found.name}' is a {found.kind} of {found.dtype.name}"
                f"{show_shape(found.shape)} with reduction {found.reduction}, not what was "
                "requested",
            )
        return handle

    return kernel


def _scalar_of(what: str, value: Any) -> int:
    if np.ndim(value):
        raise InvalidArgumentError(
            None,
            None,
            f"Argument {what} must be scalar but had bad shape {show_shape(np.shape(value))}",
        )
    return int(value)


def _apply_kernel(accumulator, local_step, gradient):
    accumulator.add(_scalar_of("local_step", local_step), gradient)


def _take_kernel(accumulator, num_required):
    return accumulator.take(_scalar_of("num_required", num_required))


def _set_step_kernel(accumulator, new_global_step):
    accumulator.set_step(_scalar_of("new_global_step", new_global_step))


def _count_kernel(accumulator):
    return np.int32(accumulator.count)


def _dropped_kernel(accumulator):
    return np.int64(accumulator.dropped)


_OPTIONS = {"gradient": NOT_DIFFERENTIABLE, "effect": Effect.BLOCKS}
_SAMPLES = [Sample(dtype="float32", shape=[2])]


def _handle_infer(c: Any) -> Any:
    """Return the shape that TensorFlow gives these handles: they were once pairs of strings."""
    return (2,)


def _define_both(op_type: str, newer: str, signature: str, attributes: str, **options: Any) -> Any:
    """Define an op on a reference, and a newer one on a resource."""

    def decorate(function: Any) -> Any:
        name = f"resource_{function.__name__}"
        again = FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
        again.__doc__ = function.__doc__
        rule = options["infer"] if not signature.startswith("->") else _handle_infer
        resource = signature.replace("Ref(string)", "resource")
        define(newer, resource, attributes, **{**options, "infer": rule})(again)
        return define(op_type, signature, attributes, **options)(function)

    return decorate


@_define_both(
    "ConditionalAccumulator",
    "ResourceConditionalAccumulator",
    "-> handle: Ref(string)",
    _MAKE,
    infer=reference_infer,
    kernel=_making(DenseAccumulator),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=_SAMPLES,
)
def conditional_accumulator(
    dtype, shape, container="", shared_name="", reduction_type="MEAN", name=None
):
    """Return an accumulator of gradients."""


@_define_both(
    "AccumulatorApplyGradient",
    "ResourceAccumulatorApplyGradient",
    "handle: Ref(string), local_step: int64, gradient: dtype ->",
    "dtype: {numbers}",
    infer=infer.no_outputs,
    kernel=on(DenseAccumulator, _apply_kernel),
    **_OPTIONS,
)
def accumulator_apply_gradient(handle, local_step, gradient, name=None):
    """Add a gradient, unless `local_step` is before the accumulator's step."""


@_define_both(
    "AccumulatorTakeGradient",
    "ResourceAccumulatorTakeGradient",
    "handle: Ref(string), num_required: int32 -> average: dtype",
    "dtype: {numbers}",
    infer=infer.unknown,
    kernel=on(DenseAccumulator, _take_kernel),
    **_OPTIONS,
)
def accumulator_take_gradient(handle, num_required, dtype, name=None):
    """Return the sum or mean of the gradients; block until there are `num_required`."""


@_define_both(
    "AccumulatorSetGlobalStep",
    "ResourceAccumulatorSetGlobalStep",
    "handle: Ref(string), new_global_step: int64 ->",
    "",
    infer=infer.no_outputs,
    kernel=on(Accumulator, _set_step_kernel),
    **_OPTIONS,
)
def accumulator_set_global_step(handle, new_global_step, name=None):
    """Set the step that an accumulator is at."""


@_define_both(
    "AccumulatorNumAccumulated",
    "ResourceAccumulatorNumAccumulated",
    "handle: Ref(string) -> num_accumulated: int32",
    "",
    infer=infer.scalar,
    kernel=on(Accumulator, _count_kernel),
    **_OPTIONS,
)
def accumulator_num_accumulated(handle, name=None):
    """Return the number of gradients accumulated since the last take."""


@_define_both(
    "AccumulatorNumDropped",
    "ResourceAccumulatorNumDropped",
    "handle: Ref(string) -> num_dropped: int64",
    "",
    infer=infer.scalar,
    kernel=on(Accumulator, _dropped_kernel),
    **_OPTIONS,
)
def accumulator_num_dropped(handle, name=None):
    """Return the number of gradients that came too late, so far. TensorFlow has no such op."""


@define(
    "SparseConditionalAccumulator",
    "-> handle: Ref(string)",
    _MAKE,
    infer=reference_infer,
    kernel=_making(SparseAccumulator),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    samples=_SAMPLES,
)
def sparse_conditional_accumulator(
    dtype, shape, container="", shared_name="", reduction_type="MEAN", name=None
):
    """Return an accumulator of sparse gradients."""


def _apply_sparse_kernel(accumulator, local_step, indices, values, shape, *, has_known_shape):
    whole = shape.tolist() if has_known_shape else None
    accumulator.add(_scalar_of("local_step", local_step), (indices, values, whole))


@define(
    "SparseAccumulatorApplyGradient",
    "handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, "
    "gradient_shape: int64 ->",
    "dtype: {numbers}; has_known_shape: bool",
    infer=infer.no_outputs,
    kernel=on(SparseAccumulator, _apply_sparse_kernel),
    **_OPTIONS,
)
def sparse_accumulator_apply_gradient(
    handle,
    local_step,
    gradient_indices,
    gradient_values,
    gradient_shape,
    has_known_shape,
    name=None,
):
    """Add a sparse gradient, unless `local_step` is before the accumulator's step."""


def _take_sparse_kernel(accumulator, num_required):
    return accumulator.take(_scalar_of("num_required", num_required))


@define(
    "SparseAccumulatorTakeGradient",
    "handle: Ref(string), num_required: int32 -> indices: int64, values: dtype, shape: int64",
    "dtype: {numbers}",
    infer=infer.unknown,
    kernel=on(SparseAccumulator, _take_sparse_kernel),
    **_OPTIONS,
)
def sparse_accumulator_take_gradient(handle, num_required, dtype, name=None):
    """Return the sums or means of rows; block until there are `num_required` gradients."""


# -- For programs ----------------------------------------------------------------------------------


@export("ConditionalAccumulatorBase")
class ConditionalAccumulatorBase:
    """Base class: accumulates the gradients of several steps until there are enough."""

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Tensor) -> None:
        self._dtype = as_dtype(dtype)
        self._shape = TensorShape(shape)
        self._accumulator_ref = accumulator_ref
        self._name = accumulator_ref.op.name.rpartition("/")[2]
        resource = accumulator_ref.dtype.base_dtype is dtypes.resource
        self._prefix = "resource_" if resource else ""

    @property
    def accumulator_ref(self) -> Tensor:
        """The handle, in the form that the ops take."""
        return self._accumulator_ref

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """Return the number of gradients accumulated since the last take."""
        build = getattr(b, f"{self._prefix}accumulator_num_accumulated")
        return build(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")

    def num_dropped(self, name: str | None = None) -> Tensor:
        """Return the number of gradients that were dropped so far, because they came too late.
        TensorFlow doesn't count them.
        """
        build = getattr(b, f"{self._prefix}accumulator_num_dropped")
        return build(self._accumulator_ref, name=name or f"{self._name}_NumDropped")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """Set the current step; gradients of earlier steps are dropped."""
        build = getattr(b, f"{self._prefix}accumulator_set_global_step")
        step = b.cast(convert_to_tensor(new_global_step), dtypes.int64)
        return build(self._accumulator_ref, step, name=name)


@export("ConditionalAccumulator")
class ConditionalAccumulator(ConditionalAccumulatorBase):
    """An accumulator of dense gradients.

    dtype and shape: of every gradient. shared_name: accumulators of this name share their content.
    reduction_type: "MEAN" or "SUM".
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        handle = b.resource_conditional_accumulator(
            as_dtype(dtype), TensorShape(shape), None, shared_name, reduction_type, name=name
        )
        super().__init__(dtype, shape, handle)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """Add a gradient; it is dropped if `local_step` is before the accumulator's step."""
        grad = convert_to_tensor(grad, self._dtype)
        grad.shape.assert_is_compatible_with(self._shape)
        step = b.cast(convert_to_tensor(local_step), dtypes.int64)
        return b.resource_accumulator_apply_gradient(self._accumulator_ref, step, grad, name=name)

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """Return the sum or mean once `num_required` gradients arrived, and begin the next step."""
        found = b.resource_accumulator_take_gradient(
            self._accumulator_ref, num_required, self._dtype, name=name
        )
        found.set_shape(self._shape)
        return found


@export("SparseConditionalAccumulator", "sparse.SparseConditionalAccumulator")
class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """An accumulator of sparse gradients, given as rows of a tensor. The mean of a row is taken
    over the gradients that contain it.

    shared_name: accumulators of this name share their content. reduction_type: "MEAN" or "SUM".
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        handle = b.sparse_conditional_accumulator(
            as_dtype(dtype), TensorShape(shape), None, shared_name, reduction_type, name=name
        )
        super().__init__(dtype, shape, handle)

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None
    ) -> Operation:
        """Add a gradient given as IndexedSlices (see `apply_grad`)."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> Operation:
        """Add the rows `grad_values`, whose row numbers are `grad_indices`. They are dropped if
        `local_step` is before the accumulator's step.
        """
        step = b.cast(convert_to_tensor(local_step), dtypes.int64)
        shape = b.constant([], dtypes.int64) if grad_shape is None else grad_shape
        return b.sparse_accumulator_apply_gradient(
            self._accumulator_ref,
            step,
            b.cast(convert_to_tensor(grad_indices), dtypes.int64),
            convert_to_tensor(grad_values, self._dtype),
            b.cast(convert_to_tensor(shape), dtypes.int64),
            grad_shape is not None,
            name=name,
        )

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """Return (indices, values, shape) once `num_required` gradients arrived."""
        return b.sparse_accumulator_take_gradient(
            self._accumulator_ref, num_required, self._dtype, name=name
        )

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """Return the result of `take_grad` as IndexedSlices."""
        found = self.take_grad(num_required, name)
        return IndexedSlices(found.values, found.indices, found.shape)
