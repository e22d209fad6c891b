"""How to parse the Examples that a model is trained on. In: its columns, and its label. Out: the
`features` of tf.parse_example.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.estimator.columns.column_base import FeatureColumn
from headrace._src.estimator.columns.numeric import NumericColumn, numeric_column
from headrace._src.ops.io.example_ops import FixedLenFeature

__all__ = [
    "classifier_parse_example_spec",
    "make_parse_example_spec",
    "regressor_parse_example_spec",
]


@export("feature_column.make_parse_example_spec")
def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Return the `features` argument of tf.parse_example for columns."""
    found: dict[str, Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"All feature_columns must be _FeatureColumn instances. Given: {column}"
            )
        for key, value in column.parse_example_spec.items():
            if found.setdefault(key, value) != value:
                raise ValueError(
                    f"feature_columns contain different parse_spec for key {key}. Given {value} "
                    f"and {found[key]}"
                )
    return found


@export("estimator.classifier_parse_example_spec")
def classifier_parse_example_spec(
    feature_columns: Any,
    label_key: str,
    label_dtype: Any = dtypes.int64,
    label_default: Any = None,
    weight_column: Any = None,
) -> dict[str, Any]:
    """As make_parse_example_spec, with the label of a classifier and maybe a weight."""
    label = FixedLenFeature((1,), label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


@export("estimator.regressor_parse_example_spec")
def regressor_parse_example_spec(
    feature_columns: Any,
    label_key: str,
    label_dtype: Any = dtypes.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: Any = None,
) -> dict[str, Any]:
    """As make_parse_example_spec, with the label of a regressor and maybe a weight."""
    label = FixedLenFeature((label_dimension,), label_dtype, label_default)
    return _with_label(feature_columns, label_key, label, weight_column)


def _with_label(columns: Any, key: str, label: FixedLenFeature, weight: Any) -> dict[str, Any]:
    spec = make_parse_example_spec(columns)
    if key in spec:
        raise ValueError(
            f"label should not be used as feature. label_key: {key}, features: {list(spec)}"
        )
    spec[key] = label
    if weight is None:
        return spec
    column = numeric_column(weight) if isinstance(weight, str) else weight
    if not isinstance(column, NumericColumn):
        raise ValueError(
            "weight_column should be an instance of tf.feature_column.numeric_column. Given "
            f"type: {type(weight)} value: {weight}"
        )
    if column.key in spec:
        raise ValueError(f"Key {column.key} should not be used as feature: it is the weight_column")
    return spec | column.parse_example_spec
