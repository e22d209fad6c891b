"""CTC kernels: TensorFlow's numbers, counting all paths, finite differences, each rule's error."""

import itertools

import numpy as np
import pytest

from headrace._src.core import errors
from headrace._src.ops.nn import ctc_kernels
from tests.unit.ops import nn_cases

LENGTHS = np.array([4], np.int32)


@pytest.mark.parametrize("case", nn_cases.recorded("ctc"))
def test_matches_tensorflow(case):
    nn_cases.check(case, getattr(ctc_kernels, case.kernel))


def sparse(*labels):
    indices = [(b, j) for b, label in enumerate(labels) for j in range(len(label))]
    return np.array(indices, np.int64).reshape(-1, 2), np.array(
        [k for label in labels for k in label], np.int32
    )


def read(path, blank, merge):
    """What a path of classes says."""
    if merge:
        path = [symbol for symbol, _ in itertools.groupby(path)]
    return tuple(symbol for symbol in path if symbol != blank)


def said_with_probability(logits, merge):
    """The probability of each labelling of one sequence [time, classes], by counting paths."""
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    steps, classes = logits.shape
    said = {}
    for path in itertools.product(range(classes), repeat=steps):
        key = read(path, classes - 1, merge)
        said[key] = said.get(key, 0) + np.prod(probabilities[range(steps), path])
    return said


@pytest.mark.parametrize("merge", [True, False])
def test_loss_counts_every_path(merge):
    logits = np.random.default_rng(10).normal(size=(4, 1, 3))
    for labels, probability in said_with_probability(logits[:, 0], merge).items():
        if labels:
            loss, _ = ctc_kernels.ctc_loss(
                logits, *sparse(list(labels)), LENGTHS, ctc_merge_repeated=merge
            )
            assert loss.item() == pytest.approx(-np.log(probability))


@pytest.mark.parametrize("merge", [True, False])
def test_gradient_matches_finite_differences(merge):
    logits = np.random.default_rng(11).normal(size=(5, 3, 4))
    labels, lengths = sparse([0, 0], [1, 2], [2]), np.array([5, 3, 1])
    weights = np.array([1.0, 2.0, -0.5])

    def loss(logits):
        return ctc_kernels.ctc_loss(logits, *labels, lengths, ctc_merge_repeated=merge)[0]

    _, gradient = ctc_kernels.ctc_loss(logits, *labels, lengths, ctc_merge_repeated=merge)
    nn_cases.assert_gradient(gradient * weights[:, None], loss, logits, weights)


def test_no_path_means_infinite_loss_and_a_softmax():
    logits = np.zeros((2, 1, 4), np.float32)
    loss, gradient = ctc_kernels.ctc_loss(logits, *sparse([1, 1]), np.array([2]))
    assert loss.tolist() == [np.inf]
    np.testing.assert_allclose(gradient, np.full(logits.shape, 0.25))


def test_long_sequences_stay_finite():
    logits = 50 * np.random.default_rng(12).normal(size=(400, 2, 6)).astype(np.float32)
    labels = sparse([0, 1, 2] * 40, [4])
    loss, gradient = ctc_kernels.ctc_loss(logits, *labels, np.array([400, 399]))
    assert np.isfinite(loss).all()
    assert np.isfinite(gradient).all()
    # The softmax and the posterior that is taken from it both sum to one.
    np.testing.assert_allclose(gradient.sum(axis=2), 0, atol=1e-5)


def test_a_wide_beam_finds_the_most_probable_labels():
    logits = np.random.default_rng(13).normal(size=(4, 1, 3))
    said = said_with_probability(logits[:, 0], merge=True)
    best = sorted(said, key=lambda labels: -said[labels])[:3]
    outputs = ctc_kernels.ctc_beam_search_decoder(
        logits, LENGTHS, beam_width=50, top_paths=3, merge_repeated=False
    )
    assert [tuple(values) for values in outputs[3:6]] == best
    np.testing.assert_allclose(outputs[-1][0], [np.log(said[labels]) for labels in best])


