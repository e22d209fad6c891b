"""Checkpoints without a saver: the reader, the state file, initial values."""

import logging

import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def saved(tmp_path):
    """A checkpoint with net/a (float32 [2]), net/b (int32 []) and net/p (float32 [4, 1])."""
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("net"):
            tf.get_variable("a", initializer=np.float32([1, 2]))
            tf.get_variable("b", initializer=3)
            tf.get_variable("p", initializer=np.arange(4, dtype=np.float32)[:, None])
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, str(tmp_path / "model"))


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def initialised(*variables):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return [np.asarray(v).tolist() for v in session.run(list(variables))]


def test_reader(saved):
    reader = tf.train.NewCheckpointReader(saved)
    assert reader.get_variable_to_shape_map() == {"net/a": [2], "net/b": [], "net/p": [4, 1]}
    assert reader.get_variable_to_dtype_map()["net/b"] is tf.int32
    assert reader.has_tensor("net/a") and not reader.has_tensor("a")
    assert reader.get_tensor("net/b") == 3
    assert reader.debug_string().splitlines()[0] == b"net/a (DT_FLOAT) [2]"
    with pytest.raises(tf.errors.NotFoundError, match="nearest to a: net/a"):
        reader.get_tensor("a")


def test_a_directory_stands_for_its_latest(saved, tmp_path):
    assert tf.train.load_variable(str(tmp_path), "net/a:0").tolist() == [1, 2]
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(ValueError, match="Couldn't find 'checkpoint' file"):
        tf.train.load_checkpoint(str(tmp_path))


def test_state_file(tmp_path):
    assert tf.train.get_checkpoint_state(tmp_path) is None
    tf.train.update_checkpoint_state(str(tmp_path), "b", ["a", "b"], "latest")
    state = tf.train.get_checkpoint_state(str(tmp_path), "latest")
    assert list(state.all_model_checkpoint_paths) == [str(tmp_path / n) for n in "ab"]
    assert tf.train.latest_checkpoint(tmp_path, "latest") is None  # there is no such checkpoint
    (tmp_path / "checkpoint").write_text("model_checkpoint_path: nonsense")
    assert tf.train.get_checkpoint_state(tmp_path) is None
    with pytest.raises(ValueError, match="timestamps"):
        tf.train.update_checkpoint_state(
            str(tmp_path), "b", ["a", "b"], all_model_checkpoint_timestamps=[1.0]
        )


def test_times_and_removal(saved, tmp_path):
    (when,) = tf.train.get_checkpoint_mtimes([saved, str(tmp_path / "none")])
    assert when == pytest.approx((tmp_path / "model.index").stat().st_mtime)
    tf.train.remove_checkpoint(saved)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("use_resource", [False, True])
def test_initial_values(saved, use_resource):
    a = tf.get_variable("x/a", [2], use_resource=use_resource)
    b = tf.get_variable("x/b", [], tf.int32, use_resource=use_resource)
    tf.train.init_from_checkpoint(saved, {"net/a": a, "net/b": "x/b"})
    assert initialised(a, b) == [[1, 2], 3]


def test_scopes_and_parts(saved, tmp_path):
    with tf.variable_scope("new"):
        a = tf.get_variable("a", [2])
        p = tf.get_variable("p", [4, 1], partitioner=tf.fixed_size_partitioner(2))
    tf.train.init_from_checkpoint(str(tmp_path), {"net/": "new/"})
    assert initialised(a, *p) == [[1, 2], [[0], [1]], [[2], [3]]]


def test_initial_values_that_do_not_fit(saved):
    a = tf.get_variable("a", [3])
    for assignments, message in (
        ({"zz": a}, "Tensor zz is not found"),
        ({"net/a": a}, r"Shape of variable a:0 \(\(3,\)\) doesn't match"),
        ({"net/a": "nowhere"}, "Should be 'scope/': 'other_scope/'"),
        ({"other/": ""}, r"Tensor other/a \(a in other/\) is not found"),
    ):
        with pytest.raises(ValueError, match=message):
            tf.train.init_from_checkpoint(saved, assignments)
    with pytest.raises(TypeError, match="is not a variable"):
        tf.train.init_from_checkpoint(saved, {"net/a": tf.constant(1.0)})


def test_what_comes_near_is_said(saved):
    tf.get_variable("ned/a", [2])
    tf.get_variable("ned/c", [2])
    for assignments, message in (
        ({"nett/a": "ned/a"}, r"nearest to nett/a in the checkpoint: net/a"),
        ({"net/": "ned/"}, r"missing in the checkpoint: net/c\n.*not asked for: net/b, net/p\n"),
        ({"net/": "ned/"}, r"nearest to net/c: net/"),
    ):
        with pytest.raises(ValueError, match=message):
            tf.train.init_from_checkpoint(saved, assignments)


def test_a_scope_without_variables_is_warned_of(saved, caplog):
    a = tf.get_variable("ned/a", initializer=[5.0, 6.0])
    with caplog.at_level(logging.WARNING, logger="headrace"):
        tf.train.init_from_checkpoint(saved, {"net/": "nedd/"})
    assert "no variable in the scope 'nedd/'" in caplog.text
    assert "nearest to nedd/ in the graph: ned/" in caplog.text
    assert initialised(a) == [[5, 6]]
