"""Python functions as ops. A PyFunc node holds a token; the graph maps tokens to functions.

So a graph with Python functions can only run in the process that made it, and a GraphDef doesn't
contain them. This module has functions of arrays, `eager.py_function` those of tensors.

A token is "pyfunc_0@process.graph". The part after the @ leads from a copy of the graph in the same
process, such as a server's, to the graph that has the function, and tells other processes that they
can't have it.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, overload
from weakref import WeakValueDictionary

import numpy as np

from headrace._src.core import dtypes, errors, source
from headrace._src.core.dtypes import show_type
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Effect
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.to_tensor import as_array, convert_n_to_tensor

__all__ = ["add_function", "numpy_function", "py_func"]

_ERRORS = [
    (StopIteration, errors.OutOfRangeError),
    (NotImplementedError, errors.UnimplementedError),
    (MemoryError, errors.ResourceExhaustedError),
    ((TypeError, ValueError), errors.InvalidArgumentError),
    (Exception, errors.UnknownError),
]

_PROCESS = secrets.token_hex(6)
_numbers = itertools.count()
_graphs: WeakValueDictionary[str, Graph] = WeakValueDictionary()  # by the tokens' second part


def _call(inputs, *, token, Tout, op):
    return _outputs(_guarded(op, token, [_argument(v) for v in inputs]), Tout, token)


def _argument(value: Any) -> Any:
    """Return an array that the function may write to and keep. A scalar is a NumPy scalar, or
    bytes: functions call decode() on the name of a file.
    """
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value) if value.ndim else value[()]


def _guarded(op: Operation, token: str, arguments: Sequence[Any]) -> Any:
    """Return the result of the function of a token. Session.run raises an error that names the op,
    with the function's own exception as its cause.
    """
    function = _function_of(op, token)
    try:
        return function(*arguments)
    except Exception as error:
        failed = _failure(op, error)
        raise failed from error


def _function_of(op: Any, token: str) -> Callable[..., Any]:
    graph = getattr(op, "graph", None)
    found = None if graph is None else graph._py_functions.get(token)
    if found is not None:
        return found
    name, _, place = token.partition("@")
    home = _graphs.get(place)
    found = None if home is None else home._py_functions.get(token)
    if found is not None:
        return found
    if place and place.partition(".")[0] != _PROCESS:
        reason = (
            f"callback {name} was built in another process: run it on a device of that process, "
            "or import no graph with Python functions"
        )
    else:
        reason = f"callback {name} is not found: the graph that had its function is gone"
    raise errors.InvalidArgumentError(None, op, reason)


def _failure(op: Operation, error: Exception) -> errors.OpError:
    """Return the error of a step for an exception of a user's function: its text and traceback."""
    if isinstance(error, errors.OpError):
        kind: Any = errors.exception_type_from_error_code(error.error_code)
        message = error.message
    else:
        kind = next(k for types, k in _ERRORS if isinstance(error, types))
        message = str(error)
    failed = kind(None, op, f"{type(error).__name__}: {message}")
    for line in source.user_lines(source.captured(error.__traceback__), "raised at"):
        failed.add_detail(line)
    return failed


def _outputs(results: Any, types: Sequence[dtypes.DType], token: str) -> list[np.ndarray]:
    if results is None:
        values: Sequence[Any] = ()
    else:
        values = results if isinstance(results, list | tuple) else [results]
    if len(values) != len(types):
        raise ValueError(
            f"{_name(token)} returns {len(values)} values, but expects to see {len(types)} values."
        )
    return [_output(v, t, i, token) for i, (v, t) in enumerate(zip(values, types, strict=True))]


def _output(value: Any, dtype: dtypes.DType, index: int, token: str) -> np.ndarray:
    if isinstance(value, str | bytes) or dtype is dtypes.string:
        array = as_array(value)
    else:
        array = np.asarray(value)
    if array.dtype == object and dtype is not dtypes.string:
        _check_strings(array)
    found = dtypes.of_array(array)
    if found is not dtype:
        raise ValueError(
            f"{index}-th value returned by {_name(token)} is {show_type(found)}, but expects "
            f"{show_type(dtype)}"
        )
    return array


