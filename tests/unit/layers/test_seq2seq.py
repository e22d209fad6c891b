"""tf.contrib.seq2seq: what tests/oracle/cases_seq2seq.py doesn't compare: chance, mistakes."""

import numpy as np
import pytest

import headrace as tf

seq2seq = tf.contrib.seq2seq
INPUTS = np.random.RandomState(0).randn(2, 3, 4).astype(np.float32)
TABLE = np.random.RandomState(1).randn(5, 4).astype(np.float32)


def decoder(helper, size=4, layer=None):
    cell = tf.nn.rnn_cell.GRUCell(size)
    return seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32), layer)


def values(*fetches):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


def test_scheduled_sampling_replaces_some_inputs():
    helper = seq2seq.ScheduledEmbeddingTrainingHelper(INPUTS, [3, 3], TABLE, 0.5, seed=1)
    chosen = helper.sample(0, tf.zeros([2, 5]), ())
    finished, following, _ = helper.next_inputs(0, tf.zeros([2, 5]), (), tf.constant([-1, 3]))
    ids, ended, found = values(chosen, finished, following)
    assert ((ids >= -1) & (ids < 5)).all()
    assert not ended.any()
    np.testing.assert_array_equal(found, [INPUTS[0, 1], TABLE[3]])


def test_scheduled_sampling_draws_with_the_given_probability():
    inputs = np.zeros([1000, 2, 4], np.float32)
    helper = seq2seq.ScheduledOutputTrainingHelper(inputs, [2] * 1000, 0.25, seed=1)
    (chosen,) = values(helper.sample(0, tf.zeros([1000, 4]), ()))
    assert 200 < chosen.sum() < 300


def test_outputs_are_given_by_time_or_by_batch():
    helpers = [seq2seq.TrainingHelper(INPUTS, [3, 1]) for _ in range(2)]
    with tf.variable_scope("d"):
        by_batch, state, lengths = seq2seq.dynamic_decode(decoder(helpers[0]))
    with tf.variable_scope("d", reuse=True):
        by_time, _, _ = seq2seq.dynamic_decode(decoder(helpers[1]), output_time_major=True)
    assert by_batch.rnn_output.shape.as_list() == [2, None, 4]
    first, second, found, last = values(by_batch.rnn_output, by_time.rnn_output, lengths, state)
    np.testing.assert_array_equal(first, second.swapaxes(0, 1))
    np.testing.assert_array_equal(found, [3, 1])
    assert last.shape == (2, 4)


def test_states_of_ended_sequences_stay():
    helper = seq2seq.TrainingHelper(INPUTS, [3, 1])
    outputs, state, _ = seq2seq.dynamic_decode(decoder(helper), impute_finished=True)
    emitted, last = values(outputs.rnn_output, state)
    np.testing.assert_array_equal(emitted[1, 1:], 0)
    np.testing.assert_array_equal(last[1], emitted[1, 0])


def test_decoding_stops_at_the_limit():
    helper = seq2seq.GreedyEmbeddingHelper(TABLE, [1, 1], end_token=-1)
    outputs, _, lengths = seq2seq.dynamic_decode(decoder(helper), maximum_iterations=7)
    ids, found = values(outputs.sample_id, lengths)
    assert ids.shape == (2, 7)
    np.testing.assert_array_equal(found, [7, 7])


