"""Embeddings, connectionist temporal classification and fractional pooling."""

import numpy as np

from tests.oracle.case import case


def array(*shape):
    """Numbers without a pattern, the same in every Python."""
    return (
        ((np.arange(np.prod(shape)) * 7919 % 1009) / 504.5 - 1.0).astype(np.float32).reshape(shape)
    )


@case
def embedding_lookup(tf):
    table = tf.constant(array(5, 3))
    return (
        tf.nn.embedding_lookup(table, [[0, 4], [2, 2]]),
        tf.nn.embedding_lookup(table, [1, 3], max_norm=0.5, name="e"),
        tf.nn.embedding_lookup([table], np.array([3])),
    )


@case
def embedding_lookup_sharded(tf):
    shards = [tf.constant(array(n, 3) + n) for n in (2, 2, 1)]
    ids = tf.placeholder_with_default(np.array([[0, 4], [2, 3]]), [None, 2])
    return (
        tf.nn.embedding_lookup(shards, ids),
        tf.nn.embedding_lookup(shards, [0, 4, 1, 2], "div", max_norm=0.5, name="d"),
    )


@case
def embedding_lookup_sharded_unknown_shape(tf):
    shards = [tf.placeholder_with_default(array(n, 3) + n, [None, 3]) for n in (2, 2, 1)]
    return tf.nn.embedding_lookup(shards, np.array([0, 4, 1, 2]), "div")


@case(graph=False)
def embedding_lookup_gradients(tf):
    shards = [tf.constant(array(n, 3) + n) for n in (3, 2)]
    y = tf.nn.embedding_lookup(shards, [0, 4, 1, 0])
    whole = tf.nn.embedding_lookup(shards[0], [0, 1, 0])
    found = tf.gradients(y * y, shards) + tf.gradients(whole * whole, shards[0])
    return [tf.convert_to_tensor(g) for g in found]


def sparse(tf, weights=False):
    values = [0.5, 2.0, -1.0, 1.0] if weights else np.array([1, 3, 0, 1])
    return tf.SparseTensor([[0, 0], [0, 2], [1, 0], [2, 1]], values, [3, 3])


@case
def embedding_lookup_sparse(tf):
    table = tf.constant(array(5, 3))
    found = []
    for combiner in ("sum", "mean", "sqrtn"):
        for weights in (None, sparse(tf, weights=True)):
            found.append(
                tf.nn.embedding_lookup_sparse(table, sparse(tf), weights, combiner=combiner)
            )
    found.append(tf.nn.embedding_lookup_sparse(table, sparse(tf), None, max_norm=0.5, name="m"))
    return found


def gappy(tf, weights=False):
    values = [0.5, 2.0, -1.0, 1.0] if weights else np.array([1, -1, 0, 1])
    shape = tf.placeholder_with_default(np.array([5, 3]), [2])
    return tf.SparseTensor([[0, 0], [0, 2], [2, 0], [3, 1]], values, shape)


@case
def safe_embedding_lookup_sparse(tf):
    table = tf.constant(array(5, 3))
    lookup = tf.nn.safe_embedding_lookup_sparse
    return (
        lookup(table, gappy(tf)),
        lookup([table], gappy(tf), gappy(tf, weights=True), combiner="sum", default_id=2),
        lookup(table, gappy(tf), gappy(tf, weights=True), name="mean"),
    )


LOGITS = array(6, 2, 4) * 3


def labels(tf):
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 1]], np.int32([0, 0, 2, 1]), [2, 2])


@case(rtol=1e-4, atol=1e-5)
def ctc_loss(tf):
    batch_major = np.ascontiguousarray(LOGITS.transpose(1, 0, 2))
    return (
        tf.nn.ctc_loss(labels(tf), LOGITS, [6, 4]),
        tf.nn.ctc_loss(labels(tf), batch_major, [6, 4], time_major=False),
        tf.nn.ctc_loss(
            labels(tf),
            logits=LOGITS,
            sequence_length=[6, 1],
            preprocess_collapse_repeated=True,
            ctc_merge_repeated=False,
            ignore_longer_outputs_than_inputs=True,
        ),
    )


@case(rtol=1e-4, atol=1e-5)
def ctc_loss_of_labels_with_padding(tf):
    """Whether there are enough steps is asked of the labels as they are given."""
    places = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    padded = tf.SparseTensor(places, np.int32([0, 9, 3, 1, 1, 1]), [2, 3])
    return [
        tf.nn.ctc_loss(
            padded,
            LOGITS,
            lengths,
            preprocess_collapse_repeated=collapse,
            ignore_longer_outputs_than_inputs=True,
        )
        for lengths in ([6, 5], [2, 6], [3, 2])
        for collapse in (False, True)
    ]


@case(graph=False, rtol=1e-4, atol=1e-5)
def ctc_loss_gradient(tf):
    x = tf.constant(LOGITS)
    loss = tf.nn.ctc_loss(labels(tf), x, [6, 4])
    return tf.gradients(loss * loss, x)


@case(rtol=1e-4, atol=1e-5)
def ctc_decoders(tf):
    return (
        tf.nn.ctc_greedy_decoder(LOGITS, [6, 4]),
        tf.nn.ctc_greedy_decoder(LOGITS, [6, 4], merge_repeated=False),
        tf.nn.ctc_beam_search_decoder(LOGITS, [6, 4], beam_width=5, top_paths=2),
        tf.nn.ctc_beam_search_decoder_v2(LOGITS, [6, 4], beam_width=5, top_paths=2),
    )


@case
def ctc_decoders_of_equal_scores(tf):
    """Logits of few values: many label sequences are equally probable."""
    state = np.random.RandomState(3)
    found = []
    for steps, classes, values in [(5, 5, 2), (8, 3, 2), (6, 6, 3), (12, 8, 2)]:
        logits = state.randint(0, values, (steps, 2, classes)).astype("f")
        for width, paths in [(1, 1), (3, 3), (5, 2), (10, 4), (30, 12), (100, 17)]:
            if width == 100 and steps < 12:
                continue
            found.append(tf.nn.ctc_beam_search_decoder_v2(logits, [steps, steps - 1], width, paths))
    return found


@case
def collapse_repeated(tf):
    ids = tf.placeholder_with_default(np.array([[1, 1, 2, 2], [3, 3, 3, 1]]), [None, 4])
    return tf.nn.collapse_repeated(ids, [4, 3])


@case
def fractional_pooling(tf):
    # A placeholder: TensorFlow folds the op away where its input is constant.
    x = tf.placeholder_with_default(array(1, 11, 10, 2), [1, 11, 10, 2])
    options = {"deterministic": True, "seed": 3, "seed2": 4}
    ratio = [1.0, 1.44, 1.73, 1.0]
    return (
        tf.nn.fractional_max_pool(x, ratio, **options),
        tf.nn.fractional_max_pool(x, ratio, pseudo_random=True, overlapping=True, **options),
        tf.nn.fractional_avg_pool(x, ratio, **options),
        tf.nn.fractional_avg_pool(x, ratio, pseudo_random=True, name="f", **options),
    )


@case(graph=False)
def fractional_pooling_gradients(tf):
    x = tf.placeholder_with_default(array(1, 11, 10, 2), [1, 11, 10, 2])
    options = {"deterministic": True, "seed": 3, "seed2": 4}
    found = []
    for overlapping in (False, True):
        for pool in (tf.nn.fractional_max_pool, tf.nn.fractional_avg_pool):
            y = pool(x, [1.0, 1.44, 1.73, 1.0], overlapping=overlapping, **options)[0]
            found += tf.gradients(y * y, x)
    return found
