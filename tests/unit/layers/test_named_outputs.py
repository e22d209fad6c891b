"""What tf.contrib.slim tells of models: sizes, names of outputs."""

import pytest

import headrace as tf

slim = tf.contrib.slim


def test_analyzer_counts_elements_and_bytes(capsys):
    analyzer = slim.model_analyzer
    with tf.Graph().as_default() as graph:
        tf.get_variable("net/weights", [2, 3])
        tf.get_variable("rate", [], tf.float64)
        assert analyzer.analyze_vars(tf.global_variables(), print_info=True) == (7, 32)
        assert "net/weights:0 (float32_ref 2x3) [6, bytes: 24]\n" in capsys.readouterr().out
        assert analyzer.tensor_description(tf.placeholder("float32", [None, 3])) == "(float32 ?x3)"
        assert analyzer.analyze_ops(graph) == 50  # as TensorFlow 1.15 counts


def test_sizes_and_aliases():
    utils = slim.utils
    with tf.Graph().as_default():
        x = tf.placeholder("float32", [None, 3, None, 5])
        assert utils.last_dimension(x.shape, 4) == 5
        assert utils.channel_dimension(x.shape, "NCHW") == 3
        with pytest.raises(ValueError, match="must be known but is None"):
            utils.last_dimension(tf.TensorShape([2, None]))
        utils.append_tensor_alias(x, "a/")
        utils.append_tensor_alias(x, "b")
        y = tf.identity(x, name="y")
        assert utils.gather_tensors_aliases([x, y]) == ["a", "b", "y"]
    assert utils.two_element_tuple(3) == (3, 3) and utils.n_positive_integers(2, [1, 2]) == (1, 2)
    with pytest.raises(ValueError, match="expected positive integers"):
        utils.n_positive_integers(2, 0)