def test_custom_helper():
    helper = seq2seq.CustomHelper(
        initialize_fn=lambda: (tf.constant([False, False]), tf.constant(INPUTS[:, 0])),
        sample_fn=lambda time, outputs, state: tf.fill([2], time),
        next_inputs_fn=lambda time, outputs, state, sample_ids: (
            sample_ids >= 2,
            tf.constant(INPUTS[:, 1]),
            state,
        ),
    )
    with pytest.raises(ValueError, match="batch_size accessed before initialize"):
        helper.batch_size  # noqa: B018
    outputs, _, lengths = seq2seq.dynamic_decode(decoder(helper))
    ids, found = values(outputs.sample_id, lengths)
    np.testing.assert_array_equal(ids, [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(found, [3, 3])


def test_a_state_is_cloned_with_the_same_shapes():
    attention = seq2seq.LuongAttention(4, INPUTS)
    cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(4), attention)
    state = cell.zero_state(2, tf.float32)
    assert state.clone(cell_state=tf.ones([2, 4])).attention is state.attention
    with pytest.raises(ValueError, match="expected to be same as the one to clone"):
        state.clone(cell_state=tf.ones([3, 4]))


def test_beams_begin_with_different_words():
    cell = tf.nn.rnn_cell.GRUCell(4)
    search = seq2seq.BeamSearchDecoder(
        cell, TABLE, [1, 1], 0, cell.zero_state(6, tf.float32), 3, tf.layers.Dense(5)
    )
    outputs, state, _ = seq2seq.dynamic_decode(search, maximum_iterations=4)
    first, log_probs = values(
        outputs.beam_search_decoder_output.predicted_ids[:, 0], state.log_probs
    )
    assert [len(set(row)) for row in first.tolist()] == [3, 3]
    assert (np.diff(log_probs, axis=1) <= 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: seq2seq.TrainingHelper(INPUTS, 3), "sequence_length must be a vector"),
        (lambda: seq2seq.GreedyEmbeddingHelper(TABLE, 1, 2), "start_tokens must be a vector"),
        (lambda: seq2seq.GreedyEmbeddingHelper(TABLE, [1], [2]), "end_token must be a scalar"),
        (
            lambda: seq2seq.ScheduledEmbeddingTrainingHelper(INPUTS, [3, 3], TABLE, [[0.5]]),
            "sampling_probability must be either a scalar or a vector",
        ),
        (
            lambda: seq2seq.LuongAttention(3, INPUTS)(tf.ones([2, 4]), tf.ones([2, 3])),
            "Perhaps you need to set num_units",
        ),
        (lambda: seq2seq.monotonic_attention([[0.5]], [[1.0]], "soft"), "mode must be"),
        (
            lambda: seq2seq.AttentionWrapper(
                tf.nn.rnn_cell.GRUCell(4),
                seq2seq.LuongAttention(4, INPUTS),
                attention_layer_size=[3, 4],
            ),
            "exactly one element per attention_mechanism, saw: 2 vs 1",
        ),
        (
            lambda: tf.contrib.layers.embed_sequence([[1]], vocab_size=3),
            "Must specify vocab size and embedding dimension",
        ),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_types():
    cell = tf.nn.rnn_cell.GRUCell(4)
    state = cell.zero_state(2, tf.float32)
    with pytest.raises(TypeError, match="helper must be a Helper"):
        seq2seq.BasicDecoder(cell, None, state)
    with pytest.raises(TypeError, match="Expected decoder to be type Decoder"):
        seq2seq.dynamic_decode(cell)
    with pytest.raises(TypeError, match="must be an AttentionMechanism"):
        seq2seq.AttentionWrapper(cell, None)
    wrapped = seq2seq.AttentionWrapper(cell, seq2seq.LuongAttention(4, INPUTS))
    with pytest.raises(TypeError, match="Expected state to be instance of AttentionWrapperState"):
        wrapped(tf.ones([2, 4]), state)


def test_buckets_need_enough_inputs():
    with pytest.raises(ValueError, match=r"Length of encoder_inputs \(1\) must be at least .* \(2"):
        tf.contrib.legacy_seq2seq.model_with_buckets([0], [], [], [], [(2, 3)], lambda x, y: None)
    with pytest.raises(ValueError, match="With less than 1 heads"):
        tf.contrib.legacy_seq2seq.attention_decoder(
            [tf.ones([2, 3])], None, None, None, num_heads=0
        )


def test_a_graphs_seed_gives_each_initializer_tensorflows_seed():
    """The number of nodes before an initializer is its seed; these are TensorFlow 1.15.5's."""
    seq2seq = tf.contrib.seq2seq
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(7)
        source = tf.placeholder(tf.int32, [None, None])
        lengths = tf.placeholder(tf.int32, [None])
        target = tf.placeholder(tf.int32, [None, 4])
        table = tf.get_variable("table", [10, 6])
        memory, state = tf.nn.dynamic_rnn(
            tf.nn.rnn_cell.GRUCell(6),
            tf.nn.embedding_lookup(table, source),
            lengths,
            dtype=tf.float32,
        )
        mechanism = seq2seq.LuongAttention(6, memory, lengths, scale=True)
        cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(6), mechanism, 6)
        layer = tf.layers.Dense(10, use_bias=False)
        inputs = tf.nn.embedding_lookup(table, target)
        helper = seq2seq.TrainingHelper(inputs, tf.fill([3], 4))
        start = cell.zero_state(tf.shape(source)[0], tf.float32).clone(cell_state=state)
        decoder = seq2seq.BasicDecoder(cell, helper, start, layer)
        seq2seq.dynamic_decode(decoder, maximum_iterations=6)
        drawn = [op for op in graph.get_operations() if op.type == "RandomUniform"]
    assert [op.get_attr("seed2") for op in drawn] == [6, 120, 134, 221, 532, 546, 651, 667]
