"""The losses of softmax and their gradient, in one pass over the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headrace._src.compile.build.compose import Composer
from headrace._src.compile.build.plan_builder import Builder
from headrace._src.compile.codegen.combine import state_dtype
from headrace._src.compile.codegen.iteration_spaces import Access
from headrace._src.compile.kernels.anchor_kind import AnchorKind, Arrays, Family, splice, wide
from headrace._src.compile.kernels.rows.row_fragments import input_of, output_of, stage
from headrace._src.compile.kernels.rows.rows_kernel import Rows, Stage
from headrace._src.compile.kernels.singles.softmax_rows import exponentials, less_maximum
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.plan.plan_writer import PlanWriter
from headrace._src.compile.regions.groups import Group
from headrace._src.lowering.anchors import CrossEntropy, SparseCrossEntropy
from headrace._src.lowering.rules import row_major

__all__ = ["KINDS", "cross_entropy", "sparse_cross_entropy"]


def _loss(
    g: CrossEntropy | SparseCrossEntropy, label: str, labels: Access, weighted: Callable[..., Any]
) -> Rows:
    """Loss and gradient, where weighted(e, label, value) is the value times the probability that
    the label gives to an element's class.
    """
    wide = state_dtype(g.dtype)

    def last(e: Any, power: Any, x: Any, found: Any, top: Any, inverse: Any, log: Any) -> Any:
        gradient = power * inverse - weighted(e, found, e.const(1, wide))
        return e.cast(gradient, g.dtype), weighted(e, found, log - (e.cast(x, wide) - top))

    stages = exponentials(g.dtype, wide)
    stages.append(
        stage(
            lambda e, total: (e.div(1.0, total), e.log(total)),
            {"s1": wide},
            "s2",
            "s3",
            scalar=True,
        )
    )
    operands = {"row0": wide, "x0": g.dtype, "x1": label, "s0": wide, "s2": wide, "s3": wide}
    stages.append(stage(last, operands, "y1", "sum s4"))
    stages.append(stage(lambda e, v: e.cast(v, g.dtype), {"s4": wide}, "y0", scalar=True))
    rows = Access(g.dtype, (g.classes, 1))
    loss = Access(g.dtype, (1, 0))
    return Rows((g.rows,), g.classes, tuple(stages), (rows, labels), (loss, rows))


def cross_entropy(g: CrossEntropy) -> Plan:
    """Logits and labels -> losses and gradient, in one pass."""
    wide = state_dtype(g.dtype)
    labels = Access(g.dtype, (g.classes, 1))
    kernel = _loss(g, g.dtype, labels, lambda e, label, v: v * e.cast(label, wide))
    return _loss_plan(g, kernel, g.dtype, g.rows * g.classes)


def sparse_cross_entropy(g: SparseCrossEntropy) -> Plan:
    """Logits and the classes of rows -> losses and gradient. The cluster's caller has checked that
    the classes are in range.
    """
    wide = state_dtype(g.dtype)

    def weighted(e: Any, label: Any, value: Any) -> Any:
        # Chosen, not multiplied: the logit of another class may be -inf.
        hit = e.eq(e.index(1), e.cast(label, "int64"))
        return e.select(hit, value, e.const(0, wide))

    kernel = _loss(g, g.label_dtype, Access(g.label_dtype, (1, 0)), weighted)
    return _loss_plan(g, kernel, g.label_dtype, g.rows)


def _loss_plan(
    g: CrossEntropy | SparseCrossEntropy, kernel: Rows, label_dtype: str, labels: int
) -> Plan:
    plan, size = PlanWriter(), g.rows * g.classes
    given = [input_of(plan, 0, g.dtype, size), input_of(plan, 1, label_dtype, labels)]
    plan.call(
        kernel, [*given, output_of(plan, 0, g.dtype, g.rows), output_of(plan, 1, g.dtype, size)]
    )
    return plan.finish()


def _build(builder: Builder, group: Group) -> None:
    """The losses of softmax with their gradient and its followers, in one pass."""
    node, g, space = group.head, group.head.geometry, group.space
    if isinstance(g, CrossEntropy):
        fragment = cross_entropy(g)
    else:
        fragment = sparse_cross_entropy(g)
    if len(group.nodes) == 1:
        splice(builder, group, fragment)
        return
    rows: Rows = fragment.calls[-1].kernel
    *before, gradients, losses = rows.stages
    composer, program = Composer(), gradients.program
    named = zip(gradients.operands, program.inputs, strict=True)
    gradient, share = composer.apply(program, [composer.operand(*n) for n in named])
    local = {group.result: gradient}
    for follower in group.nodes[1:]:
        builder.compose_node(follower, composer, local, {}, space)
    stored = [v for v in local if builder.is_needed(v, {*group.nodes})]
    program = composer.finish([*(local[v] for v in stored), share])
    more: Any = composer.operands[len(gradients.operands) :]
    inputs = [*rows.inputs, *(Access(o.dtype, o.strides, o.offset) for o in more)]
    outputs = [Access(v.dtype.base_dtype.name, row_major(space.shape)) for v in stored]
    stage = Stage(
        program,
        (*gradients.operands, *(f"x{i}" for i in range(len(rows.inputs), len(inputs)))),
        (*(f"y{i}" for i in range(1, 1 + len(stored))), gradients.results[-1]),
    )
    kernel = replace(
        rows,
        stages=(*before, stage, losses),
        inputs=tuple(inputs),
        outputs=(rows.outputs[0], *outputs),
    )
    given = [*map(builder.whole, node.inputs[:2]), *(o.buffer for o in more)]
    made = [builder.result(v) for v in (node.outputs[0], *stored)]
    builder.call(kernel, [*given, *made], node.name)


def _meaning(g: CrossEntropy, x: np.ndarray, labels: np.ndarray) -> Arrays:
    rows, total = less_maximum(x)
    labels = wide(labels)
    loss = ((np.log(total) - rows) * labels).sum(-1)
    return [loss, (np.exp(rows) / total - labels).astype(x.dtype)]


def _sparse_meaning(g: SparseCrossEntropy, x: np.ndarray, labels: np.ndarray) -> Arrays:
    rows, total = less_maximum(x)
    hot = labels[:, None] == np.arange(g.classes)
    loss = np.where(hot, np.log(total) - rows, 0).sum(-1)
    return [loss, (np.exp(rows) / total - hot).astype(x.dtype)]


KINDS = (
    AnchorKind(
        "cross_entropy",
        Family(_build),
        meanings={CrossEntropy: _meaning, SparseCrossEntropy: _sparse_meaning},
    ),
)
