"""SavedModels: we read TensorFlow's, TensorFlow can read ours; mistakes are reported."""

import os
from pathlib import Path

import pytest

import headrace as tf
from tests.unit.train.saved_models import MODELS, check, write

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "saved_models"


@pytest.mark.parametrize("name", MODELS)
def test_tensorflows_are_read(name):
    check(tf, name, str(FIXTURES / name))


@pytest.mark.parametrize("name", MODELS)
def test_ours_are_read(name, tmp_path):
    write(tf, name, str(tmp_path / "first"))
    # Whatever the model needs is in its directory.
    moved = (tmp_path / "first").rename(tmp_path / "moved")
    check(tf, name, str(moved))
    assert sorted(os.listdir(moved)) == sorted(os.listdir(FIXTURES / name))


def test_other_tags(tmp_path):
    write(tf, "plain", str(tmp_path))
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(RuntimeError, match=r"tags 'train' could not be found .*\[{'serve'}\]"):
            tf.saved_model.loader.load(session, ["train"], str(tmp_path))
        with pytest.raises(OSError, match=r"SavedModel file does not exist at: .*/nothing"):
            tf.saved_model.loader.load(session, ["serve"], str(tmp_path / "nothing"))
    assert tf.saved_model.maybe_saved_model_directory(tmp_path)


def test_path_in_bytes(tmp_path):  # as an Estimator's export returns it
    write(tf, "plain", str(tmp_path))
    path = os.fsencode(tmp_path)
    assert tf.saved_model.maybe_saved_model_directory(path)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.loader.load(session, ["serve"], path)
        assert session.run("y:0", {"x:0": [[1.0, 1.0]]}) == [[3.0]]


def test_simple_save(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        y = x * tf.get_variable("scale", initializer=2.0)
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(tmp_path), {"x": x}, {"y": y})
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], str(tmp_path))
        signature = loaded.signature_def["serving_default"]
        assert session.run(signature.outputs["y"].name, {"x:0": [3.0]}) == [6.0]


def test_under_a_scope(tmp_path):
    write(tf, "plain", str(tmp_path))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], str(tmp_path), import_scope="old")
        assert session.run("old/y:0", {"old/x:0": [[1.0, 1.0]]}) == [[3.0]]


def test_order_of_calls(tmp_path):
    builder = tf.saved_model.builder.SavedModelBuilder(str(tmp_path / "new"))
    with tf.Graph().as_default(), tf.Session() as session:
        with pytest.raises(AssertionError, match="has not been saved yet"):
            builder.add_meta_graph(["serve"])
        builder.add_meta_graph_and_variables(session, ["serve"])
        with pytest.raises(AssertionError, match="has already been saved"):
            builder.add_meta_graph_and_variables(session, ["serve"])
    builder.save()
    with pytest.raises(AssertionError, match="already exists, and isn't empty"):
        tf.saved_model.builder.SavedModelBuilder(str(tmp_path / "new"))


def test_signatures_are_checked():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, name="x")
        text = tf.placeholder(tf.string)
        build = tf.saved_model.signature_def_utils
        with pytest.raises(ValueError, match="examples must be a string Tensor"):
            build.regression_signature_def(x, x)
        with pytest.raises(ValueError, match="output must be a float Tensor"):
            build.regression_signature_def(text, text)
        with pytest.raises(ValueError, match="cannot both be None"):
            build.classification_signature_def(text, None, None)
        assert build.is_valid_signature(build.regression_signature_def(text, x))
        assert not build.is_valid_signature(
            build.build_signature_def(method_name="tensorflow/serving/predict")
        )
