"""Cells, and lists of inputs: tf.nn.rnn_cell and tf.nn.static_rnn. The weights are the default
initializers' under a seed, so that they are equal only if all nodes are made in the same order.
"""

import numpy as np

from tests.oracle.case import case, flatten

BATCH, DEPTH, STEPS = 3, 2, 3


def value(tf, *shape, **options):
    seed = options.pop("seed", 0)
    numbers = np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)
    return tf.constant(numbers, **options)


def inputs(tf, steps=STEPS, depth=DEPTH):
    """The inputs of steps of time, which the collection "x" keeps."""
    for i in range(steps):
        tf.add_to_collection("x", value(tf, BATCH, depth, seed=i))
    return tf.get_collection("x")


def unknown_batch(tf, x):
    return tf.placeholder_with_default(x, [None] + x.shape.as_list()[1:])


CELLS = {
    "basic": lambda c, tf: c.BasicRNNCell(2),
    "basic_relu": lambda c, tf: c.BasicRNNCell(2, activation="relu", name="mine"),
    "gru": lambda c, tf: c.GRUCell(2),
    "gru_given": lambda c, tf: c.GRUCell(
        2,
        activation=tf.nn.softsign,
        kernel_initializer=tf.random_normal_initializer(seed=1),
        bias_initializer=tf.constant_initializer(0.5),
    ),
    "basic_lstm": lambda c, tf: c.BasicLSTMCell(2),
    "basic_lstm_joined": lambda c, tf: c.BasicLSTMCell(2, forget_bias=0.3, state_is_tuple=False),
    "lstm": lambda c, tf: c.LSTMCell(2),
    "lstm_peepholes": lambda c, tf: c.LSTMCell(
        2, use_peepholes=True, cell_clip=0.3, num_proj=3, proj_clip=0.1
    ),
    "lstm_shards": lambda c, tf: c.LSTMCell(
        3,
        initializer=tf.random_uniform_initializer(-1, 1, seed=2),
        num_proj=2,
        num_unit_shards=2,
        num_proj_shards=3,
        state_is_tuple=False,
        activation=tf.sigmoid,
    ),
    "multi": lambda c, tf: c.MultiRNNCell([c.BasicLSTMCell(2), c.GRUCell(3)]),
    "multi_joined": lambda c, tf: c.MultiRNNCell(
        [c.BasicRNNCell(2), c.GRUCell(3)], state_is_tuple=False
    ),
    "dropout": lambda c, tf: c.DropoutWrapper(c.BasicLSTMCell(2), 0.5, 0.6, 0.7, seed=3),
    "dropout_tensors": lambda c, tf: c.DropoutWrapper(
        c.GRUCell(2), tf.constant(0.5), tf.placeholder_with_default(0.6, []), seed=3
    ),
    "dropout_unseeded": lambda c, tf: c.DropoutWrapper(c.GRUCell(2), state_keep_prob=0.5),
    "dropout_variational": lambda c, tf: c.DropoutWrapper(
        c.BasicLSTMCell(2),
        0.5,
        0.6,
        0.7,
        variational_recurrent=True,
        input_size=2,
        dtype=tf.float32,
        seed=3,
    ),
    "dropout_filtered": lambda c, tf: c.DropoutWrapper(
        c.MultiRNNCell([c.BasicLSTMCell(2), c.LSTMCell(2)]),
        state_keep_prob=0.5,
        seed=3,
        dropout_state_filter_visitor=lambda s: (
            c.LSTMStateTuple(c=True, h=False) if isinstance(s, c.LSTMStateTuple) else True
        ),
    ),
    "residual": lambda c, tf: c.ResidualWrapper(c.BasicRNNCell(2)),
    "residual_given": lambda c, tf: c.ResidualWrapper(c.GRUCell(2), lambda x, y: y * 2 - x),
    "device": lambda c, tf: c.DeviceWrapper(c.BasicLSTMCell(2), "/cpu:0"),
}


def add(module, name, function, **options):
    """Register a function as a case of a module, which may not be the one that it's written in."""
    function.__module__, function.__name__ = module, name
    case(function, **options)


def unrolled(make, lengths=None):
    def build(tf):
        tf.set_random_seed(1)
        cell = make(tf.nn.rnn_cell, tf)
        given = None if lengths is None else value(tf, 1) * 0 + lengths
        given = None if given is None else tf.cast(given, tf.int64)
        return tf.nn.static_rnn(cell, inputs(tf), dtype=tf.float32, sequence_length=given)

    return build


def gradients_of(build):
    def with_gradients(tf):
        outputs, state = build(tf)
        loss = tf.add_n([tf.reduce_sum(tf.sin(t)) for t in flatten([outputs, state])])
        x = tf.get_collection("x")
        return [outputs, state, tf.gradients(loss, tf.trainable_variables() + x)]

    return with_gradients