def _name(token: str) -> str:
    """Return a function's name in messages, which is TensorFlow's."""
    return token.partition("@")[0]


def _check_strings(array: np.ndarray) -> None:
    """NumPy makes object arrays of values it has no type for: only strings are valid in tensors."""
    for item in array.flat:
        if not isinstance(item, str | bytes):
            raise errors.InternalError(
                None, None, f"Unsupported object type {type(item).__name__}: {item!r}"
            )


def _py_func_schema(op_type: str, effect: Effect) -> Any:
    return define(
        op_type,
        "input: *Tin -> output: *Tout",
        "token: string; Tin: list(type) >= 0; Tout: list(type) >= 0",
        infer=infer.unknown,
        kernel=_call,
        gradient=NOT_DIFFERENTIABLE,
        effect=effect,
        calls_python=True,
    )


@_py_func_schema("PyFunc", Effect.WRITES)
def py_func_op(input, token, Tout, name=None):
    """Call a Python function that may have effects."""


@_py_func_schema("PyFuncStateless", Effect.READS)
def py_func_stateless(input, token, Tout, name=None):
    """Call a Python function that depends on its arguments only."""


@define(
    "EagerPyFunc",
    "input: *Tin -> output: *Tout",
    "token: string; is_async: bool = False; Tin: list(type) >= 0; Tout: list(type) >= 0",
    infer=infer.unknown,
    kernel=lambda inputs, *, token, op: _guarded(op, token, inputs),
    gradient=lambda b, op, *grads: b.py_function_gradients(op, grads),
    effect=Effect.WRITES,
    calls_python=True,
)
def eager_py_func(input, token, Tout, is_async=False, name=None):
    """Call a Python function of eager tensors; the op finishes when the function returns."""


def add_function(
    build: Callable[..., Any],
    function: Callable[..., Any],
    inp: Sequence[Any],
    types: Sequence[Any],
    name: str | None,
) -> Operation:
    """Register a function with the default graph, and add the op that calls it."""
    graph = get_default_graph()
    with graph._lock:
        if graph._py_place is None:
            graph._py_place = f"{_PROCESS}.{next(_numbers)}"
            _graphs[graph._py_place] = graph
        token = f"pyfunc_{len(graph._py_functions)}@{graph._py_place}"
        graph._py_functions[token] = function
    results = build(convert_n_to_tensor(inp), token, types, name=name)
    return results[0].op if types else graph.get_operations()[-1]


def _python_op(
    build: Callable[..., Any], func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: Any
) -> Any:
    if not callable(func):
        raise ValueError(f"Expected func to be callable, got func of type {type(func)}")
    is_list = isinstance(Tout, list | tuple)
    types = [dtypes.as_dtype(t) for t in (Tout if is_list else [Tout])]
    op = add_function(build, func, inp, types, name)
    if not types and op.definition.effect is Effect.WRITES:
        return op  # a function without results is run for its effect
    return list(op.outputs) if is_list else op.outputs[0]


@overload
def py_func(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: list[Any] | tuple[Any, ...],
    stateful: bool = True,
    name: str | None = None,
) -> list[Tensor]: ...
@overload
def py_func(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    stateful: bool = True,
    name: str | None = None,
) -> Tensor: ...
@composed
@export("py_func")
def py_func(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    stateful: bool = True,
    name: str | None = None,
) -> Any:
    """Return `func(*arrays of inp)` as tensors of the dtypes `Tout` (one, or a list).

    The function takes and returns NumPy arrays. Its exceptions fail the step, with their traceback
    as the cause. stateful: whether it may have effects; if not, equal calls may be merged.
    """
    return _python_op(py_func_op if stateful else py_func_stateless, func, inp, Tout, name)


@overload
def numpy_function(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: list[Any] | tuple[Any, ...],
    name: str | None = None,
) -> list[Tensor]: ...
@overload
def numpy_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None
) -> Tensor: ...
@composed
@export("numpy_function")
def numpy_function(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    name: str | None = None,
) -> Any:
    """Return `func(*arrays of inp)` as tensors: as tf.py_func, with `stateful` true by default."""
    return py_func(func, inp, Tout, stateful=True, name=name)
