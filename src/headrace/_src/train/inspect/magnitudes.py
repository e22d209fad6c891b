"""Summaries of the magnitudes of parameters, gradients, activations and updates. In: tensors. Out:
for each, curves of its norm, its mean and largest magnitude and its fraction of zeros, and a
histogram.

The white paper advises to look at magnitudes when debugging a model. TensorBoard then shows, side
by side, vanishing or exploding gradients, dead units, and wrong learning rates (updates far from a
thousandth of the parameters).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.io import summary_functions as summary

__all__ = ["apply_and_summarize", "summarize_magnitudes"]

Collections = Iterable[str] | None


@export("train.summarize_magnitudes")
def summarize_magnitudes(
    grads_and_vars: Iterable[tuple[Any, Any]] = (),
    activations: Iterable[Any] = (),
    variables: Iterable[Any] = (),
    histograms: bool = True,
    collections: Collections = None,
) -> list[Tensor]:
    """Add summaries of magnitudes, and return them.

    grads_and_vars: the result of `Optimizer.compute_gradients`; the gradients become gradient/NAME,
    the variables parameter/NAME. activations: tensors, which become activation/NAME. variables:
    further variables. histograms: whether to add histograms, which fail for non-finite numbers.
    collections: those that the summaries join, SUMMARIES by default.
    """
    pairs = [(g, v) for g, v in grads_and_vars]
    made = []
    for gradient, v in pairs:
        if gradient is not None:
            made += _summaries("gradient", v.op.name, gradient, histograms, collections)
    seen: dict[str, Any] = {v.op.name: v for _, v in pairs}
    seen.update((v.op.name, v) for v in variables)
    for name, v in seen.items():
        made += _summaries("parameter", name, v, histograms, collections)
    for tensor in map(convert_to_tensor, activations):
        made += _summaries("activation", tensor.op.name, tensor, histograms, collections)
    return made


@export("train.apply_and_summarize")
def apply_and_summarize(
    optimizer: Any,
    grads_and_vars: Iterable[tuple[Any, Any]],
    global_step: Any = None,
    histograms: bool = True,
    name: str | None = None,
) -> tuple[Operation, Tensor]:
    """Apply gradients, and return that operation with a merged summary of what it changed.

    For each variable: update/NAME, the difference between its values after and before, and
    update/NAME/ratio, the norm of this over that of the variable before (0 if that is 0). As a rule
    of thumb, a ratio near 0.001 is right. Running the summary runs the update. Therefore it is in
    no collection: `tf.summary.merge_all` is also run for evaluation.
    """
    pairs = [(g, v) for g, v in grads_and_vars]
    variables = [v for g, v in pairs if g is not None]
    graph = get_default_graph()
    with name_scope(None, "before"):
        # Products make copies: an identity of a reference is an alias and would show the new value.
        before = [b.multiply(v.read_value(), 1) for v in variables]
    with graph.control_dependencies(before):
        train = optimizer.apply_gradients(pairs, global_step=global_step, name=name)
    made: list[Tensor] = []
    with graph.control_dependencies([train]):
        after = [v.read_value() for v in variables]
    for v, old, new in zip(variables, before, after, strict=True):
        label = v.op.name
        update = new - old
        made += _summaries("update", label, update, histograms, ())
        ratio = b.div_no_nan(_norm(_plain(update)), _norm(_plain(old)))
        made.append(summary.scalar(f"update/{label}/ratio", ratio, collections=()))
    return train, summary.merge(made, name="updates")


def _plain(values: Any) -> Tensor:
    """Return the numbers as float32: magnitudes of complex numbers, only the present rows of
    slices.
    """
    tensor = convert_to_tensor(values.values if isinstance(values, IndexedSlices) else values)
    if tensor.dtype.is_complex:
        tensor = b.abs(tensor)
    return b.cast(tensor, dtypes.float32)


def _norm(numbers: Tensor) -> Tensor:
    return b.sqrt(b.reduce_sum(b.square(numbers)))


def _summaries(
    kind: str, label: str, values: Any, histograms: bool, collections: Collections
) -> Sequence[Tensor]:
    with name_scope(None, f"magnitudes_of_{kind}"):
        numbers = _plain(values)
        sizes = b.abs(numbers)
        measures = {
            "norm": _norm(numbers),
            "mean_abs": b.reduce_mean(sizes),
            "max_abs": b.reduce_max(sizes),
            "zeros": b.reduce_mean(b.cast(b.equal(numbers, 0.0), dtypes.float32)),
        }
    tag = f"{kind}/{label}"
    made = [summary.scalar(f"{tag}/{k}", v, collections) for k, v in measures.items()]
    if histograms:
        made.append(summary.histogram(tag, numbers, collections))
    return made
