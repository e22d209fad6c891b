"""Candidate samplers, number for number, and the losses that sample classes."""

import numpy as np

from tests.oracle.case import case

TRUE = [[1, 4], [2, 0], [3, 9]]
UNIGRAMS = [1.0, 2.0, 3.0, 4.0, 0.5, 0.0, 6.0, 7.0, 8.0, 9.0]
SAMPLERS = {
    "uniform": lambda tf, *a: tf.nn.uniform_candidate_sampler(*a, range_max=10, seed=3),
    "uniform_power": lambda tf, *a: tf.nn.uniform_candidate_sampler(*a, range_max=16, seed=3),
    "log_uniform": lambda tf, *a: tf.nn.log_uniform_candidate_sampler(*a, range_max=10, seed=3),
    "learned": lambda tf, *a: tf.nn.learned_unigram_candidate_sampler(*a, range_max=10, seed=3),
    "fixed": lambda tf, *a: tf.nn.fixed_unigram_candidate_sampler(
        *a, range_max=10, unigrams=UNIGRAMS, seed=3
    ),
    "fixed_distorted": lambda tf, *a: tf.nn.fixed_unigram_candidate_sampler(
        *a, range_max=12, unigrams=UNIGRAMS, distortion=0.75, num_reserved_ids=2, seed=3
    ),
    "fixed_shard": lambda tf, *a: tf.nn.fixed_unigram_candidate_sampler(
        *a, range_max=5, unigrams=UNIGRAMS, num_shards=2, shard=1, seed=3
    ),
}


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


for _name, _build in SAMPLERS.items():
    register(_name, lambda tf, build=_build: list(build(tf, TRUE, 2, 20, False)))
    register(_name + "_unique", lambda tf, build=_build: list(build(tf, TRUE, 2, 4, True)))


@case
def all_candidates(tf):
    return list(tf.nn.all_candidate_sampler(TRUE, 2, 4, True))


@case
def many_of_a_large_range(tf):
    return list(tf.nn.log_uniform_candidate_sampler([[7]], 1, 200, True, 5000, seed=5))


@case
def accidental_hits(tf):
    sampled = tf.constant([2, 5, 2, 9, 1], tf.int64)
    return tf.nn.compute_accidental_hits(tf.constant(TRUE, tf.int64), sampled, 2)


@case
def no_accidental_hits(tf):
    sampled = tf.constant([15], tf.int64)
    return tf.nn.compute_accidental_hits(tf.constant(TRUE, tf.int64), sampled, 2)


def values(tf, *shape, **options):
    seed = options.pop("seed", 0)
    return tf.constant(np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32))


def arguments(tf, num_true=1, shards=None):
    labels = [[1, 4], [2, 0], [3, 9]] if num_true == 2 else [[1], [2], [9]]
    weights = values(tf, 10, 4)
    if shards:
        weights = [values(tf, 10 // shards, 4, seed=i) for i in range(shards)]
    return {
        "weights": weights,
        "biases": values(tf, 10, seed=11),
        "labels": tf.constant(labels, tf.int64),
        "inputs": values(tf, 3, 4, seed=12),
        "num_sampled": 4,
        "num_classes": 10,
        "num_true": num_true,
    }


LOSSES = {
    "nce": lambda tf, a: tf.nn.nce_loss(**a),
    "nce_without_hits": lambda tf, a: tf.nn.nce_loss(remove_accidental_hits=True, **a),
    "softmax": lambda tf, a: tf.nn.sampled_softmax_loss(seed=4, **a),
    "softmax_with_hits": lambda tf, a: tf.nn.sampled_softmax_loss(
        remove_accidental_hits=False, seed=4, **a
    ),
}


def _sampled(tf, build, **options):
    tf.set_random_seed(6)
    given = arguments(tf, **options)
    return given, build(tf, given)


def _gradients(tf, build):
    given, loss = _sampled(tf, build)
    found = tf.gradients(loss, [given["weights"], given["biases"], given["inputs"]])
    return [tf.convert_to_tensor(g) for g in found]


for _name, _build in LOSSES.items():
    register(_name, lambda tf, build=_build: _sampled(tf, build)[1])
    register(_name + "_two", lambda tf, build=_build: _sampled(tf, build, num_true=2)[1])
    register(_name + "_gradients", lambda tf, build=_build: _gradients(tf, build), graph=False)


@case
def nce_in_shards(tf):
    return _sampled(tf, LOSSES["nce"], shards=2)[1]


@case
def softmax_of_given_samples(tf):
    labels = tf.constant([[1], [2], [9]], tf.int64)
    sampled = tf.nn.uniform_candidate_sampler(labels, 1, 4, True, 10, seed=8)
    return tf.nn.sampled_softmax_loss(
        sampled_values=sampled, partition_strategy="div", **arguments(tf)
    )
