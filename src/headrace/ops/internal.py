"""Ops that only the pipeline makes: definitions without a builder, in no registry and no GraphDef.

READ gives the value that a reference's variable holds when it runs. Operations that want a plain
value do this by themselves; in a Dataflow each such reading is a node. ENSURE_SHAPE is the client's
op, which checks what `set_shape` promised.
"""

from __future__ import annotations

from headrace.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect
from headrace.graph.lowering import Read
from headrace.graph.schema import parse_schema
from headrace.ops import infer
from headrace.ops.source_ops import ensure_shape_op

__all__ = ["ENSURE_SHAPE", "READ"]

READ = Definition(
    schema=parse_schema("_Read", "ref: Ref(T) -> value: T", "T: type"),
    infer=infer.same_as(0),
    kernel=lambda ref: ref.read(),
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    lower=Read(),
    doc="Return the value of the variable that a reference leads to.",
)

ENSURE_SHAPE: Definition = ensure_shape_op.definition