def test_greedy_decoder_never_takes_nan():
    logits = np.array([[[1, np.nan, 0]], [[0, 2, np.nan]]], np.float32)
    indices, values, shape, score = ctc_kernels.ctc_greedy_decoder(logits, np.array([2]))
    assert (indices.tolist(), values.tolist()) == ([[0, 0], [0, 1]], [0, 1])
    assert (shape.tolist(), score.tolist()) == ([1, 2], [[-3.0]])


@pytest.mark.parametrize(
    ("labels", "lengths", "message"),
    [
        (sparse([0], []), [4, 4], "Labels length is zero in batch 1"),
        (
            sparse([0], [0, 1, 0]),
            [4, 2],
            r"Not enough time .*required: 3, available: 2",
        ),
        (
            sparse([0], [3, 1]),
            [4, 4],
            "a null label, batch: 1 num_classes: 3 labels: 3,1",
        ),
        (sparse([0], [-1]), [4, 4], "must be nonnegative integers, batch: 1 .*labels: -1"),
        (sparse([0], [1], [1]), [4, 4], r"indices\[2\] = \[2, 0\] is out of bounds"),
        (sparse([0], [1]), [4, 5], r"sequence_length\(1\) <= 4"),
        (sparse([0], [1]), [4, -1], r"seq_len\(1\) < 0"),
        (sparse([0], [1]), [4], r"len\(sequence_length\):  1 batch_size: 2"),
        ((np.array([[1, 0], [0, 0]]), np.array([0, 0])), [4, 4], r"= \[0, 0\] is out of order"),
        ((np.array([[0, 0], [1, 0], [1, 0]]), np.zeros(3, int)), [4, 4], r"\[2\] .* is repeated"),
        ((np.array([[1, 0]]), np.array([0, 0])), [4, 4], "same number of rows"),
    ],
)
def test_bad_labels_are_refused(labels, lengths, message):
    with pytest.raises(ValueError, match=message):
        ctc_kernels.ctc_loss(np.zeros((4, 2, 3)), *labels, np.array(lengths))


def test_bad_searches_are_refused():
    logits = np.zeros((4, 1, 3))
    with pytest.raises(ValueError, match="requested more paths than the beam width"):
        ctc_kernels.ctc_beam_search_decoder(logits, LENGTHS, beam_width=2, top_paths=3)
    with pytest.raises(ValueError, match="Less leaves in the beam search than requested: 1 of"):
        ctc_kernels.ctc_beam_search_decoder(logits, np.array([0]), beam_width=2, top_paths=2)
    with pytest.raises(ValueError, match=r"not a 3-Tensor \[time, batch, classes\]"):
        ctc_kernels.ctc_greedy_decoder(logits[0], LENGTHS)
    for decode in (ctc_kernels.ctc_greedy_decoder, ctc_kernels.ctc_beam_search_decoder):
        settings = {"beam_width": 2, "top_paths": 1} if "beam" in decode.__name__ else {}
        with pytest.raises(errors.FailedPreconditionError, match=r"sequence_length\(0\) <= 4"):
            decode(logits, np.array([5]), **settings)


def test_decoders_take_a_negative_length_for_none():
    logits = np.zeros((4, 2, 3), np.float32)
    outputs = ctc_kernels.ctc_beam_search_decoder(
        logits, np.array([4, -1]), beam_width=4, top_paths=1
    )
    assert outputs[0][:, 0].max() == 0 and outputs[-1][1] == 0
    indices, *_, score = ctc_kernels.ctc_greedy_decoder(logits, np.array([-1, 4]))
    assert indices[:, 0].min() == 1 and score[0] == 0


def test_no_sequences():
    logits, none = np.zeros((3, 0, 4), np.float32), np.zeros(0, np.int32)
    loss, gradient = ctc_kernels.ctc_loss(logits, *sparse(), none)
    assert (loss.shape, gradient.shape) == ((0,), (3, 0, 4))
