"""static_rnn, dynamic_rnn and raw_rnn: what they refuse, and shapes that are known."""

import pytest

import headrace as tf

cells = tf.nn.rnn_cell


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def given(*shape):
    return tf.placeholder("float32", shape)


def unrolled(inputs, **options):
    return tf.nn.static_rnn(cells.GRUCell(2), inputs, **{"dtype": "float32", **options})


def looped(inputs, **options):
    return tf.nn.dynamic_rnn(cells.GRUCell(2), inputs, **{"dtype": "float32", **options})


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: tf.nn.static_rnn(3, [given(4, 3)]), TypeError, "'cell' .* is not an RNNCell"),
        (lambda: unrolled(given(4, 3)), TypeError, "must be a sequence"),
        (lambda: unrolled([]), ValueError, "must not be empty"),
        (lambda: unrolled([given(4, 3)], dtype=None), ValueError, "dtype must be specified"),
        (lambda: unrolled([given(4, 3), given(5, 3)]), ValueError, "not compatible"),
        (lambda: unrolled([given(4, None)]), ValueError, "dimension 0 of inputs"),
        (lambda: unrolled([given(4, 3)], sequence_length=[[1]]), ValueError, "must be a vector"),
        (lambda: tf.nn.dynamic_rnn(3, given(4, 5, 3)), TypeError, "is not an RNNCell"),
        (lambda: looped(given(4, 5, 3), dtype=None), ValueError, "you must give a dtype"),
        (lambda: looped(tf.placeholder("float32")), ValueError, "rank at least 2"),
        (lambda: looped(given(4)), ValueError, "rank at least 2"),
        (lambda: looped(given(4, 5)), ValueError, "rank at least 3"),
        (lambda: looped(given(4, 5, None)), ValueError, "depth of inputs"),
        (lambda: looped(given(4, 5, 3), sequence_length=[[1]]), ValueError, "must be a vector"),
        (lambda: looped((given(4, 5, 3), given(4, 6, 3))), ValueError, "Time steps"),
        (lambda: looped((given(4, 5, 3), given(3, 5, 3))), ValueError, "Batch_size"),
        (lambda: tf.nn.raw_rnn(cells.GRUCell(2), None), TypeError, "loop_fn must be a callable"),
        (
            lambda: tf.nn.static_state_saving_rnn(cells.BasicLSTMCell(2), [given(4, 3)], None, "s"),
            ValueError,
            "same type as cell.state_size",
        ),
        (
            lambda: tf.nn.bidirectional_dynamic_rnn(cells.GRUCell(2), 3, given(4, 5, 3)),
            TypeError,
            "'cell_bw' .* is not an RNNCell",
        ),
    ],
)
def test_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_lengths_for_another_batch_fail_the_step():
    outputs, _ = looped(
        tf.zeros([2, 3, 1]), sequence_length=tf.placeholder_with_default([1], [None])
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expected shape for Tensor"):
            session.run(outputs)


@pytest.mark.parametrize(("batch", "steps"), [(4, 5), (None, 5), (4, None), (None, None)])
def test_known_shapes(batch, steps):
    outputs, state = looped(given(batch, steps, 3))
    assert outputs.shape.as_list() == [batch, steps, 2]
    assert state.shape.as_list() == [batch, 2]


def test_a_step_past_the_end_of_all_rows_is_not_made():
    """The cell would fail if it were called."""

    class Fails(cells.BasicRNNCell):
        def call(self, inputs, state):
            check = tf.Assert(tf.reduce_all(inputs >= 0), [inputs])
            with tf.control_dependencies([check]):
                return super().call(tf.identity(inputs), state)

    inputs = [tf.ones([2, 2]), tf.ones([2, 2]), -tf.ones([2, 2])]
    outputs, _ = tf.nn.static_rnn(Fails(2), inputs, dtype="float32", sequence_length=[2, 1])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert (session.run(outputs[2]) == 0).all()
