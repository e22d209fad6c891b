"""Connectionist temporal classification (Graves 2006). In: logits [time, batch, classes].

Out: a loss with its gradient, or decoded labels in sparse form: (indices, values, shape). The last
class is the blank. The loss runs the forward-backward recursions in log space over the labels
interleaved with blanks, for the whole batch and all positions at once: only time is a loop.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from headrace.ops.accumulation import require_float


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
    """Negative log probability of each sequence's labels, and its gradient for the logits.

    A sequence with no path at all has infinite loss, and the softmax for gradient. Labels longer
    than their sequence are an error, or, on request, have zero loss and gradient.
    """
    lengths = _checked_lengths(inputs, sequence_length)
    labels = _labels(labels_indices, labels_values, inputs.shape, preprocess_collapse_repeated)
    ignored = _too_long(labels, lengths, ignore_longer_outputs_than_inputs)
    lattice = _Lattice.of(labels, inputs.shape[2] - 1, ctc_merge_repeated)
    log_softmax = _log_softmax(inputs.astype(np.float64))
    # An ignored sequence takes no step, so that it neither costs nor weighs anything.
    lengths = np.where(ignored, 0, lengths)
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
    """The best class of each step, without blanks; last output: minus the sum of the best logits.

    With `merge_repeated`, a class that was best in the step before too is not said again.
    """
    lengths = _checked_lengths(inputs, sequence_length)
    # A NaN is never the best class.
    logits = np.where(np.isnan(inputs), -np.inf, inputs)
    best = logits.argmax(axis=2)
    running = np.arange(len(inputs))[:, None] < lengths
    said = running & (best != inputs.shape[2] - 1)
    if merge_repeated:
        said[1:] &= best[1:] != best[:-1]
    score = np.where(running, logits.max(axis=2), 0).sum(axis=0)
    sequence, time = np.nonzero(said.T)
    paths = np.split(best[time, sequence], np.cumsum(said.sum(axis=0))[:-1])
    return *_sparse(paths), (0 - score)[:, None].astype(inputs.dtype)


def ctc_beam_search_decoder(
    inputs: np.ndarray,
    sequence_length: np.ndarray,
    *,
    beam_width: int,
    top_paths: int,
    merge_repeated: bool = True,
) -> tuple[np.ndarray, ...]:
    """The `top_paths` most probable label sequences that a beam search finds.

    Outputs are flat, as the op's are: `top_paths` indices, then as many values, then shapes, then
    the log probabilities [batch, top_paths]. `merge_repeated` collapses equal neighbours *in the
    decoded labels*.
    """
    lengths = _checked_lengths(inputs, sequence_length)
    if not 1 <= top_paths <= beam_width:
        raise ValueError(f"top_paths must be from 1 to beam_width {beam_width}, got {top_paths}")
    log_softmax = _log_softmax(inputs)
    found = [
        _search(log_softmax[:length, sequence], beam_width)
        for sequence, length in enumerate(lengths)
    ]
    short = min((len(paths) for paths, _ in found), default=top_paths)
    if short < top_paths:
        raise ValueError(f"the search found only {short} paths, fewer than top_paths {top_paths}")
    shaped = _merged if merge_repeated else np.asarray
    decoded = [_sparse([shaped(paths[rank]) for paths, _ in found]) for rank in range(top_paths)]
    scores = np.array([scores[:top_paths] for _, scores in found], inputs.dtype)
    outputs = [part for parts in zip(*decoded, strict=True) for part in parts]
    return *outputs, scores.reshape(len(lengths), top_paths)


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
    def of(cls, labels: list[np.ndarray], blank: int, merge: bool) -> _Lattice:
        counts = np.array([len(label) for label in labels])
        symbols = np.full((len(labels), 2 * counts.max(initial=0) + 1), blank)
        for row, label in zip(symbols, labels, strict=True):
            row[1 : 2 * len(label) : 2] = label
        is_label = symbols != blank
        skip = np.zeros_like(is_label)
        skip[:, 2:] = is_label[:, 2:]
        if merge:
            # Equal labels with no blank between them would be read as one.
            skip[:, 2:] &= symbols[:, 2:] != symbols[:, :-2]
        ends = 2 * counts[:, None] - np.arange(symbols.shape[1])
        stay = np.full_like(is_label, True) if merge else ~is_label
        return cls(symbols, _log(stay), _log(skip), _log((ends == 0) | (ends == 1)))


def _log(allowed: np.ndarray) -> np.ndarray:
    return np.where(allowed, 0.0, -np.inf)


def _forward(emitted: np.ndarray, lattice: _Lattice) -> np.ndarray:
    """alpha[t]: log probability of all that was said up to t, ending at each position."""
    alpha = np.empty_like(emitted)
    sequences, positions = lattice.symbols.shape
    # Two impossible positions before the first: moves from there need no case of their own.
    padded = np.full((sequences, positions + 2), -np.inf)
    previous, one_before, two_before = padded[:, 2:], padded[:, 1:-1], padded[:, :-2]
    # Before the first step one stands at the first blank, which may be stayed at or left.
    previous[:, 0] = 0
    for t, said in enumerate(emitted):
        moves = np.logaddexp(previous + lattice.stay, one_before)
        previous[...] = said + np.logaddexp(moves, two_before + lattice.skip)
        alpha[t] = previous
    return alpha


def _backward(emitted: np.ndarray, lattice: _Lattice, lengths: np.ndarray) -> np.ndarray:
    """beta[t]: log probability of saying, after t, all that is left from each position."""
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
    """Log probability of all paths, read at each sequence's last step; 0 if it has none."""
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
    """Expected number of times that each class is said at each step, given that the labels are."""
    steps, sequences, classes = shape
    possible = running & (log_likelihood != -np.inf)
    weights = np.exp(paths - np.where(possible, log_likelihood, np.inf)[:, :, None])
    cells = np.arange(steps * sequences).reshape(steps, sequences, 1) * classes + lattice.symbols
    total = np.bincount(cells.reshape(-1), weights.reshape(-1), steps * sequences * classes)
    return total.reshape(shape)


