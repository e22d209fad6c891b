"""Steps as messages: what was decoded is what was encoded, and nothing wrong is accepted."""

from dataclasses import replace

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import proto
from headrace._src.core.errors import InternalError, InvalidArgumentError
from headrace._src.gradients.function_gradients import Defun
from headrace._src.graph.dataflow import Dataflow, Feed, handle_data
from headrace._src.graph.flow_def import decode_flow, encode_flow, functions_of
from headrace._src.graph.graph import Graph
from headrace._src.graph.structured import parts_of
from headrace._src.ops.control.functional import remote_call
from headrace._src.pipeline import Options, finish, optimise, prepare
from tests.sent_steps import sent, steps_are_sent


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def steps(fetches, feeds=(), targets=(), shapes=None):
    """Return a prepared step and the optimised one."""
    options = Options()
    step = prepare(fetches, targets, feeds, options)
    given = [tuple(t.shape.as_list()) for t in feeds] if shapes is None else shapes
    return step, optimise(step, given, options)


def run_both(fetches, feeds=None, jit="off", targets=()):
    """Return what a session computes, with and without messages."""
    levels = {"off": tf.OptimizerOptions.OFF, "always": tf.OptimizerOptions.ON_1}
    options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(global_jit_level=levels[jit]))
    found = []
    for _ in range(2):
        with tf.Session(config=tf.ConfigProto(graph_options=options)) as session:
            if found:
                with steps_are_sent() as seen:
                    session.run(tf.global_variables_initializer())
                    found.append(session.run(fetches, feeds))
                assert seen
            else:
                session.run(tf.global_variables_initializer())
                found.append(session.run(fetches, feeds))
    return found


@pytest.mark.parametrize("jit", ["off", "always"])
def test_loops_branches_and_variables(jit):
    x = tf.placeholder(tf.float32, [None, 3])
    v = tf.Variable(np.ones((3, 4), np.float32))
    r = tf.Variable(np.ones(4, np.float32), use_resource=True)
    y = tf.tanh(x @ v + r)
    _, z = tf.while_loop(
        lambda i, z: i < 5,
        lambda i, z: (i + 1, z * 2 + tf.random_normal([], seed=3) + r),
        [0, y],
    )
    w = tf.cond(tf.reduce_sum(z) > 0, lambda: z + 1, lambda: z - v[0])
    changed = v.assign_sub(tf.gradients(tf.reduce_sum(w), [v])[0])
    with tf.control_dependencies([changed]):
        after = v.read_value()
    feeds = {x: np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    plain, decoded = run_both([w, after, r.assign_add(y[0])], feeds, jit)
    for a, b in zip(plain, decoded, strict=True):
        np.testing.assert_array_equal(a, b)


def test_both_forms_print_alike():
    x = tf.placeholder(tf.float32, [None, 2])
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(a)), [0, x])
    step, flow = steps([y], [x])
    assert any(n.type == "Merge" for n in sent(step).nodes)
    (loop,) = [n for n in sent(flow).nodes if parts_of(n)]
    assert list(parts_of(loop)) == ["cond", "body"]


def test_shapes_are_known_partly_known_or_unknown():
    x = tf.placeholder(tf.float32, [None, 2])
    y = tf.placeholder(tf.float32)
    _, flow = steps([tf.tanh(x), tf.tanh(y)], [x, y], shapes=[None, None])
    found = [str(n.types[0]) for n in sent(flow).nodes]
    assert found == ["float32[?,2]", "float32[?]"]


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, -0.0, np.inf, 1e-45], np.float32),
        np.array([1, 2, 3], np.float16),
        np.array([True, False]),
        np.array([1 + 2j, -0.0j], np.complex64),
        np.array([b"a", b"\xff\x00"], object),
        np.zeros((0, 3), np.int32),
        np.array(7, np.uint64),
        np.arange(12, dtype=np.int16).reshape(3, 4).T,
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_constants_keep_their_bits(array):
    _, flow = steps([tf.constant(array)])
    (node,) = sent(flow).nodes
    (found,) = node.constant
    assert found.dtype == array.dtype and found.shape == array.shape
    if array.dtype == object:
        assert found.tolist() == array.tolist()
    else:
        assert found.tobytes() == array.tobytes()


