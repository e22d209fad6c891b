"""tf.saved_model.save and load_v2: we load what TensorFlow saved, and it can load what we save;
mistakes are reported.
"""

from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from tests.unit.train.saved_models import write
from tests.unit.train.saved_objects import check_objects, write_again

FIXTURE = Path(__file__).parent.parent.parent / "fixtures" / "saved_models" / "objects"


def test_tensorflows_are_loaded():
    check_objects(tf, str(FIXTURE), [2.0, 3.0], with_table=True)


def test_loaded_objects_are_saved_again(tmp_path):
    with tf.Graph().as_default():
        write_again(tf, str(FIXTURE), str(tmp_path / "first"))
    moved = (tmp_path / "first").rename(tmp_path / "moved")
    check_objects(tf, str(moved), [9.0, 8.0], with_table=False)


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        with self.name_scope:
            self.w = tf.Variable([[1.0, 2.0]], use_resource=True, name="w")
        self.parts = [tf.Variable(3.0), {"b": tf.Variable([4, 5])}]
        self.dense = tf.layers.Dense(2)
        self.dense(tf.ones([1, 3]))


def test_modules_layers_lists_and_dicts(tmp_path):
    net = Net()
    assert net.w.name == "net/w:0"
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        kernel = session.run(net.dense.kernel)
        assert tf.saved_model.save(net, str(tmp_path)) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["assets", "saved_model.pb", "variables"]
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.load_v2(str(tmp_path))
        session.run(tf.global_variables_initializer())
        values = session.run([loaded.w, loaded.parts, loaded.dense.kernel])
        np.testing.assert_array_equal(values[0], [[1.0, 2.0]])
        assert values[1][0] == 3.0
        np.testing.assert_array_equal(values[1][1]["b"], [4, 5])
        np.testing.assert_array_equal(values[2], kernel)
        assert loaded.tensorflow_version == tf.__version__
    with tf.Graph().as_default(), tf.Session() as session:
        tf.saved_model.load(session, ["serve"], str(tmp_path))
        (w,) = (v for v in tf.global_variables() if v.name == "net/w:0")
        np.testing.assert_array_equal(session.run(w), [[1.0, 2.0]])


def test_a_checkpoint_restores_into_the_module(tmp_path):
    net = Net()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.saved_model.save(net, str(tmp_path))
        session.run(net.w.assign([[0.0, 0.0]]))
        status = tf.train.Checkpoint(w=net.w, dense=net.dense).restore(
            str(tmp_path / "variables" / "variables")
        )
        status.run_restore_ops()
        np.testing.assert_array_equal(session.run(net.w), [[1.0, 2.0]])


def test_a_model_is_loaded_twice_into_one_graph():
    models = [tf.saved_model.load_v2(str(FIXTURE)) for _ in range(2)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(models[0].scale.assign([0.0, 0.0]))
        results = [session.run(model.apply([1.0, 1.0])["y"]) for model in models]
    np.testing.assert_array_equal(results, [[0.0, 0.0], [2.0, 3.0]])


def test_gradients_of_loaded_functions():
    model = tf.saved_model.load_v2(str(FIXTURE))
    x = tf.constant([1.0, 2.0])
    found = tf.gradients(model.apply(x)["y"], [model.scale, x])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(found), [[1.0, 2.0], [2.0, 3.0]])


def test_a_function_takes_numbers_and_arrays():
    model = tf.saved_model.load_v2(str(FIXTURE))
    with tf.Session() as session:
        value = session.run(model.add(np.float32([5.0]), n=2))
        np.testing.assert_array_equal(value, [7.0])
        np.testing.assert_array_equal(session.run(model.add([5.0])), [7.0])


def test_mistakes_in_calls():
    model = tf.saved_model.load_v2(str(FIXTURE))
    with pytest.raises(ValueError, match=r"Could not find matching function(.|\n)*Option 2"):
        model.add(tf.constant([1.0]), 3)
    with pytest.raises(ValueError, match="Could not find matching function"):
        model.apply(tf.constant([1], tf.int32))
    served = model.signatures["serving_default"]
    with pytest.raises(TypeError, match=r"Expected argument names \['x'\].*Missing: \['x'\]"):
        served()
    with pytest.raises(TypeError, match="Got two values for keyword 'x'"):
        served(tf.constant([1.0]), x=[1.0])
    with pytest.raises(TypeError, match="Expected at most 1 positional arguments"):
        served([1.0], [1.0])


def test_mistakes_in_saving_and_loading(tmp_path):
    with pytest.raises(ValueError, match="Expected a Trackable object for export, got 5"):
        tf.saved_model.save(5, str(tmp_path))
    net = tf.train.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(ValueError, match="the values of variables are in a session"):
        tf.saved_model.save(net, str(tmp_path))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(ValueError, match="Expected a TensorFlow function to generate"):
            tf.saved_model.save(net, str(tmp_path), signatures=lambda x: x)
        model = tf.saved_model.load_v2(str(FIXTURE))
        session.run(tf.global_variables_initializer())
        net.f = None
        with pytest.raises(AssertionError, match="references untracked object"):
            tf.saved_model.save(net, str(tmp_path), signatures=model.signatures)
        net.table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.int64, default_value=-1, empty_key=0, deleted_key=-1
        )
        with pytest.raises(ValueError, match="its functions can't be saved"):
            tf.saved_model.save(net, str(tmp_path))
    with pytest.raises(ValueError, match=r"has one MetaGraph with tags \['serve'\], but got"):
        tf.saved_model.load_v2(str(FIXTURE), tags="train")
    write(tf, "plain", str(tmp_path / "plain"))
    with pytest.raises(ValueError, match=r"holds graphs, not objects\. .*tf\.saved_model\.load\("):
        tf.saved_model.load_v2(str(tmp_path / "plain"))


def test_names_of_modules():
    class FullyConnected2D(tf.Module):
        @tf.Module.with_name_scope
        def __call__(self):
            return tf.constant(1.0, name="c")

    made = FullyConnected2D()
    assert made.name == "fully_connected2_d"
    assert made().name == "fully_connected2_d/c:0"
    assert made().name == "fully_connected2_d/c_1:0"
    assert FullyConnected2D(name="other").name == "other"
    with pytest.raises(ValueError, match="is not a valid module name"):
        tf.Module(name="a b")
