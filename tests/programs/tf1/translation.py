"""Translation by tf.contrib.seq2seq: reversing words with attention, greedy decoding, beam search.
The weights have seeds of their own.
"""

import numpy as np

WORDS, SIZE, UNITS, BATCH, BEAMS = 12, 6, 8, 4, 3
START, END = 1, 2


def batch(random):
    lengths = random.randint(3, 6, BATCH)
    source = np.zeros([BATCH, lengths.max()], "int32")
    target = np.zeros([BATCH, lengths.max() + 1], "int32")
    given = np.zeros_like(target)
    for i, length in enumerate(lengths):
        words = random.randint(3, WORDS, length)
        source[i, :length] = words
        target[i, : length + 1] = list(words[::-1]) + [END]
        given[i, : length + 1] = [START] + list(words[::-1])
    return source, lengths, given, target


def run(tf):
    seq2seq = tf.contrib.seq2seq
    tf.get_variable_scope().set_initializer(tf.random_uniform_initializer(-0.4, 0.4, seed=3))
    source = tf.placeholder(tf.int32, [None, None])
    lengths = tf.placeholder(tf.int32, [None])
    given = tf.placeholder(tf.int32, [None, None])
    target = tf.placeholder(tf.int32, [None, None])
    count = tf.shape(source)[0]
    embedded = tf.contrib.layers.embed_sequence(source, WORDS, SIZE, scope="source")
    forward, backward = (tf.nn.rnn_cell.LSTMCell(UNITS // 2, name=n) for n in ("fw", "bw"))
    outputs, states = tf.nn.bidirectional_dynamic_rnn(
        forward, backward, embedded, lengths, dtype=tf.float32
    )
    memory = tf.concat(outputs, -1)
    state = tf.nn.rnn_cell.LSTMStateTuple(*(tf.concat(parts, 1) for parts in zip(*states)))
    table = tf.get_variable("target", [WORDS, SIZE])
    projection = tf.layers.Dense(WORDS, use_bias=False, name="projection")

    def cell_and_state(memory, lengths, state, count, reuse):
        with tf.variable_scope("decoding", reuse=reuse):
            attention = seq2seq.BahdanauAttention(UNITS, memory, lengths, normalize=True)
            cell = tf.nn.rnn_cell.LSTMCell(UNITS, name="cell")
            cell = seq2seq.AttentionWrapper(cell, attention, attention_layer_size=UNITS)
            return cell, cell.zero_state(count, tf.float32).clone(cell_state=state)

    def decoded(helper, reuse):
        cell, start = cell_and_state(memory, lengths, state, count, reuse)
        with tf.variable_scope("decoding", reuse=reuse):
            decoder = seq2seq.BasicDecoder(cell, helper, start, projection)
            return seq2seq.dynamic_decode(decoder, impute_finished=True, maximum_iterations=8)[0]

    rows = tf.nn.embedding_lookup(table, given)
    trained = decoded(seq2seq.TrainingHelper(rows, lengths + 1), None)
    greedy = decoded(seq2seq.GreedyEmbeddingHelper(table, tf.fill([count], START), END), True)
    tiled = seq2seq.tile_batch((memory, lengths, state), BEAMS)
    cell, start = cell_and_state(*tiled, count=count * BEAMS, reuse=True)
    with tf.variable_scope("decoding", reuse=True):
        search = seq2seq.BeamSearchDecoder(
            cell, table, tf.fill([count], START), END, start, BEAMS, projection, 0.5
        )
        found, final, _ = seq2seq.dynamic_decode(search, maximum_iterations=8)

    weights = tf.sequence_mask(lengths + 1, dtype=tf.float32)
    loss = seq2seq.sequence_loss(trained.rnn_output, target, weights)
    optimizer = tf.train.AdamOptimizer(0.02)
    pairs = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients([(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in pairs])
    random = np.random.RandomState(0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(12):
            feeds = dict(zip((source, lengths, given, target), batch(random)))
            value, _ = session.run([loss, train], feeds)
            ids, best, scores = session.run(
                [greedy.sample_id, found.predicted_ids[:, :, 0], final.log_probs], feeds
            )
            yield value, ids.sum(), best.shape[1], scores[:, 0].sum()
