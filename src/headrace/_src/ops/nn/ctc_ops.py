"""Connectionist temporal classification: the loss, its decoders, and unique labels."""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Precision, Sample
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.counted import counted
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.nn import ctc_kernels
from headrace._src.ops.nn.loss_ops import is_zero

__all__ = [
    "collapse_repeated",
    "ctc_beam_search_decoder",
    "ctc_greedy_decoder",
    "ctc_loss",
    "ctc_loss_v2",
    "ctc_unique_labels",
]


# ---- loss --------------------------------------------------------------------------------------


def _batch(inputs: TensorShape, sequence_length: TensorShape) -> TensorShape:
    return inputs.with_rank(3)[1:2].merge_with(sequence_length.with_rank(1))


def _loss_infer(
    c: Any, inputs: TensorShape, indices: TensorShape, values: TensorShape, lengths: TensorShape
) -> list[Any]:
    indices.with_rank(2)[:1].merge_with(values.with_rank(1))
    batch = _batch(inputs, lengths)
    inputs = inputs.with_rank(3)
    return [batch, inputs[:1].concatenate(batch).concatenate(inputs[2:])]


@counted(4)
def _loss_gradient(b: OpBuilder, op: Any, grad_loss: Any, grad_gradient: Any) -> Any:
    if not is_zero(grad_gradient):
        raise LookupError(
            f"ctc_loss has no second derivative: '{op.name}' gives its first one as an output"
        )
    return b.multiply(b.expand_dims(grad_loss, -1), op.outputs[1]), None, None, None


_LABELS = ([[0, 0], [0, 1], [1, 0]], [0, 1, 2])


@define(
    "CTCLoss",
    "inputs: T, labels_indices: int64, labels_values: int32, sequence_length: int32 -> "
    "loss: T, gradient: T",
    "preprocess_collapse_repeated: bool = False; ctc_merge_repeated: bool = True; "
    "ignore_longer_outputs_than_inputs: bool = False; T: {float32|float64} = float32",
    infer=_loss_infer,
    kernel=ctc_kernels.ctc_loss,
    gradient=_loss_gradient,
    samples=[
        Sample(r(4, 2, 4), *_LABELS, [4, 3], T="float32"),
        Sample(
            r(4, 2, 4),
            *_LABELS,
            [4, 3],
            preprocess_collapse_repeated=True,
            ctc_merge_repeated=False,
            T="float32",
        ),
        Sample(r(3, 2, 4), *_LABELS, [1, 3], ignore_longer_outputs_than_inputs=True, T="float32"),
    ],
    precision=Precision.WIDE,
)
def ctc_loss_op(
    inputs,
    labels_indices,
    labels_values,
    sequence_length,
    preprocess_collapse_repeated=False,
    ctc_merge_repeated=True,
    ignore_longer_outputs_than_inputs=False,
    name=None,
):
    """Return minus the log probability of each sequence's labels, and its gradient for inputs."""


@composed
@export("nn.ctc_loss")
def ctc_loss(
    labels: Any,
    inputs: Any = None,
    sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: Any = None,
) -> Tensor:
    """Return minus the log probability of each sequence's labels (int32, sparse [batch, time]).

    inputs: logits [time, batch, classes], or [batch, time, classes] unless time_major; the last
    class is the blank.

    sequence_length: [batch], the number of time steps of each sequence.
    preprocess_collapse_repeated: merge equal neighbours in the labels first. ctc_merge_repeated:
    whether a path may repeat a label without emitting it twice. ignore_longer_outputs_than_inputs:
    give labels that are longer than their sequence zero loss instead of an error.
    """
    inputs = renamed_argument("logits", logits, "inputs", inputs)
    if not isinstance(labels, SparseTensor):
        raise TypeError("Expected labels (first argument) to be a SparseTensor")
    if not time_major:
        inputs = b.transpose(inputs, [1, 0, 2])
    loss, _ = ctc_loss_op(
        inputs,
        labels.indices,
        labels.values,
        sequence_length,
        preprocess_collapse_repeated=preprocess_collapse_repeated,
        ctc_merge_repeated=ctc_merge_repeated,
        ignore_longer_outputs_than_inputs=ignore_longer_outputs_than_inputs,
    )
    return loss


