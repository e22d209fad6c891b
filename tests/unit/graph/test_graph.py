"""Graph construction: names, scopes, control dependencies, devices, collections, lookups."""

import threading

import numpy as np
import pytest

import headrace as tf


@pytest.fixture
def graph():
    with tf.Graph().as_default() as g:
        yield g


def test_names_are_unique_and_case_does_not_distinguish(graph):
    names = [tf.constant(1, name=n).op.name for n in ("a", "a", "A", "a_1", "b/a")]
    assert names == ["a", "a_1", "A_2", "a_1_1", "b/a"]


def test_name_scopes_nest_reenter_and_return_to_root(graph):
    with tf.name_scope("x") as first:
        assert first == "x/"
        assert tf.constant(1, name="c").op.name == "x/c"
        with tf.name_scope("y"):
            assert graph.get_name_scope() == "x/y"
        with tf.name_scope(None):
            assert tf.constant(1, name="c").op.name == "c"
    with tf.name_scope("x"):
        assert tf.constant(1, name="c").op.name == "x_1/c"
    with tf.name_scope(first):
        assert tf.constant(1, name="d").op.name == "x/d"


@pytest.mark.parametrize("name", ["_bad", "sp ace", "a$", "-x"])
def test_bad_names_are_refused(graph, name):
    with pytest.raises(ValueError, match="valid scope name"), tf.name_scope(name):
        tf.constant(1)


def test_conversions_are_named_inside_the_op(graph):
    x = tf.placeholder("float32", [2])
    tf.multiply(x, 2.0, name="twice")
    assert [op.name for op in graph.get_operations()] == ["Placeholder", "twice/y", "twice"]


def test_control_dependencies(graph):
    a, b = tf.constant(1, name="a"), tf.constant(2, name="b")
    with graph.control_dependencies([a]):
        c = tf.constant(3)
        with graph.control_dependencies([b, a.op]):
            d = tf.constant(4)
            # It reads d, which already waits for both.
            e = tf.identity(d)
        with graph.control_dependencies(None):
            f = tf.constant(5)
    assert c.op.control_inputs == [a.op]
    assert d.op.control_inputs == [a.op, b.op]
    assert e.op.control_inputs == []
    assert f.op.control_inputs == []


def test_an_input_needs_no_control_edge(graph):
    a = tf.constant(1)
    with graph.control_dependencies([a]):
        assert tf.identity(a).op.control_inputs == []


def test_devices_merge_from_inside_out(graph):
    with graph.device("/job:ps/task:1"):
        assert tf.constant(1).device == "/job:ps/task:1"
        with graph.device("/cpu:0"):
            assert tf.constant(1).device == "/job:ps/task:1/device:CPU:0"
            with graph.device("/job:worker"):
                assert tf.constant(1).device == "/job:worker/task:1/device:CPU:0"
        with graph.device(None):
            assert tf.constant(1).device == ""
    with graph.device(lambda op: "/cpu:1" if op.type == "Const" else ""):
        assert tf.constant(1).device == "/cpu:1"
        assert tf.identity(1.0).op.device == ""


def test_colocation_takes_the_device_and_records_the_group(graph):
    with graph.device("/cpu:1"):
        a = tf.constant(1, name="a")
    with graph.device("/cpu:0"), graph.colocate_with(a):
        b = tf.constant(2, name="b")
    assert b.op.colocation_groups() == [b"loc:@a"]
    assert b.device == a.device
    assert a.op.colocation_groups() == [b"loc:@a"]


def test_attr_scope_and_gradient_override(graph):
    with graph._attr_scope({"_mark": "yes"}), graph.gradient_override_map({"Identity": "Mine"}):
        op = tf.identity(1.0).op
    assert op.get_attr("_mark") == b"yes"
    assert op.get_attr("_gradient_op_type") == b"Mine"
    with pytest.raises(TypeError):
        graph.gradient_override_map({"Identity": 1}).__enter__()


