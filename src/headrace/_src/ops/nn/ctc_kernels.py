"""Connectionist temporal classification (Graves 2006). In: logits [time, batch, classes].

Out: a loss with its gradient, or decoded labels in sparse form: (indices, values, shape). The last
class is the blank. The loss runs the forward-backward recursions in log space over the labels
interleaved with blanks, for the whole batch and all positions at once: only time is a loop. From
some size on, generated code does the same for each sequence (lowering.generated).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace._src.core.errors import FailedPreconditionError
from headrace._src.devices.room import check_room
from headrace._src.lowering import generated
from headrace._src.ops.math.sum_precision import require_float
from headrace._src.ops.nn.ctc_search import search

# From this many logits on, generated code pays off (in a beam search: logits times beam width);
# loading the compiler takes 0.1 s, once.
_LARGE = 1024


def ctc_loss(
    inputs: np.ndarray,
    labels_indices: np.ndarray,
    labels_values: np.ndarray,
    sequence_length: np.ndarray,
    *,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the negative log probability of each sequence's labels, and its gradient for the
    logits.

    A sequence without any path has infinite loss, and its gradient is the softmax. Labels longer
    than their sequence are an error or, on request, have zero loss and gradient.
    """
    lengths = _checked_lengths(inputs, sequence_length)
    labels = _Labels.of(labels_indices, labels_values, inputs.shape, preprocess_collapse_repeated)
    # An ignored sequence has no steps, so it adds neither loss nor gradient.
    ignored = labels.too_long(lengths, ignore_longer_outputs_than_inputs)
    lengths = np.where(ignored, 0, lengths)
    if inputs.size >= _LARGE:
        native = generated.routine("ctc_loss", inputs.dtype.name, ctc_merge_repeated)
        if native is not None:
            return native(inputs, labels.values, labels.counts, lengths)
    return _loss(inputs, labels, lengths, ctc_merge_repeated)


def _loss(
    inputs: np.ndarray, labels: _Labels, lengths: np.ndarray, merge: bool
) -> tuple[np.ndarray, np.ndarray]:
    lattice = _Lattice.of(labels, inputs.shape[2] - 1, merge)
    log_softmax = _log_softmax(inputs.astype(np.float64))
    emitted = np.take_along_axis(log_softmax, lattice.symbols[None], axis=2)
    alpha = _forward(emitted, lattice)
    beta = _backward(emitted, lattice, lengths)
    log_likelihood = _likelihood(alpha, beta, lengths)
    running = np.arange(len(inputs))[:, None] < lengths
    expected = _occupancy(alpha + beta, log_likelihood, running, lattice, inputs.shape)
    gradient = np.where(running[:, :, None], np.exp(log_softmax) - expected, 0)
    return (0 - log_likelihood).astype(inputs.dtype), gradient.astype(inputs.dtype)


