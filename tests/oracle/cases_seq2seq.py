"""tf.contrib.seq2seq: attention, helpers, decoders, beam search. The values are TensorFlow's; the
nodes are not its own.
"""

import numpy as np

from tests.oracle.case import case

MEMORY = np.random.RandomState(0).randn(3, 5, 6).astype(np.float32)
INPUTS = np.random.RandomState(1).randn(3, 4, 7).astype(np.float32)
TABLE = np.random.RandomState(2).randn(9, 7).astype(np.float32)
LENGTHS = [5, 3, 4]


def uniform(tf, low, size):
    """Numbers in place of the initial values, whose seeds depend on the nodes before them."""
    return lambda shape, dtype=None, partition_info=None: tf.constant(
        np.random.RandomState(size).uniform(low, -low, shape).astype(np.float32)
    )


def built(tf):
    """Replace the variables of a graph by their initial values, in what is fetched."""
    tf.get_variable_scope().set_initializer(uniform(tf, -0.5, 3))


def training(tf):
    return tf.contrib.seq2seq.TrainingHelper(tf.constant(INPUTS), tf.constant([4, 2, 3]))


def greedy(tf):
    return tf.contrib.seq2seq.GreedyEmbeddingHelper(tf.constant(TABLE), tf.fill([3], 1), 2)


def sampling(tf):
    return tf.contrib.seq2seq.SampleEmbeddingHelper(
        tf.constant(TABLE), tf.fill([3], 1), 2, softmax_temperature=0.7, seed=5
    )


# With other probabilities, the order in which TensorFlow's loop draws numbers varies.
def scheduled(tf):
    return tf.contrib.seq2seq.ScheduledEmbeddingTrainingHelper(
        tf.constant(INPUTS), [4, 2, 3], tf.constant(TABLE), 1.0, seed=5, scheduling_seed=6
    )


def scheduled_outputs(tf):
    return tf.contrib.seq2seq.ScheduledOutputTrainingHelper(
        tf.constant(INPUTS), [4, 2, 3], 1.0, seed=5, next_inputs_fn=lambda y: y[:, :7]
    )


def inferring(tf):
    return tf.contrib.seq2seq.InferenceHelper(
        sample_fn=lambda y: y[:, :7],
        sample_shape=[7],
        sample_dtype=tf.float32,
        start_inputs=tf.constant(INPUTS[:, 0]),
        end_fn=lambda ids: ids[:, 0] > 0.0,
    )


def decoded(mechanism, helper=training, layer=4, history=False, impute=True, **options):
    def build(tf):
        built(tf)
        s = tf.contrib.seq2seq
        memory, lengths = tf.constant(MEMORY), tf.constant(LENGTHS)
        cell = s.AttentionWrapper(
            tf.nn.rnn_cell.LSTMCell(6),
            mechanism(s, memory, lengths),
            attention_layer_size=layer,
            alignment_history=history,
            **options,
        )
        decoder = s.BasicDecoder(
            cell, helper(tf), cell.zero_state(3, tf.float32), tf.layers.Dense(9, use_bias=False)
        )
        outputs, state, lengths = s.dynamic_decode(
            decoder, impute_finished=impute, maximum_iterations=6
        )
        total = tf.reduce_sum(outputs.rnn_output**2)
        gradients = [g for g in tf.gradients(total, tf.trainable_variables()) if g is not None]
        fetched = [outputs, lengths, state.attention, state.time, gradients]
        return fetched + ([state.alignment_history.stack()] if history else [])

    return build


def searched(history=False, **options):
    def build(tf):
        built(tf)
        s = tf.contrib.seq2seq
        memory = s.tile_batch(tf.placeholder_with_default(MEMORY, [3, None, 6]), 3)
        attention = s.BahdanauAttention(6, memory, s.tile_batch(tf.constant(LENGTHS), 3))
        cell = s.AttentionWrapper(
            tf.nn.rnn_cell.GRUCell(6), attention, 4, alignment_history=history
        )
        decoder = s.BeamSearchDecoder(
            cell,
            tf.constant(TABLE),
            tf.fill([3], 1),
            2,
            cell.zero_state(9, tf.float32),
            3,
            tf.layers.Dense(9),
            **options,
        )
        outputs, state, lengths = s.dynamic_decode(decoder, maximum_iterations=6)
        fetched = [outputs, state.log_probs, state.lengths, lengths]
        return fetched + ([state.cell_state.alignment_history] if history else [])

    return build


def bahdanau(**options):
    return lambda s, memory, lengths: s.BahdanauAttention(6, memory, lengths, **options)


def luong(**options):
    return lambda s, memory, lengths: s.LuongAttention(6, memory, lengths, **options)


def monotonic(kind, **options):
    return lambda s, memory, lengths: getattr(s, kind + "MonotonicAttention")(
        6, memory, lengths, score_bias_init=-0.5, **options
    )


BUILDS = {
    "bahdanau": decoded(bahdanau()),
    "bahdanau_normalized": decoded(bahdanau(normalize=True), history=True),
    "bahdanau_mask": decoded(bahdanau(score_mask_value=-2.0), impute=False),
    "luong_greedy": decoded(luong(), greedy),
    "luong_sampled": decoded(luong(scale=True), sampling, layer=None, impute=False),
    "scheduled": decoded(luong(scale=True), scheduled, output_attention=False),
    "scheduled_outputs": decoded(luong(), scheduled_outputs),
    "inferred": decoded(luong(), inferring),
    "hardmax": decoded(lambda s, m, n: s.LuongAttention(6, m, n, probability_fn=s.hardmax)),
    "monotonic_parallel": decoded(monotonic("Bahdanau", normalize=True)),
    "monotonic_recursive": decoded(monotonic("Bahdanau", mode="recursive")),
    "monotonic_hard": decoded(monotonic("Luong", mode="hard")),
    "monotonic_noise": decoded(
        monotonic("Luong", scale=True, sigmoid_noise=0.5, sigmoid_noise_seed=4)
    ),
    "two_mechanisms": decoded(
        lambda s, m, n: [s.LuongAttention(6, m, n), s.BahdanauAttention(6, m)], layer=[4, 5]
    ),
    "beams": searched(),
    "beams_length": searched(length_penalty_weight=0.6),
    "beams_coverage": searched(coverage_penalty_weight=0.4),
    "beams_history": searched(history=True),
}
for name, build in BUILDS.items():
    build.__name__ = name
    build.__module__ = __name__
    case(build, graph=False, imports=False)


@case(graph=False, imports=False)
def trees_and_products(tf):
    s = tf.contrib.seq2seq
    random = np.random.RandomState(4)
    ids, parents = random.randint(0, 9, [5, 2, 3]), random.randint(0, 3, [5, 2, 3])
    lengths = np.array([4, 5], np.int32)
    return (
        s.gather_tree(ids.astype(np.int32), parents.astype(np.int32), lengths, 2),
        s.safe_cumprod([0.5, 0.2, 0.0, 0.3], exclusive=True),
        s.tile_batch({"a": tf.constant([[1, 2], [3, 4]]), "b": tf.constant([5, 6])}, 2),
        s.hardmax([[1.0, 3.0, 2.0], [0.0, -1.0, -2.0]]),
    )
