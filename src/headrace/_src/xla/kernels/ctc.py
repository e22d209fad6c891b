"""The loss of connectionist temporal classification. In: inputs as the op's kernel has them. Out:
losses, and their gradient.

The recursions are those of ops.nn.ctc_kernels, over positions for as many labels as there are in
the whole batch: how many a sequence has, is known only in the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headrace._src.xla.kernels.faults import check, check_indices

__all__ = ["KERNELS"]


class _Lattice(NamedTuple):
    """Positions [batch, 2 * labels + 1]: labels between blanks; the log weights, 0 or -inf, of
    staying at one, of skipping the one before, and of ending there.
    """

    symbols: Any
    stay: Any
    skip: Any
    final: Any


def _ctc_loss(
    inputs: Any,
    indices: Any,
    values: Any,
    lengths: Any,
    *,
    preprocess_collapse_repeated: bool,
    ctc_merge_repeated: bool,
    ignore_longer_outputs_than_inputs: bool,
) -> tuple[Any, Any]:
    inputs, indices, values, lengths = map(jnp.asarray, (inputs, indices, values, lengths))
    steps, batch, classes = inputs.shape
    check_indices(lengths, steps + 1)
    labels, counts = _labels(indices, values, batch, classes - 1, preprocess_collapse_repeated)
    ignored = counts > lengths
    if not ignore_longer_outputs_than_inputs:
        check(jnp.any(ignored))
    lengths = jnp.where(ignored, 0, lengths)
    lattice = _lattice(labels, counts, classes - 1, ctc_merge_repeated)
    log_softmax = jax.nn.log_softmax(inputs.astype(np.float64))
    emitted = jnp.take_along_axis(log_softmax, lattice.symbols[None], 2, mode="clip")
    alpha, beta = _forward(emitted, lattice), _backward(emitted, lattice, lengths)
    last = jnp.clip(lengths - 1, 0, steps - 1)
    paths = (alpha + beta)[last, jnp.arange(batch)]
    likelihood = jnp.where(lengths > 0, jax.nn.logsumexp(paths, 1), 0.0)
    running = jnp.arange(steps)[:, None] < lengths
    possible = running & (likelihood != -jnp.inf)
    weights = jnp.exp(alpha + beta - jnp.where(possible, likelihood, jnp.inf)[:, :, None])
    t, b = jnp.ogrid[:steps, :batch]
    expected = jnp.zeros(inputs.shape, np.float64)
    expected = expected.at[t[:, :, None], b[:, :, None], lattice.symbols[None]].add(weights)
    gradient = jnp.where(running[:, :, None], jnp.exp(log_softmax) - expected, 0)
    return (0 - likelihood).astype(inputs.dtype), gradient.astype(inputs.dtype)


def _labels(indices: Any, values: Any, batch: int, blank: int, collapse: bool) -> tuple[Any, Any]:
    """The labels of each sequence [batch, labels], then blanks; and how many there are."""
    rows = indices[:, 0]
    check_indices(rows, batch)
    check_indices(values, blank)
    check(jnp.any(rows[1:] < rows[:-1]))
    kept = jnp.ones(len(values), bool)
    if collapse:
        kept = kept.at[1:].set((rows[1:] != rows[:-1]) | (values[1:] != values[:-1]))
    counts = jnp.zeros(batch, np.int64).at[rows].add(kept, mode="drop")
    starts = jnp.cumsum(counts) - counts
    places = jnp.cumsum(kept) - 1 - starts[rows]
    places = jnp.where(kept, places, len(values))
    labels = jnp.full((batch, len(values)), blank, np.int64)
    return labels.at[rows, places].set(values, mode="drop"), counts


def _lattice(labels: Any, counts: Any, blank: int, merge: bool) -> _Lattice:
    batch, longest = labels.shape
    symbols = jnp.full((batch, 2 * longest + 1), blank, np.int64).at[:, 1::2].set(labels)
    is_label = symbols != blank
    skip = jnp.zeros_like(is_label).at[:, 2:].set(is_label[:, 2:])
    if merge:  # equal labels without a blank between them would be merged into one
        skip = skip.at[:, 2:].set(skip[:, 2:] & (symbols[:, 2:] != symbols[:, :-2]))
    ends = 2 * counts[:, None] - jnp.arange(symbols.shape[1])
    stay = jnp.ones_like(is_label) if merge else ~is_label
    return _Lattice(symbols, _log(stay), _log(skip), _log((ends == 0) | (ends == 1)))


def _log(allowed: Any) -> Any:
    return jnp.where(allowed, 0.0, -jnp.inf)


def _shifted(x: Any, by: int) -> Any:
    """Values moved along the positions; those that come in are impossible."""
    sides = [(0, 0), (by, 0)] if by > 0 else [(0, 0), (0, -by)]
    moved = jnp.pad(x, sides, constant_values=-jnp.inf)
    return moved[:, : x.shape[1]] if by > 0 else moved[:, -by:]


def _forward(emitted: Any, lattice: _Lattice) -> Any:
    """The log probability of the output up to each step, ending at each position."""

    def step(previous: Any, said: Any) -> Any:
        moves = jnp.logaddexp(previous + lattice.stay, _shifted(previous, 1))
        new = said + jnp.logaddexp(moves, _shifted(previous, 2) + lattice.skip)
        return new, new

    start = jnp.full(lattice.symbols.shape, -jnp.inf).at[:, 0].set(0.0)
    return jax.lax.scan(step, start, emitted)[1]


def _backward(emitted: Any, lattice: _Lattice, lengths: Any) -> Any:
    """The log probability of emitting, after each step, the rest from each position."""
    last = jnp.arange(len(emitted))[:, None, None] == (lengths - 1)[:, None]

    def step(following: Any, given: Any) -> Any:
        said, ends = given
        moves = jnp.logaddexp(following + lattice.stay, _shifted(following, -1))
        moves = jnp.logaddexp(moves, _shifted(following + lattice.skip, -2))
        new = jnp.where(ends, lattice.final, moves)
        return new + said, new

    start = jnp.full(lattice.symbols.shape, -jnp.inf)
    return jax.lax.scan(step, start, (emitted, last), reverse=True)[1]


KERNELS: dict[str, Callable[..., Any]] = {"CTCLoss": _ctc_loss}