def test_collections(graph):
    a, b = tf.constant(1, name="s/a"), tf.constant(1, name="t/b")
    graph.add_to_collections(["k", "l", "k"], a)
    graph.add_to_collection("k", b)
    assert graph.get_collection("k") == [a, b]
    assert graph.get_collection("k", scope="t") == [b]
    graph.get_collection("k").clear()
    assert graph.get_collection("k") == [a, b]
    graph.get_collection_ref("k").append(3)
    assert graph.get_collection("k") == [a, b, 3]
    assert sorted(graph.get_all_collection_keys()) == ["k", "l"]
    graph.clear_collection("k")
    assert graph.get_collection("k") == []


def test_finding_by_name(graph):
    t = tf.constant(1, name="weights")
    assert graph.get_tensor_by_name("weights:0") is t
    assert graph.get_operation_by_name("weights") is t.op
    assert graph.as_graph_element("weights") is t.op
    with pytest.raises(KeyError, match="Did you mean 'weights'"):
        graph.get_operation_by_name("wieghts")
    with pytest.raises(KeyError, match="only has 1 outputs"):
        graph.get_tensor_by_name("weights:1")
    with pytest.raises(ValueError, match='Did you mean "weights:0"'):
        graph.get_tensor_by_name("weights")
    with pytest.raises(ValueError, match="not an element of this graph"), tf.Graph().as_default():
        tf.Graph().as_graph_element(t)


def test_finalized_graphs_stay_as_they_are(graph):
    tf.constant(1)
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        tf.constant(2)
    with pytest.raises(RuntimeError, match="finalized"):
        graph.add_to_collection("k", 1)
    graph._unsafe_unfinalize()
    assert tf.constant(2).op.name == "Const_2"


def test_attributes_can_be_set_later_if_they_fit(graph):
    op = tf.argmax(tf.constant([1.0]), name="op").op
    op._set_attr("output_type", tf.int32)
    op._set_attr("_class", ["loc:@op"])
    assert op.get_attr("output_type") == tf.int32
    assert op.node_def.attr["_class"].list.s == [b"loc:@op"]
    with pytest.raises(TypeError, match="output_type"):
        op._set_attr("output_type", tf.string)


def test_tensors_of_two_graphs_do_not_mix(graph):
    a = tf.constant(1.0)
    with tf.Graph().as_default():
        b = tf.constant(1.0)
    with pytest.raises(ValueError, match="same graph"):
        tf.multiply(a, b)


def test_many_threads_may_build_one_graph(graph):
    def build():
        with graph.as_default(), graph.name_scope("t"):
            for _ in range(50):
                tf.identity(tf.constant(1.0))

    threads = [threading.Thread(target=build) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ops = graph.get_operations()
    assert len({op.name for op in ops}) == len(ops) == 800
    assert [op._id for op in ops] == list(range(800))


def test_shape_errors_lead_with_the_fact_and_the_line(graph):
    with pytest.raises(ValueError, match=r"must be equal, but are 3 and 4 for 'bad'") as caught:
        tf.multiply(tf.constant([1.0] * 3), tf.constant([1.0] * 4), name="bad")
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)
    assert "input shapes: [3], [4]" in str(caught.value)
    assert "test_graph.py" in str(caught.value)


def test_types_are_never_promoted_silently(graph):
    x = tf.placeholder("float32")
    with pytest.raises(TypeError, match="float64 that does not match type float32 of argument 'x'"):
        tf.multiply(x, tf.placeholder("float64"))
    with pytest.raises(TypeError, match="not in list of allowed values"):
        tf.multiply("a", "b")
    with pytest.raises(TypeError, match="Expected int32"):
        tf.multiply(tf.placeholder("int32"), 1.5)


def test_unknown_op_types_have_near_names(graph):
    with pytest.raises(tf.errors.NotFoundError, match=r"Did you mean .*Identity"):
        graph.create_op("Identiti", [])


