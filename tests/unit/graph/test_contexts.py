"""Control-flow contexts: their form in MetaGraphDefs, and values that may not cross their
boundaries.
"""

import base64
import json
from pathlib import Path

import pytest

import headrace as tf
from headrace._src.core import proto
from tests.oracle import cases_control_flow  # noqa: F401
from tests.oracle.case import CASES

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "contexts.json").read_text())
MESSAGES = {"cond_context": proto.CondContextDef, "while_context": proto.WhileContextDef}


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


def written(collections):
    return {
        key: [str(message.FromString(m)) for m in collections[key].bytes_list.value]
        for key, message in MESSAGES.items()
        if key in collections
    }


def recorded(key):
    return {
        collection: [str(MESSAGES[collection].FromString(base64.b64decode(m))) for m in messages]
        for collection, messages in RECORDED[key].items()
    }


@pytest.mark.parametrize("key", sorted(RECORDED))
def test_contexts_in_meta_graphs(key):
    with tf.Graph().as_default() as graph:
        CASES[key]["build"](tf)
        exported = tf.train.export_meta_graph()
    assert written(exported.collection_def) == recorded(key)
    with tf.Graph().as_default() as imported:
        tf.train.import_meta_graph(exported)
        again = tf.train.export_meta_graph()
    assert written(again.collection_def) == recorded(key)
    for op in (op for op in graph.get_operations() if op.outputs):
        context = op._get_control_flow_context()
        other = imported.get_operation_by_name(op.name)._get_control_flow_context()
        assert (context and context.name) == (other and other.name), op.name


def loop_with(body, start=0):
    return tf.while_loop(lambda i: i < 3, body, [start])


def leaked():
    """A tensor of the inside of a loop."""
    seen = []
    loop_with(lambda i: seen.append(i + 1) or seen[0])
    return seen[0]


def test_a_value_stays_in_its_loop():
    inside = leaked()
    with pytest.raises(ValueError, match=r"'while/add' is in a while loop") as caught:
        inside * 2
    lines = str(caught.value).splitlines()
    assert "'while/add' was made at" in lines[1] and "seen.append" in lines[1]
    assert "was to be made at" in lines[2] and "inside * 2" in lines[2]
    with pytest.raises(ValueError, match="in different while loops"):
        loop_with(lambda i: i + inside)
    with pytest.raises(ValueError, match="in different while loops"):
        loop_with(lambda i: tf.cond(i > 1, lambda: i + inside, lambda: i))


def test_what_is_inside_can_neither_be_fetched_nor_fed():
    inside = leaked()
    with tf.Session() as session:
        with pytest.raises(ValueError, match=r"'while/add' has been marked as not fetchable"):
            session.run(inside)
        exit_ = inside.graph.get_tensor_by_name("while/Exit:0")
        with pytest.raises(ValueError, match="may not be fed"):
            session.run(exit_, {inside: 3})
        assert session.run(exit_, {exit_: 7}) == 7


def test_the_context_is_open_only_in_its_own_thread_and_block():
    graph = tf.get_default_graph()
    seen = []

    def body(i):
        seen.append(graph._get_control_flow_context())
        with graph.control_dependencies(None):
            seen.append(graph._get_control_flow_context())
        raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        loop_with(body)
    assert seen[0].IsWhileContext() and not seen[0].IsCondContext()
    assert seen[1] is None and graph._get_control_flow_context() is None


@pytest.mark.parametrize("use_resource", [False, True])
def test_initial_values_come_from_outside(use_resource):
    def body(i):
        return i + tf.Variable(i * 2, use_resource=use_resource)

    with pytest.raises(ValueError, match="use a lambda as the initializer"):
        loop_with(body)
    two = loop_with(lambda i: i + tf.Variable(lambda: 2, use_resource=use_resource))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(two) == 4


def test_a_loops_variables():
    result = loop_with(lambda i: i * 2 + 1)
    context = result.op._get_control_flow_context()
    (variable,) = context.loop_vars
    assert variable.exit is result
    assert [t.op.type for t in variable if isinstance(t, tf.Tensor)] == [
        "Enter",
        "Merge",
        "Identity",
        "NextIteration",
        "Exit",
    ]
    assert variable.body is context.pivot_for_body
    assert context.pivot.op.type == "LoopCond"
    assert context.GetControlPivot() is context.pivot_for_body


def test_an_imported_loop_keeps_its_frame():
    loop_with(lambda i: i + 1)
    exported = tf.train.export_meta_graph()
    with tf.Graph().as_default() as graph:
        tf.train.import_meta_graph(exported, import_scope="a")
        tf.train.import_meta_graph(exported, import_scope="b")
        contexts = graph.get_collection("while_context")
        assert [c.name for c in contexts] == ["a/while/while_context", "b/while/while_context"]
        assert {c.frame_name for c in contexts} == {"while/while_context"}
