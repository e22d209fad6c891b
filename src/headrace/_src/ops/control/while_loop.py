"""Loops: tf.while_loop builds the graph of one iteration; each loop variable passes through Enter,
Merge, Switch, NextIteration and Exit.

Tensors from outside that the loop's functions use are passed in once, as invariants
(`graph.contexts`). Static shapes must hold for all iterations, or building fails;
`shape_invariants` can relax a variable's initial shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace._src.core import nest, source
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph.composite import IndexedSlices, SparseTensor
from headrace._src.graph.contexts import WhileContext, switch
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor, made_at
from headrace._src.graph.type_spec import TensorSpec, TypeSpec
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.flow_primitives import go_round, leave, merge, passed
from headrace._src.ops.control.loop_values import as_tensors, flow_of, like_tensor_arrays
from headrace._src.ops.control.tensor_array import TensorArray

__all__ = ["build_loop", "while_loop"]


@composed
@export("while_loop")
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Repeat `body` while `cond` is true (at most `maximum_iterations` times); return the final
    values of the loop variables.

    Both functions take the loop variables, a nest that starts as `loop_vars`; `body` returns them
    for the next iteration. `shape_invariants` has a shape for each that holds in all iterations. A
    single variable is returned by itself, unless `return_same_structure`.

    parallel_iterations: how many iterations may overlap. back_prop: whether gradients can flow
    through the loop. swap_memory: whether values that its gradient needs from each iteration are to
    be kept in a file, which CPU devices do if HEADRACE_SWAP_DIR names a folder (docs/devices.md).
    """
    for function, what in ((cond, "cond"), (body, "body")):
        if not callable(function):
            raise TypeError(f"{what} must be callable.")
    if parallel_iterations < 1:
        raise TypeError("parallel_iterations must be a positive integer.")
    with name_scope(name, "while", nest.flatten(loop_vars, expand_composites=True)):
        if not loop_vars:
            raise ValueError("No loop variables provided")
        limit = None
        if maximum_iterations is not None:
            limit = _scalar_limit(maximum_iterations)
            alone = len(loop_vars) == 1 and not return_same_structure
            cond, body, loop_vars = _counted(limit, cond, body, loop_vars, alone)
            if shape_invariants is not None:
                given = shape_invariants[0] if alone else shape_invariants
                shape_invariants = (TensorShape([]), given)
        graph = get_default_graph()
        if graph.executes:
            results = _repeat(cond, body, loop_vars)
            if limit is not None:
                return results[1]
            single = len(nest.flatten(results)) == 1 and not return_same_structure
            return results[0] if single else results
        context = WhileContext(graph, limit, parallel_iterations, back_prop, swap_memory)
        if context.outer_context is None:  # inner contexts are saved with their outer one
            graph.add_to_collection(GraphKeys.WHILE_CONTEXT, context)
        results = build_loop(context, cond, body, loop_vars, shape_invariants)
        if limit is not None:
            return results[1]
        single = len(context.loop_exits) == 1 and not return_same_structure
        return results[0] if single else results


def _scalar_limit(maximum_iterations: Any) -> Tensor:
    limit = convert_to_tensor(maximum_iterations, name="maximum_iterations")
    if limit.shape.ndims != 0:
        raise ValueError(f"maximum_iterations must be a scalar, saw shape: {limit.shape}")
    return limit


def _counted(
    limit: Tensor, cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, alone: bool
) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """Add a loop variable that counts the iterations up to the limit."""
    counter = convert_to_tensor(0, limit.dtype, name="iteration_counter")

    def counted_cond(i: Any, values: Any) -> Any:
        under_limit = b.less(i, limit)
        return b.logical_and(under_limit, cond(values) if alone else cond(*values))

    def counted_body(i: Any, values: Any) -> Any:
        return i + 1, body(values) if alone else body(*values)

    return counted_cond, counted_body, (counter, loop_vars[0] if alone else loop_vars)


def _repeat(cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any) -> Any:
    """Run the loop in Python, where operations run as they are made; return the loop variables."""
    values = _converted(loop_vars)
    while cond(*values):
        returned = body(*values)
        if not (nest.is_nested(returned) or hasattr(returned, "components")):
            returned = [returned]
        _check_structure(values, returned)
        values = _converted(returned)
    return values


def _converted(values: Any) -> Any:
    return nest.map_structure(
        lambda v: v if isinstance(v, TensorArray) else convert_to_tensor(v),
        values,
        expand_composites=True,
    )