def _checked_lengths(inputs: np.ndarray, sequence_length: np.ndarray) -> np.ndarray:
    require_float("ctc", inputs)
    if inputs.ndim != 3 or not inputs.shape[2]:
        raise ValueError(f"inputs must be [time, batch, classes], got shape {inputs.shape}")
    lengths = np.asarray(sequence_length)
    if lengths.shape != (inputs.shape[1],):
        raise ValueError(
            f"sequence_length must have shape ({inputs.shape[1]},), got {lengths.shape}"
        )
    if lengths.size and (lengths.min() < 0 or lengths.max() > len(inputs)):
        raise ValueError(f"sequence_length must lie in 0 to {len(inputs)}, got {lengths.tolist()}")
    return lengths.astype(np.int64)


def _labels(
    indices: np.ndarray, values: np.ndarray, shape: tuple[int, ...], collapse: bool
) -> list[np.ndarray]:
    """Each sequence's labels, from their sparse form."""
    indices, values = np.asarray(indices), np.asarray(values)
    if indices.shape != (len(values), 2) or values.ndim != 1:
        raise ValueError(
            f"labels need indices [n, 2] and values [n], got {indices.shape} and {values.shape}"
        )
    order = np.lexsort((indices[:, 1], indices[:, 0]))
    if (order != np.arange(len(values))).any():
        raise ValueError("labels_indices must be in row-major order")
    if len(values) and (indices.min() < 0 or indices[-1, 0] >= shape[1]):
        raise ValueError(f"labels_indices must name sequences below {shape[1]}")
    if len(values) and values.min() < 0:
        raise ValueError(f"labels must not be negative, got {values.min()}")
    rows = np.split(values, np.searchsorted(indices[:, 0], np.arange(1, shape[1])))
    return [_label(b, row, shape[2] - 1, collapse) for b, row in enumerate(rows[: shape[1]])]


def _label(sequence: int, label: np.ndarray, blank: int, collapse: bool) -> np.ndarray:
    """One sequence's labels; classes from the blank on are padding, allowed only at the end."""
    if not label.size:
        raise ValueError(f"sequence {sequence} has no labels")
    kept = label[label < blank]
    if (label[: len(kept)] >= blank).any():
        raise ValueError(
            f"sequence {sequence}: a label follows one that is not below {blank}: {label.tolist()}"
        )
    return _merged(kept) if collapse else kept


def _too_long(labels: list[np.ndarray], lengths: np.ndarray, ignore: bool) -> np.ndarray:
    """Which sequences have fewer steps than labels; an error unless they are to be ignored."""
    counts = np.array([len(label) for label in labels], np.int64)
    longer = counts > lengths
    if longer.any() and not ignore:
        sequence = int(longer.argmax())
        raise ValueError(
            f"sequence {sequence} has {counts[sequence]} labels, but only {lengths[sequence]} "
            "steps to say them; ignore_longer_outputs_than_inputs would leave it out"
        )
    return longer