def ctc_greedy_decoder(
    inputs: np.ndarray, sequence_length: np.ndarray, *, merge_repeated: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the best class of each step, without blanks; last, minus the sum of the best logits.

    With `merge_repeated`, a class that was also best in the previous step is not repeated.
    """
    lengths = _decoded_lengths(inputs, sequence_length)
    # NaN is never the best class.
    logits = np.where(np.isnan(inputs), -np.inf, inputs)
    best = logits.argmax(axis=2)
    running = np.arange(len(inputs))[:, None] < lengths
    said = running & (best != inputs.shape[2] - 1)
    if merge_repeated:
        said[1:] &= best[1:] != best[:-1]
    score = np.where(running, logits.max(axis=2), 0).sum(axis=0)
    return *_sparse(best.T, said.T), (0 - score)[:, None].astype(inputs.dtype)


def ctc_beam_search_decoder(
    inputs: np.ndarray,
    sequence_length: np.ndarray,
    *,
    beam_width: int,
    top_paths: int,
    merge_repeated: bool = True,
) -> tuple[np.ndarray, ...]:
    """Return the `top_paths` most probable label sequences that a beam search finds.

    Outputs are flat, as the op's are: `top_paths` indices, then as many values, then shapes, then
    the log probabilities [batch, top_paths]. `merge_repeated` collapses equal neighbours *in the
    decoded labels*.
    """
    lengths = _decoded_lengths(inputs, sequence_length)
    if top_paths > beam_width:
        raise ValueError(
            f"requested more paths than the beam width: {top_paths} of beam_width {beam_width}"
        )
    width = _useful_width(beam_width, inputs)
    labels, counts, scores = _searched(inputs, lengths, width, top_paths)
    short = int((counts >= 0).sum(axis=1).min(initial=top_paths))
    if short < top_paths:
        raise ValueError(
            f"Less leaves in the beam search than requested: {short} of top_paths {top_paths}"
        )
    said = np.arange(len(inputs)) < counts[:, :, None]
    if merge_repeated:
        said[:, :, 1:] &= labels[:, :, 1:] != labels[:, :, :-1]
    decoded = [_sparse(labels[:, rank], said[:, rank]) for rank in range(top_paths)]
    return *(part for parts in zip(*decoded, strict=True) for part in parts), scores


def _useful_width(width: int, inputs: np.ndarray) -> int:
    """Return the beam width, reduced to the number of all possible label sequences."""
    steps, batch, classes = inputs.shape
    most = 0
    for length in range(steps + 1):
        most += max(classes - 1, 1) ** length
        if most >= width:
            most = width
            break
    check_room([batch, most, classes], np.float64, "beam_width")
    return max(most, 1)


def _searched(
    inputs: np.ndarray, lengths: np.ndarray, width: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the labels [batch, count, time] of the best paths, their lengths (-1 where there is no
    path), and the log probabilities.
    """
    if inputs.size * width >= _LARGE:
        native = generated.routine("ctc_beam_search", inputs.dtype.name)
        if native is not None:
            return native(inputs, lengths, width, count)
    steps, batch, _ = inputs.shape
    labels = np.zeros((batch, count, steps), np.int64)
    counts = np.full((batch, count), -1)
    scores = np.zeros((batch, count), inputs.dtype)
    for b, length in enumerate(lengths):
        for rank, (path, score) in enumerate(zip(*search(inputs[:length, b], width, count))):
            labels[b, rank, : len(path)] = path
            counts[b, rank], scores[b, rank] = len(path), score
    return labels, counts, scores


@dataclass(frozen=True, slots=True)
class _Lattice:
    """Positions [batch, 2 * longest + 1]: labels between blanks, and the moves into each."""

    symbols: np.ndarray
    stay: np.ndarray  # log weight 0 or -inf of a move from the same position
    skip: (
        np.ndarray
    )  # the same for a move from two positions before; from one before is always allowed
    final: np.ndarray  # the same for ending at a position

    @classmethod
    def of(cls, labels: _Labels, blank: int, merge: bool) -> _Lattice:
        counts = labels.counts
        symbols = np.full((len(counts), 2 * counts.max(initial=0) + 1), blank)
        rows, columns = _places(counts)
        symbols[rows, 2 * columns + 1] = labels.values
        is_label = symbols != blank
        skip = np.zeros_like(is_label)
        skip[:, 2:] = is_label[:, 2:]
        if merge:
            # Equal labels without a blank between them would be merged into one.
            skip[:, 2:] &= symbols[:, 2:] != symbols[:, :-2]
        ends = 2 * counts[:, None] - np.arange(symbols.shape[1])
        stay = np.full_like(is_label, True) if merge else ~is_label
        return cls(symbols, _log(stay), _log(skip), _log((ends == 0) | (ends == 1)))


def _log(allowed: np.ndarray) -> np.ndarray:
    return np.where(allowed, 0.0, -np.inf)


def _forward(emitted: np.ndarray, lattice: _Lattice) -> np.ndarray:
    """Return alpha[t]: the log probability of the output up to t, ending at each position."""
    alpha = np.empty_like(emitted)
    sequences, positions = lattice.symbols.shape
    # Two impossible positions before the first: moves from there need no special case.
    padded = np.full((sequences, positions + 2), -np.inf)
    previous, one_before, two_before = padded[:, 2:], padded[:, 1:-1], padded[:, :-2]
    # Before the first step, the position is the first blank, which may be repeated or left.
    previous[:, 0] = 0
    for t, said in enumerate(emitted):
        moves = np.logaddexp(previous + lattice.stay, one_before)
        previous[...] = said + np.logaddexp(moves, two_before + lattice.skip)
        alpha[t] = previous
    return alpha


def _backward(emitted: np.ndarray, lattice: _Lattice, lengths: np.ndarray) -> np.ndarray:
    """Return beta[t]: the log probability of emitting, after t, the rest from each position."""
    beta = np.empty_like(emitted)
    sequences, positions = lattice.symbols.shape
    padded = np.full((sequences, positions + 2), -np.inf)
    following, one_after, two_after = padded[:, :-2], padded[:, 1:-1], padded[:, 2:]
    skip = np.full_like(padded, -np.inf)
    skip[:, :-2] = lattice.skip
    last = np.arange(len(emitted))[:, None, None] == (lengths - 1)[:, None]
    for t in reversed(range(len(emitted))):
        moves = np.logaddexp(following + lattice.stay, one_after)
        moves = np.logaddexp(moves, two_after + skip[:, 2:])
        np.copyto(moves, lattice.final, where=last[t])
        beta[t] = moves
        np.add(moves, emitted[t], out=following)
    return beta


def _likelihood(alpha: np.ndarray, beta: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the log probability of all paths at each sequence's last step; 0 if it has none."""
    sequences = np.arange(len(lengths))
    if not len(alpha):
        return np.zeros(len(lengths))
    last = lengths - 1
    paths = alpha[last, sequences] + beta[last, sequences]
    return np.where(lengths > 0, np.logaddexp.reduce(paths, axis=1), 0.0)


def _occupancy(
    paths: np.ndarray,
    log_likelihood: np.ndarray,
    running: np.ndarray,
    lattice: _Lattice,
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return the expected number of times that each class is emitted at each step, given the
    labels.
    """
    steps, sequences, classes = shape
    possible = running & (log_likelihood != -np.inf)
    weights = np.exp(paths - np.where(possible, log_likelihood, np.inf)[:, :, None])
    cells = np.arange(steps * sequences).reshape(steps, sequences, 1) * classes + lattice.symbols
    total = np.bincount(cells.reshape(-1), weights.reshape(-1), steps * sequences * classes)
    return total.reshape(shape)


def _checked_lengths(inputs: np.ndarray, sequence_length: np.ndarray) -> np.ndarray:
    require_float("ctc", inputs)
    if inputs.ndim != 3 or not inputs.shape[2]:
        raise ValueError(
            f"inputs is not a 3-Tensor [time, batch, classes]: its shape is {list(inputs.shape)}"
        )
    lengths = np.asarray(sequence_length)
    batch = inputs.shape[1]
    if lengths.shape != (batch,):
        raise ValueError(
            "len(sequence_length) != batch_size.  "
            f"len(sequence_length):  {lengths.size} batch_size: {batch}"
        )
    if lengths.size and lengths.min() < 0:
        sequence = int(lengths.argmin())
        raise ValueError(f"seq_len({sequence}) < 0: it is {lengths[sequence]}")
    if lengths.size and lengths.max() > len(inputs):
        sequence = int((lengths > len(inputs)).argmax())
        raise ValueError(
            f"sequence_length({sequence}) <= {len(inputs)} does not hold: it is {lengths[sequence]}"
        )
    return lengths.astype(np.int64)


def _decoded_lengths(inputs: np.ndarray, sequence_length: np.ndarray) -> np.ndarray:
    """Return the lengths for a decoder: negative ones count as zero, too large ones are
    an error.
    """
    require_float("ctc", inputs)
    lengths = np.maximum(np.asarray(sequence_length), 0)
    try:
        return _checked_lengths(inputs, lengths)
    except ValueError as error:
        if inputs.ndim != 3:
            raise
        raise FailedPreconditionError(None, None, str(error)) from None


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of all sequences, concatenated, and the number of each sequence's labels; `given`:
    that number including padding and repeats.
    """

    values: np.ndarray
    counts: np.ndarray
    given: np.ndarray

    @classmethod
    def of(
        cls, indices: np.ndarray, values: np.ndarray, shape: tuple[int, ...], collapse: bool
    ) -> _Labels:
        """Read the sparse form. Classes from the blank on are padding, allowed only at the end."""
        indices, values = np.asarray(indices), np.asarray(values)
        batch, classes = shape[1:]
        _check_indices(indices, values, batch)
        rows = indices[:, 0]
        counts = np.bincount(rows, minlength=batch)
        if not counts.all():
            raise ValueError(f"Labels length is zero in batch {int((counts == 0).argmax())}")
        if not len(values):
            return cls(values, counts, counts)

        def shown(at: int) -> str:
            mine = ",".join(map(str, values[rows == rows[at]].tolist()))
            return f"batch: {rows[at]} num_classes: {classes} labels: {mine}"

        if values.min() < 0:
            raise ValueError(
                f"All labels must be nonnegative integers, {shown(int(values.argmin()))}"
            )
        kept = values < classes - 1
        same_row = rows[1:] == rows[:-1]
        late = kept[1:] & ~kept[:-1] & same_row
        if late.any():
            raise ValueError(
                "Saw a non-null label (index >= num_classes - 1) following a null label, "
                f"{shown(int(late.argmax()))}"
            )
        if collapse:
            kept[1:] &= ~(same_row & (values[1:] == values[:-1]))
        if kept.all():
            return cls(values, counts, counts)
        return cls(values[kept], np.bincount(rows[kept], minlength=batch), counts)

    def too_long(self, lengths: np.ndarray, ignore: bool) -> np.ndarray:
        """Return which sequences have fewer steps than labels; this is an error unless they are to
        be ignored.
        """
        longer = self.given > lengths
        if not ignore and longer.any():
            sequence = int(longer.argmax())
            raise ValueError(
                "Not enough time for target transition sequence "
                f"(required: {self.given[sequence]}, available: {lengths[sequence]}) in sequence "
                f"{sequence}. You can turn this error into a warning by using the flag "
                "ignore_longer_outputs_than_inputs"
            )
        return longer


def _check_indices(indices: np.ndarray, values: np.ndarray, batch: int) -> None:
    """Check that sparse labels are pairs (sequence, position) in order."""
    if indices.shape != (len(values), 2) or values.ndim != 1:
        raise ValueError(
            "labels_indices and labels_values must contain the same number of rows, but saw "
            f"shapes: {list(indices.shape)} vs. {list(values.shape)}"
        )
    rows, columns = indices[:, 0], indices[:, 1]
    if len(rows) and (rows.min() < 0 or columns.min() < 0 or rows.max() >= batch):
        at = int(((rows < 0) | (columns < 0) | (rows >= batch)).argmax())
        raise ValueError(
            f"label SparseTensor is not valid: indices[{at}] = {indices[at].tolist()} is out of "
            f"bounds: there are {batch} sequences"
        )
    ordered = (rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1]))
    if not ordered.all():
        at = int(ordered.argmin()) + 1
        same = (indices[at] == indices[at - 1]).all()
        raise ValueError(
            f"label SparseTensor is not valid: indices[{at}] = {indices[at].tolist()} is "
            f"{'repeated' if same else 'out of order'}. Many sparse ops require sorted indices."
        )


def _places(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row and the column of each element of ragged rows."""
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    # Ten times as fast as np.logaddexp.reduce.
    shifted = logits - logits.max(axis=2, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return shifted


def _sparse(labels: np.ndarray, said: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the emitted labels of [batch, time] as (indices, values, shape), all int64."""
    counts = said.sum(axis=1)
    shape = np.array([len(counts), counts.max(initial=0)], np.int64)
    return np.stack(_places(counts), axis=1), labels[said], shape