def build_loop(
    context: WhileContext,
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any,
) -> Any:
    """Build a loop in its context; return its variables as they leave it."""
    if shape_invariants is not None:
        nest.assert_same_structure(loop_vars, shape_invariants)
    values = as_tensors(loop_vars)
    if shape_invariants is None:
        shapes = [s for v in values for s in _own_shapes(v)]
    else:
        given = nest.flatten(shape_invariants)
        shapes = [s for v, i in zip(values, given, strict=True) for s in _invariant_shapes(v, i)]
    start = nest.flatten(values, expand_composites=True)
    leaves = nest.flatten(loop_vars, expand_composites=True)

    def packed(tensors: Sequence[Tensor]) -> Any:
        return nest.pack_sequence_as(
            loop_vars, like_tensor_arrays(leaves, tensors), expand_composites=True
        )

    with context.entered():
        merges = _enter_loop(context, start, shapes)
        pivot = b.loop_cond_op(convert_to_tensor(cond(*packed(merges))), name="LoopCond")
        context._pivot = pivot
        switches = [switch(t, pivot) for t in merges]
        inner = [passed(t[1]) for t in switches]
        context._pivot_for_body = inner[0]
        body_vars = packed(inner)
        returned = body(*body_vars)
        if not (nest.is_nested(returned) or hasattr(returned, "components")):
            returned = [returned]
        with source.naming(body=body):
            _check_structure(body_vars, returned)
        results = [
            convert_to_tensor(flow_of(v)) for v in nest.flatten(returned, expand_composites=True)
        ]
        for merged, value in zip(merges, results, strict=True):
            _close(merged, value)
        exits = [leave(t[0]) for t in switches]
        context._loop_exits = [*exits, *context._loop_exits]  # body may have added variables
        context.ExitResult(exits)
    arrays = like_tensor_arrays(nest.flatten(returned, expand_composites=True), exits)
    return nest.pack_sequence_as(returned, arrays, expand_composites=True)


def _enter_loop(
    context: WhileContext, start: list[Tensor], shapes: list[TensorShape]
) -> list[Tensor]:
    """Return the loop variables at the head of an iteration. Their second input is set later."""
    outer = context.outer_context
    if outer is not None:
        start = [outer.AddValue(t) for t in start]
    for t, shape in zip(start, shapes, strict=True):
        if not _is_within(t.shape, shape):
            raise ValueError(
                f"The shape invariant specified for {t.name} is not compatible with the initial "
                f"shape of the loop variable. It enters the loop with shape {t.shape}, but the "
                f"specified shape invariant is {shape}."
            )
    enters = [context.enter(t, is_constant=False) for t in start]
    for t, shape in zip(enters, shapes, strict=True):
        t._shape = shape  # which may be less specific than the initial value's
    context._loop_enters = enters
    merges = [merge([t, t])[0] for t in enters]
    context._pivot_for_pred = merges[0]
    return merges


def _close(merged: Tensor, value: Tensor) -> None:
    """Connect the value that the body computes to the head of the loop."""
    if value.dtype.base_dtype is not merged.dtype.base_dtype:
        start = merged.op._inputs[0].op._inputs[0]
        raise TypeError(
            f"Input tensor '{start.name}' enters the loop with type {start.dtype.base_dtype.name}, "
            f"but has type {value.dtype.base_dtype.name} after one iteration."
            f"{made_at(start.op, value.op)}"
        )
    back = go_round(value)
    if not _is_within(back.shape, merged.shape):
        start = merged.op._inputs[0].op._inputs[0]
        raise ValueError(
            f"Input tensor '{start.name}' enters the loop with shape {start.shape}, but has shape "
            f"{back.shape} after one iteration. To allow the shape to vary across iterations, use "
            "the `shape_invariants` argument of tf.while_loop to specify a less-specific "
            f"shape.{made_at(start.op, value.op)}"
        )
    merged.op._update_input(1, back)


def _check_structure(body_vars: Any, returned: Any) -> None:
    """The outermost containers may differ: loop_vars are often lists, results tuples."""
    outermost = list(returned) if nest.is_nested(returned) else [returned]
    nest.assert_same_structure(list(body_vars), outermost, expand_composites=True)


# -- Shapes ----------------------------------------------------------------------------------------


def _own_shapes(value: Any) -> list[TensorShape]:
    if isinstance(value, SparseTensor):  # the number of elements may vary
        return _sparse_shapes(value.dense_shape.shape)
    return [t.shape for t in (value.components() if hasattr(value, "components") else [value])]


def _sparse_shapes(dense_shape: TensorShape) -> list[TensorShape]:
    (rank,) = dense_shape.with_rank(1).as_list()
    return [TensorShape([None, rank]), TensorShape([None]), dense_shape]


def _invariant_shapes(value: Any, invariant: Any) -> list[TensorShape]:
    """Return the shape of each component, given the user's `invariant` for the whole: a shape, a
    spec, or None for its shape before the loop.
    """
    if invariant is None:
        return _own_shapes(value)
    if isinstance(invariant, TypeSpec):
        return _spec_shapes(value, invariant)
    shape = as_shape(invariant)
    if isinstance(value, SparseTensor):  # the invariant is the shape of dense_shape
        return _sparse_shapes(shape)
    if isinstance(value, IndexedSlices):
        rest = [TensorShape([shape.ndims])] if value.dense_shape is not None else []
        return [shape, TensorShape([shape[0]]), *rest]
    return [shape]


def _spec_shapes(value: Any, spec: TypeSpec) -> list[TensorShape]:
    if isinstance(spec, TensorSpec) and isinstance(value, Tensor):
        fits = spec.dtype.is_compatible_with(value.dtype)  # its shape is checked later
    else:
        fits = spec.is_compatible_with(value)
    if not fits:
        raise TypeError(f"TypeSpec {spec!r} is not compatible with {value!r}")
    return [part.shape for part in nest.flatten(spec._component_specs)]


def _is_within(shape: TensorShape, invariant: TensorShape) -> bool:
    """Whether every tensor compatible with `shape` is also compatible with `invariant`."""
    if invariant.sizes is None:
        return True
    if shape.sizes is None or len(shape.sizes) != len(invariant.sizes):
        return False
    return all(
        wanted is None or wanted == found
        for found, wanted in zip(shape.sizes, invariant.sizes, strict=True)
    )