def test_a_constant_is_written_once():
    array = np.arange(100_000, dtype=np.float32)
    _, flow = steps([tf.constant(array)])
    assert len(encode_flow(flow).SerializeToString()) < 1.1 * array.nbytes


def test_nodes_of_one_name():
    x = tf.placeholder(tf.float32, [2])
    step, _ = steps([tf.tanh(x), tf.square(x)], [x])
    nodes = tuple(replace(n, name="a") for n in step.nodes)
    decoded = sent(Dataflow(nodes, step.feeds, tuple(n.outputs[0] for n in nodes), ()))
    assert [n.name for n in decoded.nodes] == ["a", "a"]
    assert [v.producer for v in decoded.fetches] == list(decoded.nodes)


def test_a_feed_and_a_node_of_one_name():
    parts = tf.unstack(tf.placeholder(tf.float32, [2, 3], name="x"), name="u")
    step, _ = steps([parts[0] + parts[1]], [parts[1], parts[0].op.inputs[0]], shapes=[(3,), (2, 3)])
    decoded = sent(step)
    assert [f.value.name for f in decoded.feeds] == ["u:1", "x:0"]
    assert isinstance(decoded.nodes[-1].inputs[1].producer, Feed)


def test_handles_keep_what_is_known_of_their_variables():
    v = tf.Variable(np.ones((2, 3), np.float32), use_resource=True)
    step, flow = steps([v.read_value()])
    for decoded in (sent(step), sent(flow)):
        (handle,) = [n for n in decoded.nodes if n.type == "VarHandleOp"]
        found = handle_data(handle.outputs[0])
        assert found.dtype == tf.float32 and found.shape.as_list() == [2, 3]


def test_functions_travel_with_the_step():
    @Defun(tf.float32, func_name="square")
    def square(x):
        return x * x

    @Defun(tf.float32, func_name="both")
    def both(x):
        return square(x) + 1.0

    x = tf.placeholder(tf.float32, [2], name="x")
    target = tf.constant("/job:localhost/replica:0/task:0/device:CPU:0")
    (y,) = remote_call(target, [both(x)], [tf.float32], both)
    step, _ = steps([y], [x])
    assert set(functions_of(step)) == {"both", "square"}
    library = Graph()
    assert str(decode_flow(encode_flow(step), library)) == str(step)
    assert set(library._functions) == {"both", "square"}
    plain, decoded = run_both(y, {x: [1.0, 2.0]})
    np.testing.assert_array_equal(plain, decoded)
    np.testing.assert_array_equal(plain, [5.0, 26.0])


def test_origins_name_the_clients_operations():
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    y = tf.matrix_inverse(x, name="inverse")
    _, flow = steps([y], [x])
    raised = pytest.raises(InvalidArgumentError, match="Input is not invertible")
    with steps_are_sent(), tf.Session() as session, raised as caught:
        session.run(y, {x: np.zeros((2, 2), np.float32)})
    assert caught.value.op.name == "inverse" and caught.value.op.type == "MatrixInverse"
    assert sent(flow).nodes[0].origin.name == "inverse"


@pytest.mark.needs_llvm
def test_what_is_compiled_is_not_sent():
    x = tf.placeholder(tf.float32, [8, 8])
    _, flow = steps([x @ x], [x])
    seen = {}
    finish(flow, Options(watch=seen.__setitem__), compiled=True)
    with pytest.raises(InternalError, match="_Cluster can't be sent"):
        encode_flow(seen["cluster"])


# -- What is refused -------------------------------------------------------------------------------


def message(stage=1):
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    v = tf.Variable(np.ones((2, 2), np.float32), name="v")
    w = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a @ v), [0, x], name="w")[1]
    return encode_flow(steps([tf.add(w, x, name="sum")], [x], [v.initializer])[stage])


def node(graph_def, name):
    (found,) = [n for n in graph_def.node if n.name == name]
    return found


def refused(graph_def, match):
    with pytest.raises(InvalidArgumentError, match=match):
        decode_flow(graph_def, Graph())


