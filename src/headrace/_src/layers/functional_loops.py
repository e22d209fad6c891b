"""Functions over the rows of tensors: tf.map_fn, tf.scan, tf.foldl, tf.foldr.

Each is a tf.while_loop that reads its rows from TensorArrays. `elems` is a tensor or a nest of
tensors with the same number of rows; the functions see nests of rows. Variables that a function
makes are read once, on the device that uses them: otherwise every iteration would read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import constant, convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_array import TensorArray
from headrace._src.ops.control.while_loop import while_loop
from headrace._src.variables.scope import get_variable_scope

__all__ = ["foldl", "foldr", "map_fn", "scan"]


@export("map_fn")
def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
) -> Any:
    """Return `fn` of each row of `elems`, stacked; `dtype` is the nest of dtypes that `fn` returns,
    if it differs from that of `elems`.
    """
    _check_callable(fn)
    if isinstance(elems, SparseTensor):
        raise TypeError(
            "To perform a map over the values of a sparse tensor use either "
            "SparseTensor(input.indices, fn(input.values), input.dense_shape) or "
            "SparseTensor(input.indices, map_fn(fn, input.values), input.dense_shape)"
        )
    flat = nest.flatten(elems)
    with name_scope(name, "map", flat), _caching_variables():
        rows = [convert_to_tensor(e, name="elem") for e in flat]
        like = elems if dtype is None else dtype
        types = [e.dtype for e in rows] if dtype is None else nest.flatten(dtype)
        count = _count(rows)
        inputs = _unstacked(rows, count)
        start = constant(0)
        outputs = [TensorArray(t, count, infer_shape=infer_shape) for t in types]

        def body(i: Any, arrays: list[TensorArray]) -> Any:
            result = fn(nest.pack_sequence_as(elems, [a.read(i) for a in inputs]))
            nest.assert_same_structure(like, result)
            values = nest.flatten(result)
            written = [a.write(i, v) for a, v in zip(arrays, values, strict=True)]
            return i + 1, written

        _, arrays = while_loop(
            lambda i, _: i < count,
            body,
            (start, outputs),
            parallel_iterations=parallel_iterations or 10,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=count,
        )
        return nest.pack_sequence_as(like, _stacked(arrays, rows))


@export("scan")
def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Return all values of a = fn(a, row) over the rows of `elems`, stacked.

    `a` starts as `initializer`, or as the first row; `reverse` starts from the last row.
    """
    _check_callable(fn)
    flat = nest.flatten(elems)
    like = elems if initializer is None else initializer
    with name_scope(name, "scan", flat), _caching_variables():
        rows = [convert_to_tensor(e, name="elem") for e in flat]
        count = _count(rows)
        inputs = _unstacked(rows, count, shaped=True)
        if initializer is None:
            first = [a.read(count - 1 if reverse else 0) for a in inputs]
            done = 1
        else:
            first = [convert_to_tensor(v) for v in nest.flatten(initializer)]
            done = 0
        outputs = [
            TensorArray(
                t.dtype.base_dtype,
                count,
                element_shape=t.shape if infer_shape else None,
                infer_shape=infer_shape,
            )
            for t in first
        ]
        if initializer is None:
            at = count - 1 if reverse else 0
            outputs = [a.write(at, v) for a, v in zip(outputs, first, strict=True)]

        def body(i: Any, before: list[Any], arrays: list[TensorArray]) -> Any:
            row = nest.pack_sequence_as(elems, [a.read(i) for a in inputs])
            result = fn(nest.pack_sequence_as(like, before), row)
            nest.assert_same_structure(like, result)
            values = nest.flatten(result)
            written = [a.write(i, v) for a, v in zip(arrays, values, strict=True)]
            return i - 1 if reverse else i + 1, values, written

        _, _, arrays = while_loop(
            (lambda i, *_: i >= 0) if reverse else (lambda i, *_: i < count),
            body,
            (count - 1 - done if reverse else done, first, outputs),
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=count,
        )
        return nest.pack_sequence_as(like, _stacked(arrays, rows))


@export("foldl")
def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return the last value of a = fn(a, row) over the rows of `elems`, first to last.

    `a` starts as `initializer`, or as the first row.
    """
    _check_callable(fn)
    with name_scope(name, "foldl", nest.flatten(elems)), _caching_variables():
        rows = [convert_to_tensor(e, name="elem") for e in nest.flatten(elems)]
        count = _count(rows)
        inputs = _unstacked(rows, count)

        def row(i: Any) -> Any:
            return nest.pack_sequence_as(elems, [a.read(i) for a in inputs])

        first = row(0) if initializer is None else initializer
        start = constant(1 if initializer is None else 0)

        def body(i: Any, a: Any) -> list[Any]:
            value = fn(a, row(i))
            return [i + 1, value]

        _, result = while_loop(
            lambda i, _: i < count,
            body,
            [start, first],
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=count,
        )
        return result


@export("foldr")
def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return the last value of a = fn(a, row) over the rows of `elems`, last to first.

    `a` starts as `initializer`, or as the last row.
    """
    _check_callable(fn)
    with name_scope(name, "foldr", nest.flatten(elems)), _caching_variables():
        rows = [convert_to_tensor(e, name="elem") for e in nest.flatten(elems)]
        count = _count(rows)
        inputs = _unstacked(rows, count)

        def row(i: Any) -> Any:
            return nest.pack_sequence_as(elems, [a.read(i) for a in inputs])

        start = count - 1 if initializer is None else count
        first = row(start) if initializer is None else initializer

        def body(i: Any, a: Any) -> list[Any]:
            i -= 1
            return [i, fn(a, row(i))]

        _, result = while_loop(
            lambda i, _: i > 0,
            body,
            [start, first],
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=count,
        )
        return result


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise TypeError("fn must be callable.")


@contextmanager
def _caching_variables() -> Iterator[None]:
    scope = get_variable_scope()
    if scope.caching_device is not None:
        yield
        return
    scope.set_caching_device(lambda op: op.device)
    try:
        yield
    finally:
        scope.set_caching_device(None)


def _count(rows: list[Tensor]) -> Any:
    """Return the number of rows: a number if it's known, else a tensor."""
    sizes = rows[0].shape.sizes
    if sizes == ():
        raise ValueError(
            "elems must be a 1+ dimensional Tensor, not a scalar"
            if len(rows) == 1
            else "elements in elems must be 1+ dimensional Tensors, not scalars"
        )
    return sizes[0] if sizes and sizes[0] else b.shape(rows[0])[0]


def _unstacked(rows: list[Tensor], count: Any, shaped: bool = False) -> list[TensorArray]:
    """Return the rows of each tensor as a TensorArray, with their static shape if it's known."""
    arrays = [
        TensorArray(e.dtype.base_dtype, count, element_shape=e.shape[1:] if shaped else None)
        for e in rows
    ]
    return [a.unstack(e) for a, e in zip(arrays, rows, strict=True)]


def _stacked(arrays: list[TensorArray], rows: list[Tensor]) -> list[Tensor]:
    """Stack the results of all rows; their static number comes from any input that knows it."""
    count = TensorShape([None])
    for e in rows:
        count = count.merge_with(e.shape.with_rank_at_least(1)[:1])
    results = [a.stack() for a in arrays]
    for t in results:
        t.set_shape(count.concatenate(t.shape[1:]))
    return results
