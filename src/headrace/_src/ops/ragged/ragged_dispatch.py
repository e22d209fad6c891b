"""Which functions take ragged tensors, and what they do with them; and Python's operators.

TensorFlow 1.15 has the same functions. Element-wise ones apply to the flat values. Those of two
operands broadcast first; the others have counterparts in this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.dtypes import as_dtype
from headrace._src.ops.base.define import b
from headrace._src.ops.base.dispatch import register_rules
from headrace._src.ops.ragged import ragged_array, ragged_gather, ragged_math, ragged_strings
from headrace._src.ops.ragged.ragged_conversion import (
    convert_to_tensor_or_ragged_tensor,
    match_row_splits_dtypes,
)
from headrace._src.ops.ragged.ragged_factories import map_flat_values
from headrace._src.ops.ragged.ragged_rows import broadcast_rows
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor
from headrace._src.ops.ragged.ragged_value import RaggedTensorValue

__all__: list[str] = []

_UNARY = """
    abs acos acosh angle as_string asin asinh atan atanh cast ceil check_numerics clip_by_value conj
    cos cosh decode_base64 decode_compressed digamma encode_base64 erf erfc exp expm1 floor identity
    imag invert is_finite is_inf is_nan lgamma log log1p log_sigmoid logical_not negative ones_like
    real reciprocal regex_full_match regex_replace rint round rsqrt saturate_cast sign sin sinh sqrt
    square string_length string_strip string_to_hash_bucket string_to_hash_bucket_fast
    string_to_hash_bucket_strong string_to_number substr tan unicode_script zeros_like
"""
_BINARY = """
    add add_v2 atan2 bitwise_and bitwise_or bitwise_xor complex div_no_nan divide equal floordiv
    floormod greater greater_equal left_shift less less_equal logical_and logical_or logical_xor
    maximum minimum multiply not_equal pow realdiv right_shift squared_difference subtract truediv
    truncatediv truncatemod
"""
_LISTS = "add_n string_join"
# What the first argument, or the operands, are called if they are given by name.
_FIRST = ("x", "input", "tensor", "t", "value", "bytes", "string_tensor")
_OPERANDS = {"atan2": ("y", "x"), "complex": ("real", "imag")}


def _is_ragged(value: Any) -> bool:
    return isinstance(value, RaggedTensor | RaggedTensorValue)


def _unary(name: str) -> Callable[..., Any]:
    def rule(*args: Any, **kwargs: Any) -> Any:
        key = None if args else next((k for k in _FIRST if k in kwargs), None)
        first = args[0] if args else kwargs.get(key or "")
        if not _is_ragged(first):
            return NotImplemented
        rt = convert_to_tensor_or_ragged_tensor(first)
        if args:
            flat = getattr(b, name)(rt.flat_values, *args[1:], **kwargs)
        else:
            flat = getattr(b, name)(**{**kwargs, str(key): rt.flat_values})
        return rt.with_flat_values(flat)

    return rule


def _binary(name: str) -> Callable[..., Any]:
    names = _OPERANDS.get(name, ("x", "y"))

    def rule(*args: Any, **kwargs: Any) -> Any:
        given = list(args[:2]) + [kwargs.pop(n) for n in names[len(args) :] if n in kwargs]
        if len(given) != 2 or not any(map(_is_ragged, given)):
            return NotImplemented
        x, y = _operands(*given)
        left, right, splits = broadcast_rows(x, y)
        result = getattr(b, name)(left, right, *args[2:], **kwargs)
        for level in reversed(splits):
            result = RaggedTensor.from_row_splits(result, level, validate=False)
        return result

    return rule


def _operands(x: Any, y: Any) -> list[Any]:
    """Return two operands as tensors, at least one of them ragged, of one type if possible."""
    ragged = x if _is_ragged(x) else y
    kind = as_dtype(ragged.dtype).base_dtype
    found = [
        convert_to_tensor_or_ragged_tensor(v, name=n, preferred_dtype=kind)
        for n, v in (("x", x), ("y", y))
    ]
    return match_row_splits_dtypes(*found)


def _list(name: str) -> Callable[..., Any]:
    def rule(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        found = [convert_to_tensor_or_ragged_tensor(v) if _is_ragged(v) else v for v in inputs]
        return map_flat_values(getattr(b, name), found, *args, **kwargs)

    return rule


register_rules(
    (RaggedTensor, RaggedTensorValue),
    {
        **{name: _unary(name) for name in _UNARY.split()},
        **{name: _binary(name) for name in _BINARY.split()},
        **{name: _list(name) for name in _LISTS.split()},
        **ragged_math.REDUCTIONS,
        **ragged_math.SEGMENTS,
        "batch_gather": ragged_gather.ragged_batch_gather,
        "concat": ragged_array.ragged_concat,
        "dynamic_partition": ragged_array.ragged_dynamic_partition,
        "expand_dims": ragged_array.ragged_expand_dims,
        "gather": ragged_gather.ragged_gather,
        "gather_nd": ragged_gather.ragged_gather_nd,
        "one_hot": ragged_array.ragged_one_hot,
        "rank": ragged_array.ragged_rank,
        "reduce_join": ragged_math.ragged_reduce_join,
        "size": ragged_array.ragged_size,
        "squeeze": ragged_array.ragged_squeeze,
        "stack": ragged_array.ragged_stack,
        "string_split_v2": ragged_strings.ragged_strings_split,
        "tile": ragged_array.ragged_tile,
        "unicode_encode": ragged_strings.ragged_unicode_encode,
        "where": ragged_array.ragged_where,
    },
)


# -- Operators -------------------------------------------------------------------------------------

_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "truediv",
    "floordiv": "floordiv",
    "mod": "floormod",
    "pow": "pow",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_PREFIXES = {"neg": "negative", "invert": "logical_not", "abs": "abs"}


def _method(operator: str, name: str, reflected: bool = False) -> None:
    def method(self: RaggedTensor, *others: Any) -> Any:
        operands = (*others, self) if reflected else (self, *others)
        return getattr(b, name)(*operands)

    method.__name__ = f"__{'r' if reflected else ''}{operator}__"
    method.__qualname__ = f"RaggedTensor.{method.__name__}"
    setattr(RaggedTensor, method.__name__, method)


for _operator, _name in (_OPERATORS | _COMPARISONS | _PREFIXES).items():
    _method(_operator, _name)
for _operator, _name in _OPERATORS.items():
    _method(_operator, _name, reflected=True)
