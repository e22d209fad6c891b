"""Layer: names, scopes, sharing, what is collected, and the checks of inputs."""

import numpy as np
import pytest

import headrace as tf


class Product(tf.layers.Layer):
    """x times a matrix of two columns."""

    def build(self, input_shape):
        rows = input_shape.as_list()[-1]
        self.w = self.add_weight("w", [rows, 2], regularizer=getattr(self, "regularizer", None))
        super().build(input_shape)

    def call(self, inputs, scale=1.0):
        return tf.matmul(inputs, self.w) * scale


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def ones(*shape):
    return tf.ones(shape or (4, 3))


def test_names_and_scopes_are_unique():
    first, second = Product(), Product()
    assert (first.name, second.name) == ("product_1", "product_2")
    assert second(ones()).op.name == "product/mul"
    assert first(ones()).op.name == "product_1/mul"
    assert (second.w.op.name, second.scope_name) == ("product/w", "product")
    with tf.variable_scope("outer"):
        assert Product(name="named")(ones()).op.name == "outer/named/mul"


def test_a_name_in_snake_case():
    class LSTMFooCell2D(tf.layers.Layer):
        pass

    class _Hidden(tf.layers.Layer):
        pass

    assert LSTMFooCell2D().name == "lstm_foo_cell2d_1"
    assert _Hidden().name == "private__hidden_1"


def test_later_calls_share_variables_and_name_scope():
    layer = Product()
    layer(ones())
    with tf.variable_scope("elsewhere"):
        assert layer(ones(), scope="ignored_now").op.name == "product/mul_1"
    assert len(tf.global_variables()) == 1
    assert layer.weights == layer.variables == layer.trainable_weights == [layer.w]


def test_scope_and_reuse():
    with tf.variable_scope("s"):
        made = Product(_scope="k")
        assert made.scope_name == "s/k"
        made(ones())
    with tf.variable_scope("s"):
        shared = Product(_reuse=True)
        shared(ones(), scope="k")
    assert shared.w is made.w
    with pytest.raises(ValueError, match="Variable absent/w does not exist"):
        Product(name="absent", _reuse=True)(ones())


def test_scope_name_is_unknown_before_the_first_call():
    with pytest.raises(ValueError, match="has not been used yet"):
        _ = Product().scope_name


def test_dtype_is_the_first_inputs():
    layer = Product()
    assert layer.dtype is None
    layer(tf.ones([4, 3], tf.float64))
    assert (layer.dtype, layer.w.dtype.base_dtype) == ("float64", tf.float64)


def test_arrays_are_converted():
    assert Product()(np.ones((4, 3), np.float32)).shape.as_list() == [4, 2]


def test_not_trainable():
    layer = Product(trainable=False)
    layer(ones())
    assert layer.trainable_weights == [] == tf.trainable_variables()
    assert layer.non_trainable_weights == layer.weights == [layer.w]


def test_losses_are_collected_once_per_variable():
    layer = Product(activity_regularizer=tf.reduce_sum)
    layer.regularizer = lambda w: tf.reduce_sum(w * 2)
    x = ones()
    layer(x)
    names = ["product/w/Regularizer/Sum", "product/ActivityRegularizer/truediv"]
    assert [loss.op.name for loss in tf.losses.get_regularization_losses()] == names
    assert layer.get_losses_for(x) == tf.losses.get_regularization_losses()[1:]
    assert [loss.op.name for loss in layer.get_losses_for(None)] == ["w/Regularizer_1/Sum"]
    with tf.variable_scope("", reuse=True):
        again = Product(name="product", _reuse=True)
        again.regularizer = layer.regularizer
        again(ones())
    assert again.losses == []


def test_losses_that_functions_make_are_made_whenever_they_are_asked_for():
    layer = tf.layers.Layer()
    layer.add_loss([lambda: tf.ones([], name="made"), lambda: None])
    added = tf.zeros([])
    layer.add_loss(added)
    assert [loss.op.name for loss in tf.losses.get_regularization_losses()] == ["made", "zeros"]
    assert [loss.op.name for loss in layer.losses] == ["zeros", "made_1"]
    assert [loss.op.name for loss in layer.get_losses_for(None)] == ["zeros", "made_2"]
    assert layer.get_losses_for(added) == []


