"""Variables of tf.contrib.framework: lookup and assigned values, as in TensorFlow 1.15.5."""

import numpy as np
import pytest

import headrace as tf

framework = tf.contrib.framework


@pytest.fixture
def variables():
    with tf.Graph().as_default():
        with tf.variable_scope("A"):
            tf.get_variable("w", [2])
            tf.get_variable("b", [2], trainable=False)
        with tf.variable_scope("B"):
            tf.get_variable("w", [3])
            framework.model_variable("m", shape=[2], device="/cpu:0")
            framework.local_variable(1.0, name="loc")
        framework.global_variable(2, name="glob")
        yield


def names(found):
    return " ".join(v.op.name for v in found)


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        (lambda f: f.get_variables(), "A/w A/b B/w B/m glob"),
        (lambda f: f.get_variables("A"), "A/w A/b"),
        (lambda f: f.get_variables("A", suffix="w"), "A/w"),
        (lambda f: f.get_variables_by_suffix("w"), "A/w B/w"),
        (lambda f: f.get_variables_by_name("w"), "A/w B/w"),
        (lambda f: f.get_variables_by_name("w", scope="B"), "B/w"),
        (lambda f: f.get_model_variables(), "B/m"),
        (lambda f: f.get_local_variables(), "B/loc"),
        (lambda f: f.get_trainable_variables("B"), "B/w B/m"),
        (lambda f: f.get_variables_to_restore(), "A/w A/b B/w B/m glob"),
        (lambda f: f.get_variables_to_restore(["A", "B"], ["A/b"]), "A/w B/w B/m"),
        (lambda f: f.get_variables_to_restore(exclude=["A/w", "B"]), "A/b glob"),
        (lambda f: f.filter_variables(f.get_variables(), ["w"], ["B"]), "A/w"),
        (lambda f: f.filter_variables(f.get_variables(), ["w"], reg_search=False), ""),
        (lambda f: [f.get_unique_variable("A/w")], "A/w"),
    ],
)
def test_finding(variables, find, expected):
    assert names(find(framework)) == expected
    assert names(find(tf.contrib.slim)) == expected


def test_finding_none(variables):
    with pytest.raises(ValueError, match="Couldn't find variable w"):
        framework.get_unique_variable("w")
    with pytest.raises(TypeError, match="include is provided but is not a list or a tuple"):
        framework.get_variables_to_restore(include="A")


@pytest.fixture
def checkpoint(variables, tmp_path):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for v in tf.global_variables():
            v.load(np.full(v.shape.as_list(), 7, v.dtype.as_numpy_dtype), session)
        yield tf.train.Saver().save(session, str(tmp_path / "model"))


def test_values_of_a_checkpoint(checkpoint):
    with tf.Graph().as_default(), tf.Session() as session:
        a, other = tf.get_variable("A/w", [2]), tf.get_variable("other", [2])
        operation, feeds = framework.assign_from_checkpoint(checkpoint, [a])
        session.run(operation, feeds)
        session.run(*framework.assign_from_checkpoint(checkpoint, {"A/b": other}))
        assert session.run([a, other])[1].tolist() == [7.0, 7.0]
        with pytest.raises(ValueError, match=r"Checkpoint is missing variable \[other\]"):
            framework.assign_from_checkpoint(checkpoint, [other])
        with pytest.raises(ValueError, match="Total size of new array must be unchanged for B/w"):
            framework.assign_from_checkpoint(checkpoint, {"B/w": other})


def test_a_function_that_restores(checkpoint, caplog):
    make = tf.contrib.slim.assign_from_checkpoint_fn
    with tf.Graph().as_default(), tf.Session() as session:
        wide, other = tf.get_variable("A/w", [1, 2]), tf.get_variable("other", [2])
        make(checkpoint, [wide], reshape_variables=True)(session)
        assert session.run(wide).tolist() == [[7.0, 7.0]]
        with pytest.raises(tf.errors.NotFoundError, match="Key other not found"):
            make(checkpoint, [other])(session)
        assert make(checkpoint, [other], ignore_missing_vars=True) is None
        assert "Variable other missing in checkpoint" in caplog.text


def test_values_by_name(variables):
    with tf.Session() as session:
        framework.assign_from_values_fn({"A/w": [1.0, 2.0]})(session)
        assert session.run("A/w:0").tolist() == [1.0, 2.0]


def test_partitioned_variables_get_their_parts(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("p", initializer=np.arange(4.0))
        session.run(tf.global_variables_initializer())
        saved = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as session:
        parts = tf.get_variable(
            "p", [4], tf.float64, partitioner=tf.fixed_size_partitioner(2, axis=0)
        )
        session.run(*framework.assign_from_checkpoint(saved, list(parts)))
        assert session.run(list(parts))[1].tolist() == [2.0, 3.0]


def test_where_new_variables_belong():
    with tf.Graph().as_default():
        v = framework.variable(
            "v",
            shape=[2],
            regularizer=tf.contrib.layers.l2_regularizer(0.1),
            collections=["mine"],
            device="/cpu:0",
            trainable=False,
        )
        assert v.device == "/device:CPU:0" and tf.get_collection("mine") == [v]
        assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 1
        assert tf.global_variables() == tf.trainable_variables() == []
        m = framework.model_variable("m", shape=[2])
        assert tf.global_variables() == tf.trainable_variables() == tf.model_variables() == [m]
        framework.add_model_variable(v)
        assert tf.model_variables() == [m, v]
        assert framework.get_or_create_global_step() is framework.get_global_step()
