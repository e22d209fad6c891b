"""Conditional random fields, losses of sequences, and the losses and metrics of tf.contrib."""

import numpy as np

from tests.oracle.case import case

RANDOM = np.random.RandomState(0)
SCORES = RANDOM.randn(3, 5, 4).astype("float32")
TAGS = RANDOM.randint(0, 4, (3, 5)).astype("int32")
STEPS = RANDOM.randn(4, 4).astype("float32")
LENGTHS = np.array([5, 1, 3], "int32")
LOGITS = RANDOM.randn(2, 3, 5).astype("float32")
TARGETS = RANDOM.randint(0, 5, (2, 3)).astype("int32")
WEIGHTS = np.array([[1.0, 1.0, 0.0], [1.0, 0.5, 0.5]], "float32")
PREDICTED = RANDOM.randn(4, 3).astype("float32")
WANTED = (RANDOM.rand(4, 3) > 0.5).astype("float32")
OF_EXAMPLES = np.array([1.0, 0.0, 2.0, 1.0], "float32")


@case(graph=False)
def crf(tf):
    module = tf.contrib.crf
    scores, tags, lengths, steps = map(tf.constant, (SCORES, TAGS, LENGTHS, STEPS))
    likelihood, _ = module.crf_log_likelihood(scores, tags, lengths, steps)
    return (
        likelihood,
        module.crf_log_norm(scores, lengths, steps),
        module.crf_sequence_score(scores, tags, lengths, steps),
        module.crf_unary_score(tags, lengths, scores),
        module.crf_binary_score(tags, lengths, steps),
        module.crf_decode(scores, steps, lengths),
        module.crf_multitag_sequence_score(scores, scores > -0.5, lengths, steps),
        tf.gradients(likelihood, [scores, steps]),
        tf.constant(module.viterbi_decode(SCORES[0], STEPS)[0]),
    )


@case(graph=False)
def crf_of_short_sequences(tf):
    module = tf.contrib.crf
    scores, tags, steps = tf.constant(SCORES[:, :1]), tf.constant(TAGS[:, :1]), tf.constant(STEPS)
    lengths = tf.constant([1, 0, 1])
    likelihood, _ = module.crf_log_likelihood(scores, tags, lengths, steps)
    return likelihood, module.crf_decode(scores, steps, lengths)


@case(graph=False)
def sequence_losses(tf):
    logits, targets, weights = map(tf.constant, (LOGITS, TARGETS, WEIGHTS))
    loss, legacy = tf.contrib.seq2seq.sequence_loss, tf.contrib.legacy_seq2seq
    flags = [(1, 1, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 1, 0)]
    lists = [tf.unstack(x, axis=1) for x in (logits, targets, weights)]
    return (
        [loss(logits, targets, weights, *map(bool, chosen)) for chosen in flags],
        loss(
            logits,
            targets,
            weights,
            softmax_loss_function=lambda labels, logits: tf.reduce_sum(logits, -1),
        ),
        legacy.sequence_loss(*lists),
        legacy.sequence_loss(*lists, average_across_timesteps=False, average_across_batch=False),
        legacy.sequence_loss_by_example(*lists),
    )


@case(graph=False)
def losses(tf):
    module = tf.contrib.losses
    x, y, w = map(tf.constant, (PREDICTED, WANTED, OF_EXAMPLES))
    found = [
        module.absolute_difference(x, y, w),
        module.mean_squared_error(x, y, w),
        module.log_loss(tf.sigmoid(x), y, weights=w),
        module.sigmoid_cross_entropy(x, y, w, 0.1),
        module.softmax_cross_entropy(x, y, w),
        module.sparse_softmax_cross_entropy(x, tf.constant([0, 1, 2, 1]), w),
        module.hinge_loss(x, y),
        module.cosine_distance(x, y, 1, tf.expand_dims(w, 1)),
        module.mean_pairwise_squared_error(x, y, w),
        module.compute_weighted_loss(x, w),
    ]
    return found, module.get_total_loss(), tf.constant(len(module.get_losses()))


@case(graph=False)
def metrics(tf):
    module = tf.contrib.metrics
    x, y = tf.constant(PREDICTED), tf.constant(WANTED)
    w = tf.constant([[1.0], [0.5], [2.0], [0.0]])
    found = {
        "covariance": module.streaming_covariance(x, y),
        "weighed_covariance": module.streaming_covariance(x, y, w),
        "correlation": module.streaming_pearson_correlation(x, y, w),
        "accuracy": module.streaming_accuracy(x > 0, y > 0, w),
        "auc": module.streaming_auc(tf.sigmoid(x), y > 0, num_thresholds=20),
        "recall_at_k": module.streaming_recall_at_k(x, tf.constant([0, 1, 2, 0]), 2),
        "mean": module.streaming_mean(x),
        "root": module.streaming_root_mean_squared_error(x, y),
        "precision_at_k": module.streaming_sparse_precision_at_k(
            x, tf.constant([[0], [1], [2], [0]], tf.int64), 2
        ),
        "less": module.streaming_percentage_less(x, 0.2),
    }
    _, updates = module.aggregate_metric_map(found)
    names = [tf.constant(v.op.name) for v in tf.local_variables()]
    agreed = module.accuracy(tf.constant([1, 2, 3]), tf.constant([1, 2, 0]), [1.0, 2.0, 5.0])
    return updates, agreed, names
