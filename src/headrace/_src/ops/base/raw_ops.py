"""tf.raw_ops: every op by its type, as TensorFlow defines it, with keyword arguments only and no
convenience.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.core.export import export_value, lacking
from headrace._src.graph.definition import definitions
from headrace._src.ops.base.define import apply

__all__ = ["raw_ops"]


class _RawOps:
    """`raw_ops.MatMul(a=x, b=y, transpose_b=True, name="m")`."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        definition = definitions().get(op_type)
        if definition is None:
            raise lacking("tf.raw_ops", op_type, self)
        known = {a.name for a in definition.schema.inputs} | set(definition.schema.attributes)

        def build(*, name: str | None = None, **values: Any) -> Any:
            if unknown := set(values) - known:
                raise TypeError(f"{op_type} has no input or attribute {sorted(unknown)}")
            missing = [a.name for a in definition.schema.inputs if a.name not in values]
            if missing:
                raise TypeError(f"{op_type} needs inputs {missing}")
            return apply(definition, values, name)

        build.__name__ = op_type
        build.__doc__ = definition.doc
        return build

    def __dir__(self) -> list[str]:
        return sorted(definitions())


raw_ops = _RawOps()
export_value(__name__, "raw_ops", "raw_ops")
