"""Cells in loops of the graph: tf.nn.dynamic_rnn, bidirectional_dynamic_rnn and raw_rnn."""

from tests.oracle.case import case
from tests.oracle.cases_rnn import BATCH, CELLS, DEPTH, STEPS, add, gradients_of, value


def sequence(tf, static=True, time_major=False):
    """An input, which the collection "x" keeps."""
    shape = [STEPS, BATCH, DEPTH] if time_major else [BATCH, STEPS, DEPTH]
    x = value(tf, *shape)
    tf.add_to_collection("x", x)
    return x if static else tf.placeholder_with_default(x, [None, None, DEPTH])


def looped(make, lengths=None, static=True, **options):
    def build(tf):
        tf.set_random_seed(1)
        cell = make(tf.nn.rnn_cell, tf)
        x = sequence(tf, static, options.get("time_major", False))
        given = None if lengths is None else tf.constant(lengths, tf.int64)
        return tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, sequence_length=given, **options)

    return build


def add_both(name, build):
    """A loop, and its gradients for weights and inputs."""
    add(__name__, name, build)
    add(__name__, name + "_gradients", gradients_of(build), graph=False)


VARIANTS = {
    "ragged": {"lengths": [2, 0, 1]},
    "unknown": {"static": False},
    "unknown_ragged": {"lengths": [2, 0, 1], "static": False},
    "time_major": {"time_major": True, "lengths": [2, 3, 1], "swap_memory": True},
    "scope": {"scope": "mine", "parallel_iterations": 1},
    "empty_rows": {"lengths": [0, 0, 0]},
}
for cell_name in CELLS:
    # Iterations that run at once draw their random numbers in any order.
    options = {"parallel_iterations": 1} if "dropout" in cell_name else {}
    add_both("dynamic_" + cell_name, looped(CELLS[cell_name], **options))
for variant in VARIANTS:
    for cell_name in ("basic", "lstm", "multi"):
        looped_variant = looped(CELLS[cell_name], **VARIANTS[variant])
        add_both("dynamic_" + variant + "_" + cell_name, looped_variant)
for cell_name in ("gru", "lstm_peepholes", "residual"):
    looped_variant = looped(CELLS[cell_name], lengths=[3, 0, 2])
    add_both("dynamic_ragged_" + cell_name, looped_variant)


@case
def given_state(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    state = c.LSTMStateTuple(value(tf, BATCH, 2, seed=3), value(tf, BATCH, 2, seed=4))
    return tf.nn.dynamic_rnn(
        c.BasicLSTMCell(2), sequence(tf, False), tf.constant([1, 3, 2]), initial_state=state
    )


@case
def two_loops_share_a_cell(tf):
    tf.set_random_seed(1)
    cell = tf.nn.rnn_cell.GRUCell(2)
    first, _ = tf.nn.dynamic_rnn(cell, sequence(tf), dtype=tf.float32)
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return tf.nn.dynamic_rnn(cell, first, dtype=tf.float32, scope="rnn")


@case
def nested_inputs(tf):
    tf.set_random_seed(1)

    class Pair(tf.nn.rnn_cell.RNNCell):
        @property
        def state_size(self):
            return (2, tf.TensorShape([1, 2]))

        @property
        def output_size(self):
            return {"sum": 2, "wide": tf.TensorShape([1, 2])}

        def call(self, x, state):
            a, b = x
            total = a + state[0]
            return {"sum": total, "wide": b + state[1]}, (total * 0.5, b)

    inputs = (sequence(tf), value(tf, BATCH, STEPS, 1, 2, seed=5))
    return tf.nn.dynamic_rnn(Pair(), inputs, sequence_length=[1, 2, 3], dtype=tf.float32)


@case
def bidirectional(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    return tf.nn.bidirectional_dynamic_rnn(
        c.BasicLSTMCell(2), c.GRUCell(3), sequence(tf), dtype=tf.float32
    )


@case
def bidirectional_ragged(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    return tf.nn.bidirectional_dynamic_rnn(
        c.BasicRNNCell(2),
        c.GRUCell(3),
        sequence(tf, False, True),
        sequence_length=tf.constant([3, 1, 2]),
        initial_state_fw=value(tf, BATCH, 2, seed=3),
        initial_state_bw=value(tf, BATCH, 3, seed=4),
        time_major=True,
        scope="both",
    )


@case
def raw(tf):
    tf.set_random_seed(1)
    lengths = tf.constant([2, 3, 1])
    cell = tf.nn.rnn_cell.LSTMCell(2)
    x = value(tf, STEPS + 1, BATCH, 2)

    def loop_fn(time, output, state, loop_state):
        if output is None:
            state = cell.zero_state(BATCH, tf.float32)
        return time >= lengths, x[time], state, output, None

    arrays, state, loop_state = tf.nn.raw_rnn(cell, loop_fn)
    assert loop_state is None
    return [arrays.stack(), state]


@case
def raw_with_its_own_outputs(tf):
    tf.set_random_seed(1)
    cell = tf.nn.rnn_cell.GRUCell(2)
    start = tf.placeholder_with_default(value(tf, BATCH, 2), [None, 2])

    def loop_fn(time, output, state, total):
        if output is None:
            state = value(tf, BATCH, 2, seed=1)
            return tf.zeros([BATCH], tf.bool), start, state, (tf.zeros([]), tf.zeros([2])), 0.0
        emit = (tf.reduce_sum(output, 1), output * 2)
        return time >= [2, 4, 3], output, state * 0.5, emit, total + tf.reduce_sum(output)

    (sums, doubles), state, total = tf.nn.raw_rnn(cell, loop_fn, scope="mine")
    return [sums.stack(), doubles.stack(), state, total]
