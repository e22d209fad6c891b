"""Python's operators on tensors: `x + 1` is an AddV2 called "add" whose constant is "add/y".

An operand that is not a tensor is converted to the type of the one that is, if possible. `==` stays
identity, as in TensorFlow 1, so that tensors can be dictionary keys. The ops are accessed through
`b`, so that their families are loaded when an operator is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core import dtypes
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__: list[str] = []


def _add(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    return (b.add if x.dtype.base_dtype is dtypes.string else b.add_v2)(x, y, name=name)


def _multiply(x: Tensor, y: Any, name: str | None = None) -> Any:
    if isinstance(y, SparseTensor):
        values = b.sparse_dense_cwise_mul(y.indices, y.values, y.dense_shape, x, name=name)
        return SparseTensor(y.indices, values, y.dense_shape)
    return b.multiply(x, y, name=name)


def _builder(name: str) -> Callable[..., Any]:
    return lambda *operands, **options: getattr(b, name)(*operands, **options)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _builder("subtract"),
    "mul": _multiply,
    "div": _builder("div"),
    "truediv": _builder("truediv"),
    "floordiv": _builder("floordiv"),
    "mod": _builder("floormod"),
    "pow": _builder("pow"),
    "matmul": _builder("matmul"),
    "and": _builder("logical_and"),
    "or": _builder("logical_or"),
    "xor": _builder("logical_xor"),
}

_DIRECT: dict[str, Callable[..., Any]] = {
    "__lt__": _builder("less"),
    "__le__": _builder("less_equal"),
    "__gt__": _builder("greater"),
    "__ge__": _builder("greater_equal"),
    "__neg__": _builder("negative"),
    "__invert__": _builder("logical_not"),
    "__abs__": _builder("abs"),
    "__getitem__": _builder("slice_tensor"),
}


def _forward(operator: str, function: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    reflected = f"__r{operator}__"

    def method(x: Tensor, y: Any) -> Any:
        with name_scope(None, operator, [x, y]) as scope:
            if not isinstance(y, Tensor | SparseTensor):
                try:
                    y = convert_to_tensor(y, dtype_hint=x.dtype.base_dtype, name="y")
                except TypeError:
                    # The other operand may know how to work with tensors.
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


def _true_divide(i: Tensor, v: Tensor, s: Tensor, dense: Tensor, name: str) -> Tensor:
    kind = v.dtype.base_dtype
    if kind.is_integer:
        wide = dtypes.float32 if kind.size < 4 else dtypes.float64
        v, dense = b.cast(v, wide), b.cast(dense, wide)
    return b.sparse_dense_cwise_div(i, v, s, dense, name=name)


def _sparse(operator: str, function: Callable[..., Any]) -> Callable[[SparseTensor, Any], Any]:
    def method(sp: SparseTensor, y: Any) -> SparseTensor:
        with name_scope(None, operator, [sp, y]) as scope:
            dense = convert_to_tensor(y, sp.dtype.base_dtype, "y")
            values = function(*sp.components(), dense, name=scope)
            return SparseTensor(sp.indices, values, sp.dense_shape)

    return method


def _install(owner: type, name: str, method: Callable[..., Any]) -> None:
    method.__name__ = name
    method.__qualname__ = f"{owner.__name__}.{name}"
    setattr(owner, name, method)


for _operator, _function in _BINARY.items():
    _install(Tensor, f"__{_operator}__", _forward(_operator, _function))
    _install(Tensor, f"__r{_operator}__", _reflected(_operator, _function))
for _name, _function in _DIRECT.items():
    _install(Tensor, _name, _function)
_install(SparseTensor, "__mul__", _sparse("mul", _builder("sparse_dense_cwise_mul")))
_install(SparseTensor, "__truediv__", _sparse("truediv", _true_divide))
