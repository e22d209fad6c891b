"""Arguments of functions that take tensors and ragged tensors."""

from __future__ import annotations

from typing import Any

from headrace._src.core.dtypes import as_dtype
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.ragged.ragged_tensor import RaggedTensor
from headrace._src.ops.ragged.ragged_value import RaggedTensorValue

__all__ = ["convert_to_tensor_or_ragged_tensor", "match_row_splits_dtypes"]


def match_row_splits_dtypes(*values: Any) -> list[Any]:
    """Return values in which all row splits have one type; ValueError if they do not."""
    kinds = {v.row_splits.dtype.base_dtype for v in values if isinstance(v, RaggedTensor)}
    if len(kinds) > 1:
        raise ValueError(
            "Input RaggedTensors have mismatched row_splits dtypes; use "
            "RaggedTensor.with_row_splits_dtype() to convert them to compatible dtypes."
        )
    return list(values)


def convert_to_tensor_or_ragged_tensor(
    value: Any, dtype: Any = None, name: str | None = None, preferred_dtype: Any = None
) -> Any:
    """Return `value` as a tensor, or as a RaggedTensor if it is ragged."""
    if isinstance(value, RaggedTensor | RaggedTensorValue):
        kind = as_dtype(value.dtype).base_dtype
        if dtype is not None and not as_dtype(dtype).is_compatible_with(kind):
            raise ValueError(
                f"Tensor conversion requested dtype {as_dtype(dtype).name} for RaggedTensor with "
                f"dtype {kind.name}: {value!r}"
            )
    if isinstance(value, RaggedTensorValue):
        with name_scope(name, "ConvertToTensorOrRaggedTensor"):
            flat = convert_to_tensor(value.flat_values, dtype, "flat_values", preferred_dtype)
            return RaggedTensor.from_nested_row_splits(
                flat, value.nested_row_splits, validate=False
            )
    if isinstance(value, RaggedTensor):
        return value
    return convert_to_tensor(value, dtype, name, preferred_dtype)