def test_an_unknown_op_is_refused():
    graph_def = message()
    node(graph_def, "sum").op = "Sum2"
    refused(graph_def, "node 'sum' .op: 'Sum2'.: Op type not registered")


def test_an_unknown_input_is_refused():
    graph_def = message()
    node(graph_def, "sum").input[0] = "nothing:0"
    refused(graph_def, "reads 'nothing:0', which is unknown, or made later")


def test_an_output_that_is_not_there_is_refused():
    graph_def = message()
    node(graph_def, "sum").input[1] = "x:7"
    refused(graph_def, "'x' has 1 outputs, not 'x:7'")


@pytest.mark.parametrize("text", ["x", "x:", "x:-1", "x:a", ""])
def test_an_input_that_is_no_value_is_refused(text):
    graph_def = message()
    node(graph_def, "sum").input[1] = text
    refused(graph_def, "is not the name of a value")


def test_a_cycle_is_refused():
    graph_def = message()
    node(graph_def, "sum").input[0] = "sum:0"
    refused(graph_def, "node 'sum'.*reads 'sum:0'")


def test_wrong_types_are_refused():
    graph_def = message()
    node(graph_def, "sum").attr["T"].type = tf.int32.as_datatype_enum
    refused(graph_def, "input 0 is .* float32.*, not int32")


def test_too_few_inputs_are_refused():
    graph_def = message()
    del node(graph_def, "sum").input[1]
    refused(graph_def, "it has 1 inputs, not 2")


def test_a_missing_attribute_is_refused():
    graph_def = message()
    del node(graph_def, "sum").attr["T"]
    refused(graph_def, "attribute 'T' is missing")


def test_a_name_that_is_used_twice_is_refused():
    graph_def = message()
    graph_def.node.add().CopyFrom(node(graph_def, "sum"))
    refused(graph_def, "its name is not unique")


def test_a_control_that_is_unknown_is_refused():
    graph_def = message()
    node(graph_def, "sum").input.append("^later")
    refused(graph_def, "waits for '\\^later'")


@pytest.mark.parametrize("stage", [0, 1])
def test_damaged_messages_never_crash(stage):
    """Each attribute, input and node is removed, and values are exchanged for those of others."""
    data = message(stage).SerializeToString()
    rng = np.random.default_rng(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        graph_def = proto.GraphDef.FromString(data)
        changed = graph_def.node[int(rng.integers(len(graph_def.node)))]
        other = graph_def.node[int(rng.integers(len(graph_def.node)))]
        how = rng.integers(7)
        if how == 0:
            graph_def.node.remove(changed)
        elif how == 1 and changed.input:
            del changed.input[int(rng.integers(len(changed.input)))]
        elif how == 2 and changed.attr:
            del changed.attr[sorted(changed.attr)[int(rng.integers(len(changed.attr)))]]
        elif how == 3 and changed.attr and other.attr:
            source = sorted(other.attr)[int(rng.integers(len(other.attr)))]
            target = sorted(changed.attr)[int(rng.integers(len(changed.attr)))]
            changed.attr[target].CopyFrom(other.attr[source])
        elif how == 4:
            changed.op = other.op
        elif how == 5 and changed.input:
            changed.input[0] = f"{other.name}:0"
        else:
            body = [k for k in changed.attr if changed.attr[k].s]
            if body:
                text = bytearray(changed.attr[body[0]].s)
                text[int(rng.integers(len(text)))] ^= int(rng.integers(1, 256))
                changed.attr[body[0]].s = bytes(text)
        try:
            decode_flow(graph_def, Graph())
            outcomes["read"] += 1
        except InvalidArgumentError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20


def test_constants_that_are_too_large_are_refused():
    _, flow = steps([tf.constant(np.zeros(2, np.float32))])
    large = np.broadcast_to(np.float32(0), (1 << 29,))
    (constant,) = flow.nodes
    types = (replace(constant.types[0], sizes=large.shape),)
    constant = replace(constant, constant=(large,), types=types)
    with pytest.raises(InvalidArgumentError, match="use variables instead"):
        encode_flow(Dataflow((constant,), (), constant.outputs, ()))
