"""Parameters per scope: of graphs, of files, and as `headrace params` shows them."""

import pytest
from click.testing import CliRunner

import headrace as tf
from headrace._src.cli import main


@pytest.fixture
def model(tmp_path):
    """A model with slots, in its graph; and as a checkpoint and a frozen graph."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 4], name="x")
        with tf.variable_scope("encoder"):
            h = tf.layers.dense(x, 3, name="one")
        with tf.variable_scope("deep/down"):
            y = tf.layers.dense(h, 2, name="logits", use_bias=False)
        step = tf.train.get_or_create_global_step()
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(y), global_step=step)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, str(tmp_path / "model"), 7)
            tf.saved_model.simple_save(session, str(tmp_path / "served"), {"x": x}, {"y": y})
            frozen = tf.graph_util.convert_variables_to_constants(
                session, session.graph_def, [y.op.name]
            )
        tf.train.write_graph(frozen, str(tmp_path), "frozen.pb", as_text=False)
        yield graph


def test_the_trainable_variables_of_a_graph(model):
    found = tf.train.count_parameters(trainable=True)
    assert str(found) == (
        "all parameters             21\n"
        "  encoder/one              15\n"
        "    kernel                 12\n"
        "    bias                    3\n"
        "  deep/down/logits/kernel   6"
    )
    assert found.size == 4 * 21
    assert found.find("encoder/one").count == 15
    assert found.find("deep/down/logits/kernel").parameter.sizes == (3, 2)
    with pytest.raises(KeyError, match="no scope 'two'"):
        found.find("encoder/one").find("two")


def test_slots_stand_beside_their_variables(model):
    found = tf.train.count_parameters(model)
    assert found.count == 2 * 21 + 1
    assert found.find("encoder/one/kernel").count == 12
    assert found.find("encoder/one/kernel/Momentum").count == 12
    chosen = tf.train.count_parameters([v for v in tf.trainable_variables() if "bias" in v.name])
    assert chosen.count == 3


@pytest.mark.parametrize("file", ["", "model-7", "model-7.index", "model-7.meta", "served"])
def test_what_is_on_disk(model, tmp_path, file):
    path = tmp_path / file
    assert tf.train.count_parameters(path).count == 43
    assert tf.train.count_parameters(str(path), trainable=True).count == 21
    assert tf.train.count_parameters(path, match="one/kernel$").count == 12


def test_a_frozen_graph_has_constants(model, tmp_path):
    found = tf.train.count_parameters(tmp_path / "frozen.pb")
    assert found.find("encoder/one/kernel").count == 12
    assert found.count == 21
    with pytest.raises(ValueError, match="doesn't say which of its variables are trainable"):
        tf.train.count_parameters(tmp_path / "frozen.pb", trainable=True)


def test_shapes_that_nobody_knows_count_nothing():
    with tf.Graph().as_default():
        tf.Variable(tf.placeholder(tf.float32), validate_shape=False)
        assert tf.train.count_parameters().count == 0


def test_mistakes(tmp_path):
    with pytest.raises(TypeError, match="needs variables"):
        tf.train.count_parameters([1])
    with pytest.raises(tf.errors.NotFoundError, match="any matching files"):
        tf.train.count_parameters(tmp_path / "none")


def command(*arguments):
    return CliRunner().invoke(main, ["params", *map(str, arguments)])


def test_the_command(model, tmp_path):
    done = command(tmp_path, "--trainable")
    assert done.exit_code == 0, done.output
    lines = [line.rstrip() for line in done.output.splitlines()]
    assert lines[1].startswith(
        "├─ deep/down/logits/kernel  3×2    float32           6   24 B  28.6%"
    )
    assert lines[2].startswith(
        "└─ encoder/one                                      15   60 B  71.4%"
    )
    assert lines[3].startswith(
        "   ├─ bias                  3      float32           3   12 B  14.3%"
    )
    assert lines[-1].split() == ["all", "21", "84", "B"]
    assert "bias" not in command(tmp_path / "frozen.pb", "--depth", 1).output


def test_the_command_says_what_is_wrong(model, tmp_path):
    assert "any matching files" in command(tmp_path / "none").output
    assert "no parameters found" in command(tmp_path, "--match", "nothing").output
    assert "unterminated" in command(tmp_path, "--match", "(").output
    assert command(tmp_path / "frozen.pb", "--trainable").exit_code == 1
