"""Spellings of TensorFlow 0.x."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.compat import notices, old_names

A = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)

# What an old program writes, and the value.
CALLS = {
    "concat(0, [A, A])": np.concatenate([A, A]),
    "concat(concat_dim=1, values=[A, A])": np.concatenate([A, A], 1),
    "concat([A, A], 1)": np.concatenate([A, A], 1),
    "split(1, 2, A)[1]": A[:, 1:],
    "split(split_dim=0, num_split=2, value=A)[0]": A[:1],
    "split(A, 2, 1)[0]": A[:, :1],
    "mul(A, A)": A * A,
    "sub(A, 1.0)": A - 1,
    "neg(A)": -A,
    "pack([A, A])": np.stack([A, A]),
    "unpack(A)[1]": A[1],
    "select(A > 2, A, -A)": np.where(A > 2, A, -A),
    "inv(A)": 1 / A,
    "listdiff([1, 2, 3], [2])[0]": [1, 3],
    "reverse(A, [False, True])": A[:, ::-1],
    "reverse(A, [0])": A[::-1],
    "batch_matmul(A[None], A[None], adj_y=True)[0]": A @ A.T,
    "batch_matrix_diag([1.0, 2.0])": np.diag([1.0, 2.0]),
    "complex_abs(tf.complex(3.0, 4.0))": 5.0,
    "nn.softmax_cross_entropy_with_logits([[0.0, 0.0]], [[0.0, 1.0]])": [np.log(2)],
    "nn.sparse_softmax_cross_entropy_with_logits([[0.0, 0.0]], [1])": [np.log(2)],
    "nn.sigmoid_cross_entropy_with_logits(logits=[0.0], targets=[1.0])": [np.log(2)],
    "nn.sigmoid_cross_entropy_with_logits(labels=[1.0], logits=[0.0])": [np.log(2)],
}


class Old:
    def __init__(self, space=""):
        self.space = space

    def __getattr__(self, name):
        path = f"{self.space}{name}"
        return Old("nn.") if path == "nn" else old_names.find(path)


@pytest.mark.parametrize("call", CALLS)
def test_call(call):
    with tf.Graph().as_default(), tf.Session() as session:
        value = eval(f"old.{call}", {"old": Old(), "A": A, "tf": tf})
        np.testing.assert_allclose(session.run(value), CALLS[call], rtol=1e-6)


def test_every_new_name_is_known_to_tensorflow():
    from headrace._src.core.missing import tensorflow_names

    for new in old_names.RENAMED.values():
        space, _, name = f"tf.{new}".rpartition(".")
        assert name in tensorflow_names()[space], new


def test_samples_took_inputs_before_labels():
    def loss(*middle):
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(1)
            weights, biases = tf.ones([6, 3]), tf.zeros([6])
            nce = old_names.find("nn.nce_loss")(weights, biases, *middle, 2, 6)
            return session.run(nce).tolist()

    inputs, labels = np.full([2, 3], 0.5, np.float32), np.array([[1], [2]])
    assert loss(inputs, labels) == loss(labels, inputs)


def test_scopes_summaries_and_one_notice(capsys, tmp_path):
    notices._said.clear()
    with tf.Graph().as_default() as graph, tf.Session() as session:
        with old_names.find("op_scope")([A], None, "scope"):
            assert tf.identity(A).op.name == "scope/Identity"
        with old_names.find("variable_op_scope")([A], None, "held"):
            assert tf.get_variable("v", [2]).op.name == "held/v"
        old_names.find("scalar_summary")("mean value", tf.reduce_mean(A))
        old_names.find("histogram_summary")("h", tf.constant(A), name="kept")
        merged = old_names.find("merge_all_summaries")()
        text = tf.Summary.FromString(session.run(merged))
        assert [value.tag for value in text.value] == ["mean value", "h"]
        writer = old_names.find("train.SummaryWriter")(str(tmp_path), graph.as_graph_def())
        writer.add_summary(text, 3)
        writer.close()
    (file,) = tmp_path.iterdir()
    assert [event.step for event in tf.train.summary_iterator(str(file))][-1] == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if "headrace: " in line]
    assert len(lines) == 1
    assert lines[0].endswith("names and arguments of TensorFlow 0.x are accepted")


def test_cells():
    cell = old_names.find("nn.rnn_cell.BasicLSTMCell")
    assert cell is old_names.find("contrib.rnn.BasicLSTMCell")
    assert issubclass(cell, tf.nn.rnn_cell.BasicLSTMCell)
    multi = old_names.find("nn.rnn_cell.MultiRNNCell")
    with tf.Graph().as_default():
        one = cell(4, input_size=3)
        out, _ = tf.nn.dynamic_rnn(multi([one] * 2), tf.ones([1, 2, 3]), dtype=tf.float32)
        assert [v.shape.as_list() for v in tf.trainable_variables()] == [
            [7, 16],
            [16],
            [8, 16],
            [16],
        ]
        assert out.shape.as_list() == [1, 2, 4]
    with tf.Graph().as_default():
        shared = multi([cell(3)] * 2)  # as in TensorFlow 1.15, where the weights fit
        tf.nn.dynamic_rnn(shared, tf.ones([1, 2, 3]), dtype=tf.float32)
        assert len(tf.trainable_variables()) == 2
    with tf.Graph().as_default():
        linear = old_names.find("nn.rnn_cell._linear")
        y = linear([tf.ones([2, 3]), tf.ones([2, 1])], 5, True, 0.5)
        assert y.shape.as_list() == [2, 5] and len(tf.trainable_variables()) == 2
        layer = old_names.find("python.ops.rnn_cell_impl._Linear")([tf.ones([2, 3])], 5, False)
        with tf.variable_scope("twice"):
            layer([tf.ones([2, 3])]), layer([tf.ones([2, 3])])
        assert len(tf.trainable_variables()) == 3
        zeros = old_names.find("python.ops.rnn_cell_impl._zero_state_tensors")
        assert [z.shape.as_list() for z in zeros((3, 4), 2, tf.float32)] == [[2, 3], [2, 4]]


def test_functions_of_ops_with_an_underscore():
    from headrace.python.ops import gen_nn_ops

    assert old_names.find("python.ops.gen_nn_ops._relu_grad") is gen_nn_ops.relu_grad
    assert old_names.find("python.ops.gen_nn_ops._no_such") is None
    assert old_names.find("no_such") is None


@pytest.mark.parametrize(
    "loss",
    [
        lambda inputs, labels: tf.reduce_sum(inputs, 1),  # by position, before 1.0
        lambda labels, logits: tf.reduce_sum(logits, 1),
        lambda **given: tf.reduce_sum(given["logits"], 1),
    ],
)
def test_arguments_of_a_loss_function(loss):
    by_example = old_names.find("contrib.legacy_seq2seq.sequence_loss_by_example")
    with tf.Session() as session:
        value = session.run(by_example([A], [[0, 1]], [A[0]], False, loss))
    np.testing.assert_allclose(value, [3.0, 14.0])