def test_updates_by_what_they_depend_on():
    class Counting(tf.layers.Layer):
        def call(self, inputs):
            count = tf.get_variable("count", initializer=0.0, trainable=False)
            self.add_update(tf.assign_add(count, 1.0))
            self.add_update(tf.assign(count, tf.reduce_sum(inputs)))
            return inputs

    layer, x = Counting(), ones()
    layer(x)
    always, by_input = layer.updates
    assert layer.get_updates_for(None) == [always]
    assert layer.get_updates_for(x) == [by_input]
    assert layer.get_updates_for(ones()) == []
    layer.trainable = False
    assert layer.updates == []


def test_weights_in_a_session():
    layer = Product()
    y = layer(ones(1, 2))
    assert layer.count_params() == 4
    with tf.Session() as session:
        layer.set_weights([np.arange(4).reshape(2, 2)])
        assert session.run(y).tolist() == [[2, 4]]
        assert layer.get_weights()[0].tolist() == [[0, 1], [2, 3]]
        with pytest.raises(ValueError, match="weight list of length 0"):
            layer.set_weights([])
        with pytest.raises(ValueError, match="not compatible"):
            layer.set_weights([np.ones(3)])
    with pytest.raises(ValueError, match="open one first"):
        layer.get_weights()


def test_configuration():
    layer = Product(name="p", dtype=tf.float32)
    assert layer.get_config() == {"name": "p", "trainable": True, "dtype": "float32"}
    assert Product.from_config(layer.get_config()).name == "p"


def test_unknown_arguments():
    with pytest.raises(TypeError, match="Keyword argument not understood"):
        Product(color="red")
    with pytest.raises(TypeError, match="unexpected keyword"):
        Product()(ones(), shade=1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ndim": 3}, "expected ndim=3, found ndim=2"),
        ({"min_ndim": 3}, "expected min_ndim=3, found ndim=2"),
        ({"max_ndim": 1}, "expected max_ndim=1, found ndim=2"),
        ({"dtype": "float64"}, "expected dtype=float64"),
        ({"axes": {-1: 4}}, "expected axis -1 of input shape to have value 4"),
        ({"shape": (None, 7)}, "expected shape=\\(None, 7\\), found shape=\\[4, 3\\]"),
    ],
)
def test_input_specs(spec, message):
    layer = Product()
    layer.input_spec = tf.layers.InputSpec(**spec)
    with pytest.raises(ValueError, match=message):
        layer(ones())


def test_input_specs_that_fit():
    layer = Product()
    layer.input_spec = tf.layers.InputSpec(dtype="float32", ndim=2, axes={0: None, 1: 3})
    assert layer(ones()).shape.as_list() == [4, 2]
    with pytest.raises(ValueError, match="expects 1 inputs, but it received 2"):
        layer([ones(), ones()])
    with pytest.raises(ValueError, match="rank is undefined"):
        layer(tf.placeholder(tf.float32))
    with pytest.raises(ValueError, match="Axis 4 is greater"):
        tf.layers.InputSpec(ndim=3, axes={4: 2})


def _with_trainable(value, only=""):
    def custom(getter, name, *args, **kwargs):
        if only in name:
            kwargs["trainable"] = value
        return getter(name, *args, **kwargs)

    return custom


def _names(variables):
    return [v.op.name.rpartition("/")[2] for v in variables]


@pytest.mark.parametrize(
    ("getter", "trained"),
    [
        (_with_trainable(False), []),
        (_with_trainable(False, only="bias"), ["kernel"]),
        (_with_trainable(True), ["kernel", "bias"]),
        (lambda getter, *args, **kwargs: tf.identity(getter(*args, **kwargs)), []),
    ],
)
def test_a_custom_getter_decides_what_is_trained(getter, trained):
    with tf.variable_scope("root", custom_getter=getter):
        layer = tf.layers.Dense(2)
        layer(ones())
        cell = tf.nn.rnn_cell.BasicRNNCell(3)
        cell(ones(), ones())
    for made in (layer, cell):
        assert _names(made.trainable_variables) == trained
        assert len(made.non_trainable_variables) == 2 - len(trained)


def test_weights_made_by_a_frozen_layer_stay_frozen():
    layer = tf.layers.Dense(2, trainable=False)
    layer(ones())
    layer.trainable = True
    assert not layer.trainable_weights
    assert len(layer.non_trainable_weights) == 2


@pytest.mark.parametrize("inputs", [None, True, False])
def test_updates_depend_on_inputs_by_the_graph(inputs):
    class Counting(tf.layers.Layer):
        def build(self, input_shape):
            self.count = self.add_weight("count", (), trainable=False)
            self.add_update(tf.assign_add(self.count, 1.0))
            self.built = True

        def call(self, x):
            self.add_update(tf.assign_add(self.count, x), inputs=inputs)
            return x + 1

    layer, x = Counting(), tf.placeholder(tf.float32, ())
    y = layer(x)
    found = [len(layer.get_updates_for(source)) for source in (None, x, y)]
    assert (len(layer.updates), found) == (2, [1, 1, 0])