def _merged(labels: np.ndarray | list[int]) -> np.ndarray:
    """Labels with each run of equal ones made one."""
    labels = np.asarray(labels)
    return labels[np.diff(labels, prepend=-1) != 0]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    # Ten times as fast as np.logaddexp.reduce.
    shifted = logits - logits.max(axis=2, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return shifted


def _sparse(paths: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ragged labels as (indices, values, shape), all int64."""
    counts = np.array([len(path) for path in paths], np.int64)
    rows = np.repeat(np.arange(len(paths)), counts)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    values = np.concatenate([np.zeros(0), *paths]).astype(np.int64)
    shape = np.array([len(paths), counts.max(initial=0)], np.int64)
    return np.stack([rows, columns], axis=1).astype(np.int64), values, shape


def _search(log_probability: np.ndarray, width: int) -> tuple[list[list[int]], np.ndarray]:
    """Beam search over one sequence [time, classes]: labels and log probabilities, best first."""
    tree = _PrefixTree()
    beam = _Beam([tree.ROOT], np.zeros(1), np.full(1, -np.inf))
    for step in log_probability:
        beam = _advance(beam, step, width, tree)
    return [tree.path(node) for node in beam.nodes], beam.total


@dataclass(frozen=True, slots=True)
class _Beam:
    """The prefixes kept, best first, with their log probabilities in two parts.

    Paths that end in a blank are kept apart from those that end in the prefix's last label, because
    only the former may say that label again.
    """

    nodes: list[int]
    ends_blank: np.ndarray
    ends_label: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return np.logaddexp(self.ends_blank, self.ends_label)


def _advance(beam: _Beam, step: np.ndarray, width: int, tree: _PrefixTree) -> _Beam:
    """The beam after one more step."""
    rows = np.arange(len(beam.nodes))
    labels = np.array([tree.label[node] for node in beam.nodes])
    # What prefix `row` hands to its extension by each label; the blank has no column.
    handed = np.repeat(beam.total[:, None], len(step) - 1, axis=1)
    spoken = labels >= 0
    handed[rows[spoken], labels[spoken]] = beam.ends_blank[spoken]

    place = {node: row for row, node in enumerate(beam.nodes)}
    children: list[dict[int, int]] = [{} for _ in rows]
    inherited = np.full(len(rows), -np.inf)
    for row, node in enumerate(beam.nodes):
        parent = place.get(tree.parent[node])
        if parent is not None:
            inherited[row] = handed[parent, labels[row]]
            children[parent][int(labels[row])] = row

    said = np.where(spoken, step[labels], -np.inf)
    stay_label = np.logaddexp(beam.ends_label, inherited) + said
    stay_blank = beam.total + step[-1]
    extended = handed + step[:-1]
    stay = np.logaddexp(stay_blank, stay_label)
    kept = _compete(stay, extended, beam.total, children, width)
    return _Beam(
        [
            beam.nodes[row] if label < 0 else tree.child(beam.nodes[row], label)
            for row, label in kept
        ],
        np.array([stay_blank[row] if label < 0 else -np.inf for row, label in kept]),
        np.array([stay_label[row] if label < 0 else extended[row, label] for row, label in kept]),
    )


def _compete(
    stay: np.ndarray,
    extended: np.ndarray,
    before: np.ndarray,
    children: list[dict[int, int]],
    width: int,
) -> list[tuple[int, int]]:
    """The `width` best of the prefixes, as they are (label -1) and extended: (row, label).

    An extension that is in the beam already (one of `children`) is no new candidate. TensorFlow
    considers the extensions prefix by prefix and label by label, and a prefix that has been driven
    out by the time its parent considers it is not extended itself; hence the order and `lost`.
    """
    heap = [(float(score), row, -1) for row, score in enumerate(stay)]
    heapq.heapify(heap)
    driven_out: set[int] = set()
    lost: set[int] = set()
    for row, bound in enumerate(before):
        floor = heap[0][0] if len(heap) == width else -np.inf
        if row in lost or not bound > floor:
            continue
        hopeful = np.nonzero(extended[row] > floor)[0].tolist()
        for label in sorted({*hopeful, *children[row]}):
            child = children[row].get(label)
            entry = (float(extended[row, label]), row, label)
            if child is not None:
                lost.update({child} & driven_out)
            elif len(heap) < width:
                heapq.heappush(heap, entry)
            elif entry[0] > heap[0][0]:
                _, loser, extension = heapq.heapreplace(heap, entry)
                if extension < 0:
                    driven_out.add(loser)
    return [(row, label) for _, row, label in sorted(heap, reverse=True)]


class _PrefixTree:
    """Label prefixes by number: each node has a parent, a last label, and children by label."""

    ROOT = 0

    def __init__(self) -> None:
        self.parent = [-1]
        self.label = [-1]
        self._children: dict[tuple[int, int], int] = {}

    def child(self, parent: int, label: int) -> int:
        """The node of `parent`'s prefix with `label` added."""
        if (parent, label) not in self._children:
            self._children[parent, label] = len(self.parent)
            self.parent.append(parent)
            self.label.append(label)
        return self._children[parent, label]

    def path(self, node: int) -> list[int]:
        """The labels from the root to `node`."""
        labels = []
        while node != self.ROOT:
            labels.append(self.label[node])
            node = self.parent[node]
        return labels[::-1]
