"""tf.Variable as an object: its attributes, the arguments it refuses, and how it's saved."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.meta_graph import export_meta_graph, restore_collections

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@KINDS
def test_properties(use_resource, graph):
    v = tf.Variable([1.0, 2.0], name="v", trainable=False, use_resource=use_resource)
    assert isinstance(v, tf.Variable)
    assert (v.name, v.op.name, v.initializer.name, v.device) == ("v:0", "v", "v/Assign", "")
    assert v.graph is graph and v.shape.as_list() == v.get_shape().as_list() == [2]
    assert v.dtype.base_dtype is tf.float32 and v.dtype._is_ref_dtype is not use_resource
    assert v.initializer.inputs[1] is v.initial_value
    assert v.trainable is False and v.constraint is None
    assert v.synchronization is tf.VariableSynchronization.AUTO
    assert v.aggregation is tf.VariableAggregation.NONE
    assert repr(v) == f"<tf.Variable 'v:0' shape=(2,) dtype={v.dtype.name}>"
    assert {v: 1}[v] == 1 and v == v and v != 3
    assert tf.global_variables() == [v] and tf.trainable_variables() == []


@KINDS
def test_load_eval_and_operators_with_arrays(use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    with tf.Session() as session:
        v.load([3.0, 4.0])
        np.testing.assert_array_equal(v.eval(), [3, 4])
        v.load(np.array([5.0, 6.0]), session)
        np.testing.assert_array_equal(v.eval(session), [5, 6])
        total = np.float32([1, 1]) + v
        np.testing.assert_array_equal(session.run(total), [6, 7])
    with pytest.raises(ValueError, match="session argument should be provided"):
        v.load([1.0, 2.0])


@KINDS
def test_one_step_initialises_variables_that_depend_on_each_other(use_resource):
    tf.set_random_seed(1)
    v = tf.Variable(tf.random_uniform([3]), use_resource=use_resource)
    w = tf.Variable(v.initialized_value() * 2.0, use_resource=use_resource)
    u = tf.Variable(v * 3.0, use_resource=use_resource)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        a, b, c = session.run([v, w, u])
    np.testing.assert_array_equal(a * 2, b)
    np.testing.assert_allclose(a * 3, c)


@KINDS
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "initial_value must be specified"),
        ({"initial_value": 1.0, "dtype": tf.int32}, TypeError, "int32"),
        ({"initial_value": 1.0, "collections": "abc"}, ValueError, "must be a list, tuple"),
        ({"initial_value": 1.0, "constraint": 3}, ValueError, "must be a callable"),
        ({"initial_value": 1.0, "aggregation": 3}, ValueError, "aggregation"),
        ({"initial_value": 1.0, "synchronization": 3}, ValueError, "synchronization"),
        ({"initial_value": [1.0], "expected_shape": [2]}, ValueError, r"not the expected \[2\]"),
        ({"initial_value": [1.0, 2.0], "shape": [3]}, ValueError, "3"),
        ({"initial_value": 1, "variable_def": object()}, ValueError, "mutually exclusive"),
        ({"initial_value": 1, "no_such": 1}, TypeError, "no_such"),
    ],
)
def test_bad_arguments(use_resource, arguments, error, message):
    with pytest.raises(error, match=message):
        tf.Variable(**arguments, use_resource=use_resource)


def test_initial_value_needs_a_shape():
    x = tf.placeholder(tf.float32, None)
    with pytest.raises(ValueError, match="must have a shape specified"):
        tf.Variable(x)
    assert tf.Variable(x, validate_shape=False).shape.ndims is None


@KINDS
def test_what_a_variable_is_not(use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    with pytest.raises(TypeError, match="not iterable"):
        list(v)
    with pytest.raises(ValueError, match="type 'int32' for variable of type 'float32"):
        tf.convert_to_tensor(v, tf.int32)
    with pytest.raises(TypeError, match="is not IndexedSlices: 3"):
        v.scatter_add(3)


def test_what_a_resource_variable_refuses():
    v = tf.Variable([1.0, 2.0], use_resource=True)
    with pytest.raises(RuntimeError, match=r"Variable \+= value not supported"):
        v += 1.0
    with pytest.raises(RuntimeError, match=r"`var.assign\(var \*\* value\)`"):
        v **= 2.0
    for refuse in (bool, int):
        with pytest.raises(TypeError):
            refuse(v)
    for refuse in (v.numpy, lambda: v.set_shape([2])):
        with pytest.raises(NotImplementedError):
            refuse()


def test_set_shape():
    v = tf.Variable([1.0, 2.0], validate_shape=False)
    v.set_shape([2])
    assert v.shape.as_list() == v.value().shape.as_list() == [2]


def test_collections():
    v = tf.Variable(1.0, collections=["mine"])
    w = tf.Variable(1.0, collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
    assert v.graph.get_collection("mine") == [v] == tf.trainable_variables()
    assert tf.local_variables() == [w] and tf.global_variables() == tf.all_variables() == []
    read_late = tf.VariableSynchronization.ON_READ
    assert tf.Variable(1.0, synchronization=read_late).trainable is False


def test_unread_variable():
    v = tf.Variable([1.0], use_resource=True)
    changed = v.assign([2.0])
    assert isinstance(changed, tf.Variable) and changed.name == "AssignVariableOp"
    assert changed.op.type == "AssignVariableOp" and changed.handle is v.handle
    again = changed.assign_add([3.0])
    with tf.Session() as session:
        assert session.run(changed + 1.0) == 3
        assert session.run(again) == 5


# -- Creators --------------------------------------------------------------------------------------


def test_creators_nest_and_see_all_arguments():
    calls = []

    def outer(next_creator, **kwargs):
        calls.append(("outer", kwargs["name"], len(kwargs)))
        return next_creator(**kwargs)

    def inner(next_creator, **kwargs):
        calls.append(("inner", kwargs["name"], len(kwargs)))
        return next_creator(**{**kwargs, "name": "renamed", "use_resource": True})

    with tf.variable_creator_scope(outer), tf.variable_creator_scope(inner):
        v = tf.Variable(1.0, name="v")
        w = tf.get_variable("w", [1])
    assert calls[:2] == [("inner", "v", 15), ("outer", "renamed", 15)]
    assert v.name == "renamed:0" and v.op.type == "VarHandleOp"
    assert w.name == "renamed_1:0"
    assert tf.Variable(1.0).op.type == "VariableV2"


def test_resource_variables_by_default():
    assert not tf.resource_variables_enabled()
    tf.enable_resource_variables()
    try:
        assert tf.resource_variables_enabled()
        assert tf.Variable(1.0).op.type == tf.get_variable("w", [1]).op.type == "VarHandleOp"
        assert tf.Variable(1.0, use_resource=False).op.type == "VariableV2"
    finally:
        tf.disable_resource_variables()
    with tf.variable_scope("s", use_resource=True):
        assert tf.Variable(1.0).op.type == "VarHandleOp"


# -- Files -----------------------------------------------------------------------------------------


@KINDS
def test_proto_round_trip(use_resource):
    v = tf.Variable([1.0], name="v", trainable=False, use_resource=use_resource)
    found = tf.Variable.from_proto(v.to_proto())
    assert type(found) is type(v) and found.to_proto() == v.to_proto()
    assert found.name == "v:0" and found.initializer is v.initializer
    assert found.shape == v.shape and found.dtype is v.dtype and found.trainable is False
    assert found.initial_value is v.initial_value
    assert found._as_graph_element() is v._as_graph_element()


def test_proto_of_a_cached_resource():
    v = tf.Variable([1.0], name="v", use_resource=True, caching_device="/cpu:0")
    found = tf.Variable.from_proto(v.to_proto())
    assert v.to_proto().snapshot_name == "v/Read/Identity:0"
    assert found.value() is v.value()


def test_proto_in_scopes():
    with tf.name_scope("s"):
        v = tf.Variable([1.0], name="v")
    assert v.to_proto("s").variable_name == "v:0"
    assert v.to_proto("t") is None
    assert tf.Variable.from_proto(v.to_proto("s"), import_scope="s").name == "s/v:0"


@KINDS
def test_meta_graph_round_trip(use_resource):
    split = tf.fixed_size_partitioner(2)
    tf.get_variable("w", [3], partitioner=split, use_resource=use_resource)
    tf.get_local_variable("l", [1], use_resource=use_resource)
    exported = export_meta_graph()
    with tf.Graph().as_default() as other:
        tf.import_graph_def(exported.graph_def, name="again")
        restore_collections(other, exported.collection_def, "again", lambda key: True)
        w0, w1 = tf.global_variables()
        assert tf.trainable_variables() == [w0, w1]
        assert (w0.name, w1.name) == ("again/w/part_0:0", "again/w/part_1:0")
        assert w1._get_save_slice_info().spec == "3 2,1"
        assert w1._get_save_slice_info().full_name == "again/w"
        assert [v.name for v in tf.local_variables()] == ["again/l:0"]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run([w0, w1])[0].shape == (2,)