# -- The interface that Keras models use -----------------------------------------------------------


@pytest.mark.parametrize("name", ["input", "output", "input_shape", "output_shape", "input_mask"])
def test_a_layer_outside_of_keras_models_stays_unconnected(name):
    layer = Product()
    layer(ones())
    with pytest.raises(AttributeError, match=r"not connected|no inbound nodes|never been called"):
        getattr(layer, name)
    at = {"input_mask": "get_input_mask_at"}.get(name, f"get_{name}_at")
    with pytest.raises(RuntimeError, match="The layer has never been called"):
        getattr(layer, at)(0)
    assert layer.inbound_nodes == layer.outbound_nodes == []
    assert layer.graph is None


def test_submodules_are_found_in_attributes_lists_and_below():
    outer, inner, last = Product(), Product(), Product()
    outer.b, outer.a = [inner], {"x": last}
    inner.c = Product()
    assert outer.submodules == (last, inner, inner.c)


def test_output_signature_and_mask():
    layer = tf.layers.Dense(3)
    spec = layer.compute_output_signature(tf.TensorSpec([2, 4], tf.float32))
    assert spec == tf.TensorSpec([2, 3], tf.float32)
    with pytest.raises(TypeError, match="Only TensorSpec"):
        layer.compute_output_signature([2, 4])
    assert layer.compute_mask(ones(), mask=7) == 7


def test_declared_properties():
    layer = Product(dynamic=True, input_shape=(3,), batch_size=5)
    assert layer.dynamic
    assert layer._batch_input_shape == (5, 3)
    with pytest.raises(TypeError, match="Unknown keyword argument"):
        layer.add_weight("w", [2], getter=None)


def test_metrics_average_the_values_of_all_steps():
    layer = Product()
    x = tf.placeholder(tf.float32, [])
    layer.add_metric(x, aggregation="mean", name="m")
    (metric,) = layer.metrics
    update, mean = metric.update_state(x), metric.result()
    with tf.Session() as session:
        session.run([v.initializer for v in metric.variables])
        assert session.run(mean) == 0
        for value in (1.0, 4.0):
            session.run(update, {x: value})
        assert session.run(mean) == 2.5
    assert tf.global_variables() == []
    for arguments in ({}, {"name": "n"}, {"name": "n", "aggregation": "sum"}):
        with pytest.raises(ValueError, match="metric"):
            layer.add_metric(x, **arguments)


def test_method_in_a_name_scope():
    class Scoped(Product):
        name_scope = "inside"

        @tf.layers.Layer.with_name_scope
        def made(self):
            return tf.constant(1.0, name="c")

    assert Scoped().made().name == "inside/c:0"
    with pytest.raises(AttributeError, match="_scope_name"):
        Product().name_scope  # noqa: B018


def test_add_weight_determines_the_dtype():
    layer = tf.layers.Layer()
    layer.add_weight("w", [1], dtype=tf.float64)
    assert layer.dtype == "float64"
    assert layer.add_weight("v", [1]).dtype.base_dtype is tf.float64


def test_initializers_by_name():
    named = tf.layers.Dense(2, kernel_initializer="random_uniform", bias_initializer="ones")
    named(ones())
    made = {"class_name": "Constant", "config": {"value": 3}}
    other = tf.layers.Dense(2, kernel_initializer=made)
    other(ones())
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        kernel, bias = session.run([named.kernel, named.bias])
        assert 0 < np.abs(kernel).max() < 0.05
        assert bias.tolist() == [1, 1]
        assert set(session.run(other.kernel).ravel()) == {3}


@pytest.mark.parametrize(
    ("identifier", "message"),
    [("nothing", "Unknown initializer:nothing"), (3.0, "Could not interpret initializer")],
)
def test_an_initializer_that_is_none(identifier, message):
    with pytest.raises(ValueError, match=message):
        tf.layers.dense(ones(), 2, kernel_initializer=identifier)


def test_build_takes_a_shape_as_a_list():
    dense, norm = tf.layers.Dense(2), tf.layers.BatchNormalization()
    conv = tf.layers.Conv1D(2, 3)
    dense.build([None, 3])
    norm.build([None, 4])
    conv.build([None, 8, 5])
    assert dense.kernel.shape == [3, 2]
    assert norm.gamma.shape == [4]
    assert conv.kernel.shape == [3, 5, 2]