def test_create_op_checks_what_it_is_given(graph):
    x = tf.placeholder("float32", [2])
    op = graph.create_op("Mul", [x, x], name="m", attrs={"T": "float32"})
    assert op.outputs[0].shape.as_list() == [2]
    with pytest.raises(ValueError, match="takes more inputs"):
        graph.create_op("Mul", [x])
    with pytest.raises(ValueError, match="takes 2 inputs"):
        graph.create_op("Mul", [x, x, x])
    with pytest.raises(TypeError, match="does not match"):
        graph.create_op("Mul", [x, tf.placeholder("int32")])
    before = graph.version
    with pytest.raises(TypeError, match="outputs of 'Mul'"):
        graph.create_op("Mul", [x, x], dtypes=[tf.int32])
    with pytest.raises(TypeError, match="inputs of 'Mul'"):
        graph.create_op("Mul", [x, x], input_types=[tf.float32, tf.int32])
    with pytest.raises(ValueError, match="op_def is of Mul"):
        graph.create_op("Add", [x, x], op_def=op.op_def)
    assert graph.version == before


def test_default_graph_can_be_reset_only_outside_of_scopes():
    with tf.Graph().as_default(), pytest.raises(AssertionError, match="nested"):
        tf.reset_default_graph()
    before = tf.get_default_graph()
    tf.reset_default_graph()
    assert tf.get_default_graph() is not before


def test_tensors_are_not_booleans_nor_sequences(graph):
    x = tf.placeholder("float32", [2])
    for use in (bool, list, len):
        with pytest.raises(TypeError):
            use(x)


def test_indexed_slices_of_arrays_and_lists():
    with tf.Graph().as_default(), tf.Session() as session:
        rows = tf.IndexedSlices([[1.0, 2.0]], [1], [3, 2])
        assert (rows.values, rows.indices, rows.dense_shape) == ([[1.0, 2.0]], [1], [3, 2])
        assert rows.shape == [3, 2]
        assert session.run(tf.convert_to_tensor(rows)).tolist() == [[0, 0], [1, 2], [0, 0]]
        gradients = tf.SparseConditionalAccumulator(tf.float32, shape=[None, 2])
        part = tf.IndexedSlices(values=np.ones((1, 2), np.float32), indices=[0])
        session.run(gradients.apply_indexed_slices_grad(part))
        assert session.run(gradients.num_accumulated()) == 1
        with tf.Graph().as_default():
            elsewhere = tf.constant([0])
        with pytest.raises(ValueError, match="must be from the same graph as"):
            tf.IndexedSlices(tf.ones([1, 2]), elsewhere)


def test_references_are_keys(graph):
    x, v = tf.constant(5.0, name="x"), tf.Variable(1.0)
    r = tf.get_variable("r", initializer=2.0, use_resource=True)
    for element in (x, v, r):
        assert element.experimental_ref() == element.experimental_ref()
        assert element.experimental_ref().deref() is element
    assert len({e.experimental_ref() for e in (x, v, r, x)}) == 3
    assert x.experimental_ref() != tf.constant(5.0).experimental_ref()
    assert repr(x.experimental_ref()) == f"<Reference wrapping {x!r}>"
    with pytest.raises(TypeError, match="Cannot compare wrapped object with unwrapped object"):
        x.experimental_ref() == x  # noqa: B015


def test_tracebacks_with_the_lines_where_functions_begin(graph):
    def make():
        return tf.constant(1)

    op = make().op
    start = make.__code__.co_firstlineno
    assert [call[:4] for call in op.traceback_with_start_lines] == op.traceback
    assert op.traceback_with_start_lines[-1][1:] == (
        start + 1,
        "make",
        "return tf.constant(1)",
        start,
    )


@pytest.mark.parametrize("switch", [True, False])
def test_scopes_are_the_threads_own(graph, switch):
    first = tf.no_op("first")
    made = {}
    with graph.device("/job:worker"), graph.control_dependencies([first]):
        if switch:
            graph.switch_to_thread_local()
        ready = threading.Barrier(3)

        def build(number):
            with graph.as_default(), graph.device(f"/replica:{number}"):
                ready.wait(10)
                made[number] = tf.no_op(f"op{number}")
                ready.wait(10)

        threads = [threading.Thread(target=build, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    job = "/job:worker" if switch else ""
    assert [made[i].device for i in range(3)] == [f"{job}/replica:{i}" for i in range(3)]
    assert all(op.control_inputs == ([first] if switch else []) for op in made.values())
    assert tf.no_op().device == ""
