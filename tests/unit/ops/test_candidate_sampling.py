"""Candidate samplers: frequencies, state over steps, files, and what they refuse."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.nn import candidate_kernels
from headrace._src.ops.random.philox import PhiloxState


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize(
    "distribution",
    [
        candidate_kernels.uniform(7),
        candidate_kernels.log_uniform(7),
        candidate_kernels.weighed(np.array([1, 5, 2])),
        candidate_kernels.fixed([0.5, 0.0, 3.0, 1.5]),
    ],
)
def test_frequencies_are_the_probabilities(distribution):
    drawn, tries = candidate_kernels.draw(PhiloxState(1, 2), distribution, 20_000, unique=False)
    classes = np.arange(drawn.max() + 1)
    probability = distribution.probability(classes)
    assert tries == 20_000 and probability.sum() == pytest.approx(1)
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), probability, atol=0.015)


def test_alias_table_keeps_the_weights():
    weights = np.random.RandomState(0).uniform(0, 1, 50).astype(np.float32)
    keep, alias = candidate_kernels.alias_table(weights)
    share = keep + np.bincount(alias, 1 - keep, minlength=50)
    np.testing.assert_allclose(share / 50, weights / weights.sum(), rtol=1e-4, atol=1e-6)


def test_learned_unigram_learns_from_steps():
    true = tf.placeholder(tf.int64, [None, 1])
    drawn = tf.nn.learned_unigram_candidate_sampler(true, 1, 50, False, 4, seed=1)[0]
    with tf.Session() as session:
        session.run(drawn, {true: [[2]] * 5000})
        assert (session.run(drawn, {true: [[0]]}) == 2).mean() > 0.9


def test_vocabulary_file_has_counts_in_its_last_column(tmp_path):
    path = tmp_path / "vocabulary"
    path.write_text("a,0\nb,x,3\nc,0\n")
    sampler = tf.nn.fixed_unigram_candidate_sampler
    drawn = sampler([[1]], 1, 5, False, 3, vocab_file=str(path))[0]
    with tf.Session() as session:
        assert session.run(drawn).tolist() == [1] * 5


def test_labels_that_are_candidates_are_taken_out():
    """With the true class as the only candidate, nothing is left to lose against."""
    sampled = tf.constant([1], tf.int64), tf.ones([2, 1]), tf.ones([1])
    loss = tf.nn.sampled_softmax_loss(
        tf.ones([3, 2]), tf.zeros([3]), [[1], [1]], tf.ones([2, 2]), 1, 3, sampled_values=sampled
    )
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(loss), [0, 0])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda n: n.uniform_candidate_sampler([[1]], 1, 4, True, 3), "range is too small"),
        (lambda n: n.learned_unigram_candidate_sampler([[7]], 1, 2, True, 5), r"in \[0, 5\)"),
        (lambda n: n.fixed_unigram_candidate_sampler([[1]], 1, 2, True, 5), "Must provide either"),
        (
            lambda n: n.fixed_unigram_candidate_sampler([[1]], 1, 2, True, 5, unigrams=[1.0]),
            "there are 1 classes",
        ),
        (
            lambda n: n.fixed_unigram_candidate_sampler([[1]], 1, 2, True, 2, unigrams=[0.0, 1.0]),
            "range is too small",
        ),
        (
            lambda n: n.fixed_unigram_candidate_sampler([[1]], 1, 2, True, 2, unigrams=[-1.0, 1.0]),
            "not negative",
        ),
    ],
)
def test_refuses_in_the_step(build, message):
    drawn = build(tf.nn)[0]
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=message):
        session.run(drawn)


def test_refuses_another_number_of_true_classes():
    drawn = tf.nn.uniform_candidate_sampler([[1, 2]], 1, 2, True, 5)
    assert drawn.true_expected_count.shape.as_list() == [1, 1]
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="num_true"):
        session.run(drawn)
