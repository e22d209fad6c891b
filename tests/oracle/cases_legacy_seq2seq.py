"""tf.contrib.legacy_seq2seq: encoders and decoders of ids, with attention, and buckets."""

import numpy as np

from tests.oracle.case import case

IDS = np.random.RandomState(0).randint(0, 5, [9, 3]).astype(np.int32)
DECODERS = {
    "embedding_rnn_seq2seq": (6, 5, 4),
    "embedding_tied_rnn_seq2seq": (6, 4),
    "embedding_attention_seq2seq": (6, 5, 4),
}


def ids(tf, first, last):
    return [tf.constant(row) for row in IDS[first:last]]


def initial(tf):
    """Numbers in place of the initial values, whose seeds depend on the nodes before them."""
    tf.get_variable_scope().set_initializer(
        lambda shape, dtype=None, partition_info=None: tf.constant(
            np.random.RandomState(sum(shape)).uniform(-0.5, 0.5, shape).astype(np.float32)
        )
    )


def trained(tf, outputs, state):
    total = tf.add_n([tf.reduce_sum(o**2) for o in outputs])
    variables = tf.trainable_variables()
    gradients = [g for g in tf.gradients(total, variables) if g is not None]
    names = tf.constant([v.name for v in variables])
    return [outputs, state, names] + [tf.convert_to_tensor(g) for g in gradients]


def model(name, make, **options):
    def build(tf):
        initial(tf)
        function = getattr(tf.contrib.legacy_seq2seq, name)
        made = {key: value(tf) for key, value in options.items()}
        outputs, state = function(ids(tf, 0, 4), ids(tf, 4, 7), make(tf), *DECODERS[name], **made)
        return trained(tf, outputs, state)

    return build


def lstm(tf):
    return tf.nn.rnn_cell.BasicLSTMCell(3)


def gru(tf):
    return tf.nn.rnn_cell.GRUCell(3)


def projection(symbols):
    def make(tf):
        return tf.get_variable("w", [3, symbols]), tf.get_variable("b", [symbols])

    return make


BUILDS = {}
for name in DECODERS:
    short = name.replace("embedding_", "").replace("_seq2seq", "")
    symbols = 6 if "tied" in name else 5
    BUILDS[short] = model(name, lstm)
    BUILDS[short + "_fed"] = model(name, gru, feed_previous=lambda tf: True)
    BUILDS[short + "_fed_by_tensor"] = model(name, gru, feed_previous=lambda tf: tf.constant(True))
    BUILDS[short + "_projected"] = model(
        name, lstm, output_projection=projection(symbols), feed_previous=lambda tf: True
    )
BUILDS["attention_heads"] = model(
    "embedding_attention_seq2seq",
    gru,
    num_heads=lambda tf: 2,
    initial_state_attention=lambda tf: True,
)
for name, build in BUILDS.items():
    build.__name__ = name
    build.__module__ = __name__
    case(build, graph=False, imports=False)


@case(graph=False, imports=False)
def one_to_many(tf):
    initial(tf)
    outputs, states = tf.contrib.legacy_seq2seq.one2many_rnn_seq2seq(
        ids(tf, 0, 4),
        {"a": ids(tf, 4, 6), "b": ids(tf, 6, 9)},
        gru(tf),
        {"a": gru(tf), "b": gru(tf)},
        6,
        {"a": 6, "b": 7},
        4,
    )
    return outputs, states


@case(graph=False, imports=False)
def buckets(tf):
    initial(tf)
    s = tf.contrib.legacy_seq2seq
    weights = [tf.constant([1.0, 0.5, 0.0])] * 4

    def network(x, y):
        return s.embedding_attention_seq2seq(x, y, tf.nn.rnn_cell.GRUCell(3), 6, 6, 4)

    fetched = []
    for per_example in (False, True):
        with tf.variable_scope("model", reuse=per_example):
            fetched.append(
                s.model_with_buckets(
                    ids(tf, 0, 4),
                    ids(tf, 4, 9),
                    ids(tf, 5, 9),
                    weights,
                    [(2, 3), (4, 4)],
                    network,
                    per_example_loss=per_example,
                )
            )
    return fetched


@case(graph=False, imports=False)
def embedded_sequences(tf):
    initial(tf)
    layers = tf.contrib.layers
    first = layers.embed_sequence(IDS, vocab_size=6, embed_dim=4, scope="e")
    again = layers.embed_sequence(IDS, 6, 4, unique=True, scope="e", reuse=True)
    return first, again, tf.constant([v.name for v in tf.model_variables()])