@composed
@export("nn.ctc_loss_v2")
def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Return minus the log probability of each sequence's labels: dense labels [batch, time], of
    which the first `label_length` count, or sparse labels, which need no length.

    blank_index: the class of the blank, counted from the end if negative; None means 0, and is not
    allowed for sparse labels. unique: the result of `ctc_unique_labels` for dense labels; the loss
    doesn't need it, and only checks that it is such a pair.

    logit_length: [batch], the number of time steps of each sequence. logits_time_major: whether
    logits are [time, batch, classes] or [batch, time, classes].
    """
    is_sparse = isinstance(labels, SparseTensor)
    if is_sparse and blank_index is None:
        raise ValueError("blank_index must be given when using SparseTensor labels.")
    if unique is not None and len(unique) != 2:
        raise ValueError(f"unique must be the pair that ctc_unique_labels returns: {unique!r}")
    with name_scope(name, "ctc_loss", [logits, label_length, logit_length]):
        logits = convert_to_tensor(logits, name="logits")
        if not is_sparse:
            labels = _sparse_labels(labels, label_length)
        classes = logits.shape[-1].value
        if classes is None:
            raise ValueError(f"the number of classes must be known: logits have {logits.shape}")
        blank = (blank_index or 0) % classes
        kept = [i for i in range(classes) if i != blank]
        logits = b.gather(logits, [*kept, blank], axis=2)  # CTCLoss expects the blank last
        values = labels.values
        values = b.where(b.less(values, blank), values, values - 1)
        labels = SparseTensor(labels.indices, values, labels.dense_shape)
        return ctc_loss(labels, logits, logit_length, time_major=logits_time_major)


def _sparse_labels(labels: Any, lengths: Any) -> SparseTensor:
    """Return the first labels of each row, as many as its length says."""
    labels = convert_to_tensor(labels, name="labels")
    used = b.where(b.sequence_mask(lengths, maxlen=_size(labels, 1)))
    values = b.cast(b.gather_nd(labels, used), "int32")
    return SparseTensor(used, values, b.shape(labels, out_type="int64"))


# ---- decoders ----------------------------------------------------------------------------------


def _greedy_infer(c: Any, inputs: TensorShape, lengths: TensorShape) -> list[Any]:
    batch = _batch(inputs, lengths)
    return [(None, 2), (None,), (2,), batch.concatenate([1])]


@define(
    "CTCGreedyDecoder",
    "inputs: T, sequence_length: int32 -> decoded_indices: int64, decoded_values: int64, "
    "decoded_shape: int64, log_probability: T",
    "merge_repeated: bool = False; T: {float32|float64} = float32",
    infer=_greedy_infer,
    kernel=ctc_kernels.ctc_greedy_decoder,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(5, 2, 4), [5, 3]), Sample(r(5, 2, 4), [0, 5], merge_repeated=True)],
)
def ctc_greedy_decoder_op(inputs, sequence_length, merge_repeated=False, name=None):
    """Return the best class of each step, without blanks, in sparse form."""


@composed
@export("nn.ctc_greedy_decoder")
def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True
) -> tuple[list[SparseTensor], Tensor]:
    """Return ([the labels of the best path], minus the sum of its logits [batch, 1]).

    inputs: logits [time, batch, classes]; the last class is the blank. sequence_length: [batch].
    merge_repeated: merge equal neighbours that have no blank between them.
    """
    found = ctc_greedy_decoder_op(inputs, sequence_length, merge_repeated=merge_repeated)
    decoded = SparseTensor(found.decoded_indices, found.decoded_values, found.decoded_shape)
    return [decoded], found.log_probability


def _beam_infer(c: Any, inputs: TensorShape, lengths: TensorShape) -> list[Any]:
    count = c.attrs["top_paths"]
    batch = _batch(inputs, lengths)
    shapes: list[Any] = [(None, 2)] * count + [(None,)] * count + [(2,)] * count
    return [*shapes, batch.concatenate([count])]


@define(
    "CTCBeamSearchDecoder",
    "inputs: T, sequence_length: int32 -> decoded_indices: top_paths*int64, "
    "decoded_values: top_paths*int64, decoded_shape: top_paths*int64, log_probability: T",
    "beam_width: int >= 1; top_paths: int >= 1; merge_repeated: bool = True; "
    "T: {float32|float64} = float32",
    infer=_beam_infer,
    kernel=ctc_kernels.ctc_beam_search_decoder,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(r(4, 2, 3), [4, 3], beam_width=4, top_paths=2),
        Sample(r(4, 2, 3), [4, 3], beam_width=3, top_paths=1, merge_repeated=False),
    ],
)
def ctc_beam_search_decoder_op(
    inputs, sequence_length, beam_width, top_paths, merge_repeated=True, name=None
):
    """Return the most probable label sequences that a beam search finds."""


@composed
@export("nn.ctc_beam_search_decoder")
def ctc_beam_search_decoder(
    inputs: Any,
    sequence_length: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
) -> tuple[list[SparseTensor], Tensor]:
    """Return (the top_paths most probable label sequences, their log probabilities).

    merge_repeated merges equal neighbours in the decoded labels, not before.

    inputs: logits [time, batch, classes]; the last class is the blank. sequence_length: [batch].
    beam_width: the number of prefixes that are kept at each step.
    """
    found = ctc_beam_search_decoder_op(
        inputs,
        sequence_length,
        beam_width=beam_width,
        top_paths=top_paths,
        merge_repeated=merge_repeated,
    )
    parts = zip(found.decoded_indices, found.decoded_values, found.decoded_shape, strict=True)
    return [SparseTensor(*part) for part in parts], found.log_probability


@composed
@export("nn.ctc_beam_search_decoder_v2")
def ctc_beam_search_decoder_v2(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1
) -> tuple[list[SparseTensor], Tensor]:
    """As ctc_beam_search_decoder, but equal neighbours are kept."""
    return ctc_beam_search_decoder(
        inputs, sequence_length, beam_width=beam_width, top_paths=top_paths, merge_repeated=False
    )


# ---- labels ------------------------------------------------------------------------------------


def _size(x: Tensor, axis: int) -> Any:
    """Return the size of a dimension: a number if it is known, else a tensor."""
    known = None if x.shape.sizes is None else x.shape.sizes[axis]
    return b.shape(x)[axis] if known is None else known


@composed
@export("nn.collapse_repeated")
def collapse_repeated(
    labels: Any, seq_length: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return dense labels [batch, time] with each run of equal labels merged, and their lengths.

    seq_length: [batch], the number of labels in each row.
    """
    with name_scope(name, "collapse_repeated_labels", [labels, seq_length]):
        labels = convert_to_tensor(labels, name="labels")
        seq_length = convert_to_tensor(seq_length, name="seq_length")
        first = b.ones_like(labels[:, :1], dtype="bool")
        starts = b.concat([first, b.not_equal(labels[:, 1:], labels[:, :-1])], axis=1)
        used = b.sequence_mask(seq_length, maxlen=_size(labels, 1))
        kept = b.logical_and(starts, used)
        lengths = b.reduce_sum(b.cast(kept, "int32"), axis=1)
        longest = b.reduce_max(lengths)
        places = b.sequence_mask(lengths, maxlen=longest)
        flat_labels = b.reshape(labels, [-1])
        flat_kept = b.reshape(kept, [-1])
        flat_places = b.reshape(places, [-1])
        numbers = b.range(_size(flat_places, 0))
        flat = b.scatter_nd(
            indices=b.expand_dims(b.boolean_mask(numbers, flat_places), axis=1),
            updates=b.boolean_mask(flat_labels, flat_kept),
            shape=b.shape(flat_places),
        )
        collapsed = b.reshape(flat, [_size(labels, 0), longest])
        return collapsed, b.cast(lengths, seq_length.dtype)


@composed
@export("nn.ctc_unique_labels")
def ctc_unique_labels(labels: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """Return the distinct labels in each row of dense labels [batch, time], in order and padded
    with zeros, and the index of each label among them.
    """
    with name_scope(name, "ctc_unique_labels", [labels]):
        labels = convert_to_tensor(labels, name="labels")
        time = _size(labels, 1)
        same = b.equal(b.expand_dims(labels, 2), b.expand_dims(labels, 1))
        first = b.argmax(b.cast(same, "int32"), axis=2, output_type=dtypes.int64)
        is_new = b.equal(first, b.cast(b.range(time), "int64"))
        rank = b.cumsum(b.cast(is_new, "int64"), axis=1) - 1
        at_first = b.one_hot(first, time, dtype=dtypes.int64)
        places = b.reduce_sum(at_first * b.expand_dims(rank, 1), axis=2)
        nowhere = b.zeros_like(rank) - 1
        at_rank = b.one_hot(b.where(is_new, rank, nowhere), time, dtype=labels.dtype)
        found = b.reduce_sum(at_rank * b.expand_dims(labels, 2), axis=1)
        return b.cast(found, "int64"), b.cast(places, "int32")
