"""Python's operators on tensors: `x + 1` is an AddV2 called "add" whose constant is "add/y".

The operand that is not a tensor is converted to the type of the one that is, if it can be. `==`
stays identity, as in TensorFlow 1, so that tensors can be keys of dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.core import dtypes
from headrace.graph.composite import SparseTensor
from headrace.graph.operation import Tensor
from headrace.ops import comparisons
from headrace.ops.arithmetic import add, add_v2, multiply, pow, subtract
from headrace.ops.convert import convert_to_tensor, name_scope
from headrace.ops.define import b
from headrace.ops.division import div, floordiv, floormod, truediv
from headrace.ops.elementwise import abs, negative

__all__: list[str] = []


def _add(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    return (add if x.dtype.base_dtype is dtypes.string else add_v2)(x, y, name=name)


def _multiply(x: Tensor, y: Any, name: str | None = None) -> Any:
    if isinstance(y, SparseTensor):
        values = b.sparse_dense_cwise_mul(y.indices, y.values, y.dense_shape, x, name=name)
        return SparseTensor(y.indices, values, y.dense_shape)
    return multiply(x, y, name=name)


def _matmul(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    return b.matmul(x, y, name=name)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": subtract,
    "mul": _multiply,
    "div": div,
    "truediv": truediv,
    "floordiv": floordiv,
    "mod": floormod,
    "pow": pow,
    "matmul": _matmul,
    "and": comparisons.logical_and,
    "or": comparisons.logical_or,
    "xor": comparisons.logical_xor,
}

_DIRECT: dict[str, Callable[..., Any]] = {
    "__lt__": comparisons.less,
    "__le__": comparisons.less_equal,
    "__gt__": comparisons.greater,
    "__ge__": comparisons.greater_equal,
    "__neg__": negative,
    "__invert__": comparisons.logical_not,
    "__abs__": abs,
}


def _forward(operator: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    reflected = f"__r{operator}__"

    def method(x: Tensor, y: Any) -> Any:
        with name_scope(None, operator, [x, y]) as scope:
            if not isinstance(y, Tensor | SparseTensor):
                try:
                    y = convert_to_tensor(y, dtype_hint=x.dtype.base_dtype, name="y")
                except TypeError:
                    # The other side may know how to work with tensors.
                    if hasattr(type(y), reflected):
                        return NotImplemented
                    raise
            return function(x, y, name=scope)

    return method


def _reflected(operator: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    def method(y: Tensor, x: Any) -> Any:
        with name_scope(None, operator, [x, y]) as scope:
            x = convert_to_tensor(x, dtype=y.dtype.base_dtype, name="x")
            return function(x, y, name=scope)

    return method


def _install(name: str, method: Callable[..., Any]) -> None:
    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    setattr(Tensor, name, method)


for _operator, _function in _BINARY.items():
    _install(f"__{_operator}__", _forward(_operator, _function))
    _install(f"__r{_operator}__", _reflected(_operator, _function))
for _name, _function in _DIRECT.items():
    setattr(Tensor, _name, _function)
