"""How large numbers are: summaries of parameters, gradients, activations and updates. In: tensors.
Out: for each a curve of its norm, its mean and largest magnitude and the share of its zeros, and a
histogram.

One of the white paper's tips for finding what is wrong with a model: look at the magnitudes. Layers
whose gradients vanish or explode, units that are dead, and learning rates that are off (updates far
from a thousandth of the parameters) show in TensorBoard side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.core import dtypes
from headrace.core.export import export
from headrace.graph.composite import IndexedSlices
from headrace.graph.default import get_default_graph
from headrace.graph.operation import Operation, Tensor
from headrace.ops import summary_functions as summary
from headrace.ops.convert import convert_to_tensor, name_scope
from headrace.ops.define import b

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

    grads_and_vars: as `Optimizer.compute_gradients` gives them: the gradients as gradient/NAME, the
    variables as parameter/NAME. activations: tensors, as activation/NAME. variables: further
    variables. histograms: whether there are histograms too, which fail for numbers that aren't
    finite. collections: of the summaries, SUMMARIES by default.
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
    of thumb, a ratio near 0.001 is right. Whoever runs the summary runs the update; so it is in
    no collection, for `tf.summary.merge_all` is also run to evaluate.
    """
    pairs = [(g, v) for g, v in grads_and_vars]
    variables = [v for g, v in pairs if g is not None]
    graph = get_default_graph()
    with name_scope(None, "before"):
        # Products: the identity of a reference is an alias, and would be what the variable is then.
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
    """The numbers as float32; magnitudes of complex ones; of slices those that are there."""
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