for cell_name in CELLS:
    add(__name__, "static_" + cell_name, unrolled(CELLS[cell_name]))
    # Gradients share no node names with TensorFlow's.
    add(
        __name__,
        "static_" + cell_name + "_gradients",
        gradients_of(unrolled(CELLS[cell_name])),
        graph=False,
    )
for cell_name in ("basic", "lstm_peepholes", "multi", "dropout_variational"):
    ragged = unrolled(CELLS[cell_name], lengths=[2.0, 0.0, 1.0])
    add(__name__, "static_ragged_" + cell_name, ragged)
    name = "static_ragged_" + cell_name + "_gradients"
    add(__name__, name, gradients_of(ragged), graph=False)


@case
def unknown_batches(tf):
    tf.set_random_seed(1)
    steps = [unknown_batch(tf, x) for x in inputs(tf)]
    return tf.nn.static_rnn(
        tf.nn.rnn_cell.BasicLSTMCell(2), steps, dtype=tf.float32, sequence_length=[1, 3, 2]
    )


@case
def initial_states(tf):
    tf.set_random_seed(1)
    cell = tf.nn.rnn_cell.GRUCell(2)
    state = value(tf, BATCH, 2, seed=9)
    first = tf.nn.static_rnn(cell, inputs(tf), initial_state=state)
    return first, tf.nn.static_rnn(cell, inputs(tf), initial_state=state)


@case
def zero_states(tf):
    c = tf.nn.rnn_cell
    cell = c.DropoutWrapper(c.MultiRNNCell([c.BasicLSTMCell(2), c.GRUCell(3)]), 0.5)
    batch = tf.shape(unknown_batch(tf, value(tf, 4, 1)))[0]
    return [
        cell.zero_state(2, tf.float64),
        cell.zero_state(batch, tf.float32),
        c.LSTMCell(3, num_proj=2).get_initial_state(inputs=value(tf, 4, 3)),
        c.DeviceWrapper(c.BasicRNNCell(2), "/cpu:0").get_initial_state(None, 2, tf.float32),
    ]


@case
def scopes(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    x, state = value(tf, BATCH, 2), value(tf, BATCH, 2, seed=1)
    shared = c.BasicRNNCell(2)
    results = []
    with tf.variable_scope("a"):
        results.append(shared(x, state))
        results.append(c.BasicRNNCell(2)(x, state))
    with tf.variable_scope("b"):
        results.append(shared(x, state))
        results.append(c.GRUCell(2)(x, state, scope="given"))
    with tf.variable_scope("a", reuse=True):
        results.append(c.BasicRNNCell(2)(x, state))
    with tf.variable_scope("c", reuse=tf.AUTO_REUSE):
        results.append(c.BasicRNNCell(2, name="named")(x, state))
        results.append(c.BasicRNNCell(2, name="named")(x, state))
    with tf.variable_scope("b"):
        results.append(c.GRUCell(2, reuse=True)(x, state, scope="given"))
    return results


@case
def own_cells(tf):
    tf.set_random_seed(1)

    class Mine(tf.nn.rnn_cell.RNNCell):
        @property
        def state_size(self):
            return 2

        @property
        def output_size(self):
            return 2

        def call(self, x, state):
            w = tf.get_variable("w", [2, 2])
            return tf.matmul(x, w) + state, state * 2

    class Callable(Mine):
        def __call__(self, x, state, scope=None):
            with tf.variable_scope(scope or "own"):
                return self.call(x, state)

    mine = Mine()
    return [
        tf.nn.static_rnn(mine, inputs(tf), dtype=tf.float32),
        tf.nn.static_rnn(Callable(), inputs(tf), dtype=tf.float32, scope="other"),
        mine(value(tf, BATCH, 2), value(tf, BATCH, 2), scope="late"),
        mine.weights,
    ]


@case
def bidirectional(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    return tf.nn.static_bidirectional_rnn(
        c.BasicLSTMCell(2), c.GRUCell(3), inputs(tf), dtype=tf.float32
    )


@case
def bidirectional_ragged(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    return tf.nn.static_bidirectional_rnn(
        c.BasicRNNCell(2),
        c.GRUCell(3),
        inputs(tf),
        dtype=tf.float32,
        sequence_length=tf.constant([3, 1, 2]),
        scope="both",
    )


@case
def state_saving(tf):
    tf.set_random_seed(1)
    kept = {}

    class Saver:
        def state(self, name):
            return value(tf, BATCH, 2, seed=len(name))

        def save_state(self, name, state):
            kept[name] = tf.identity(state, name="save_" + name)
            return kept[name]

    result = tf.nn.static_state_saving_rnn(
        tf.nn.rnn_cell.BasicLSTMCell(2), inputs(tf), Saver(), ("cc", "h")
    )
    return [result, kept]
