"""tf.contrib.rnn: cells whose step is one op, projections, attention, layers of directions."""

import numpy as np

from tests.oracle.case import case
from tests.oracle.cases_array import raw_ops
from tests.oracle.cases_rnn import BATCH, STEPS, add, gradients_of, inputs, value

CELLS = {
    "lstm_block": lambda k, c, tf: k.LSTMBlockCell(2),
    "lstm_block_peephole": lambda k, c, tf: k.LSTMBlockCell(
        2, forget_bias=0.5, cell_clip=5.0, use_peephole=True
    ),
    "gru_block": lambda k, c, tf: k.GRUBlockCell(2),
    "gru_block_2": lambda k, c, tf: k.GRUBlockCellV2(cell_size=2),
    "layer_norm": lambda k, c, tf: k.LayerNormBasicLSTMCell(
        3, norm_gain=0.8, norm_shift=0.1, dropout_keep_prob=0.5, dropout_prob_seed=3
    ),
    "not_layer_norm": lambda k, c, tf: k.LayerNormBasicLSTMCell(2, layer_norm=False),
    "output_projection": lambda k, c, tf: k.OutputProjectionWrapper(
        c.BasicLSTMCell(2), 3, activation=tf.nn.relu
    ),
    "input_projection": lambda k, c, tf: k.InputProjectionWrapper(c.GRUCell(2), 3),
    "nas": lambda k, c, tf: k.NASCell(2),
    "nas_projected": lambda k, c, tf: k.NASCell(2, num_proj=3, use_bias=True, name="mine"),
    "attention": lambda k, c, tf: k.AttentionCellWrapper(c.BasicLSTMCell(2), 3),
    "attention_joined": lambda k, c, tf: k.AttentionCellWrapper(
        c.GRUCell(2), 2, attn_size=3, attn_vec_size=4, input_size=5, state_is_tuple=False
    ),
}


def unrolled(make):
    def build(tf):
        tf.set_random_seed(1)
        cell = make(tf.contrib.rnn, tf.nn.rnn_cell, tf)
        return tf.nn.static_rnn(cell, inputs(tf), dtype=tf.float32)

    return build


for cell_name in CELLS:
    add(__name__, "static_" + cell_name, unrolled(CELLS[cell_name]))
    add(
        __name__,
        "static_" + cell_name + "_gradients",
        gradients_of(unrolled(CELLS[cell_name])),
        graph=False,
    )


@case
def embedding(tf):
    tf.set_random_seed(1)
    cell = tf.contrib.rnn.EmbeddingWrapper(tf.nn.rnn_cell.GRUCell(2), 4, 3)
    ids = [tf.constant([1, 0, 3]), tf.constant([2, 2, 1])]
    return tf.nn.static_rnn(cell, ids, initial_state=value(tf, BATCH, 2))


@case
def fused(tf):
    tf.set_random_seed(1)
    x = value(tf, STEPS, BATCH, 2)
    cell = tf.contrib.rnn.LSTMBlockFusedCell(2, use_peephole=True, cell_clip=0.5)
    state = (value(tf, BATCH, 2, seed=1), value(tf, BATCH, 2, seed=2))
    return cell(x, initial_state=state)


@case
def fused_ragged(tf):
    tf.set_random_seed(1)
    x = value(tf, STEPS, BATCH, 2)
    cell = tf.contrib.rnn.LSTMBlockFusedCell(2)
    return cell(x, dtype=tf.float32, sequence_length=tf.constant([2, 0, 1]))


@case(graph=False)
def fused_gradients(tf):
    tf.set_random_seed(1)
    x = value(tf, STEPS, BATCH, 2)
    outputs, state = tf.contrib.rnn.LSTMBlockFusedCell(2)(
        x, dtype=tf.float32, sequence_length=tf.constant([2, 0, 1])
    )
    loss = tf.reduce_sum(tf.sin(outputs)) + tf.reduce_sum(state.c * 0.3)
    return tf.gradients(loss, tf.trainable_variables() + [x])


def block_inputs(x):
    numbers = np.random.RandomState(1)

    def some(*shape):
        return numbers.uniform(-1, 1, shape).astype(np.float32)

    weights = {"w": some(4, 8), "wci": some(2), "wcf": some(2), "wco": some(2), "b": some(8)}
    return dict(x=some(*x), cs_prev=some(3, 2), h_prev=some(3, 2), **weights)


def block(op_type, x, **options):
    def build(tf):
        return tuple(getattr(raw_ops(tf), op_type)(**block_inputs(x), **options))

    return build


def block_grad(op_type, x, computed, **options):
    def build(tf):
        shape = list(x[:-1]) + [2]
        extra = {name: value(tf, *shape, seed=i) for i, name in enumerate(computed)}
        found = getattr(raw_ops(tf), op_type)(**block_inputs(x), **extra, **options)
        return tuple(found)

    return build


CELL_NAMES = ["i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad"]
for peephole in (False, True):
    suffix = "_peephole" if peephole else ""
    add(__name__, "lstm_block_cell" + suffix, block("LSTMBlockCell", (3, 2), use_peephole=peephole))
    grad = block_grad("LSTMBlockCellGrad", (3, 2), CELL_NAMES, use_peephole=peephole)
    add(__name__, "lstm_block_cell_grad" + suffix, grad)
    for version in ("", "V2"):
        options = {"seq_len_max": np.int64(4), "use_peephole": peephole}
        clipped = block("BlockLSTM" + version, (4, 3, 2), cell_clip=0.2, **options)
        add(__name__, "block_lstm" + version + suffix, clipped)
        grad = block_grad("BlockLSTMGrad" + version, (4, 3, 2), CELL_NAMES + ["h"], **options)
        add(__name__, "block_lstm_grad" + version + suffix, grad)


@case
def stacked(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    return tf.contrib.rnn.stack_bidirectional_rnn(
        [c.GRUCell(2), c.BasicRNNCell(3)],
        [c.GRUCell(2), c.BasicRNNCell(3)],
        inputs(tf),
        dtype=tf.float32,
    )


def in_loop(name):
    def build(tf):
        tf.set_random_seed(1)
        cell = CELLS[name](tf.contrib.rnn, tf.nn.rnn_cell, tf)
        x = value(tf, BATCH, STEPS, 2)
        tf.add_to_collection("x", x)
        return tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)

    return build


for cell_name in ("lstm_block_peephole", "gru_block_2", "output_projection", "attention"):
    name = "dynamic_" + cell_name + "_gradients"
    add(__name__, name, gradients_of(in_loop(cell_name)), graph=False)


@case
def stacked_dynamic(tf):
    tf.set_random_seed(1)
    c = tf.nn.rnn_cell
    return tf.contrib.rnn.stack_bidirectional_dynamic_rnn(
        [c.GRUCell(2), c.BasicRNNCell(3)],
        [c.GRUCell(2), c.BasicRNNCell(3)],
        value(tf, BATCH, STEPS, 2),
        dtype=tf.float32,
        sequence_length=tf.constant([1, 3, 2]),
    )
