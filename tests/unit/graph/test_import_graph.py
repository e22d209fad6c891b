"""Imports: a graph is read as it was written; a bad one is refused and leaves no trace."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

import headrace as tf
from headrace._src.core import errors, proto
from headrace._src.ops.base.import_graph_def import import_graph_def
from tests.unit.graph import graph_cases

FIXTURES = Path(__file__).parents[2] / "fixtures" / "graphs"
ERRORS = json.loads((FIXTURES / "refused.json").read_text())

X = 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }'
Y = 'node { name: "y" op: "Identity" input: "x" attr { key: "T" value { type: DT_FLOAT } } }'


def parse(text: str) -> proto.GraphDef:
    return text_format.Parse(text, proto.GraphDef())


def load(text: str, graph: tf.Graph | None = None, **arguments):
    graph = graph or tf.Graph()
    with graph.as_default():
        return graph, import_graph_def(parse(text), **arguments)


def names(graph: tf.Graph) -> list[str]:
    return [op.name for op in graph.get_operations()]


@pytest.mark.parametrize("name", graph_cases.GRAPHS)
def test_reads_what_tensorflow_wrote(name):
    theirs = proto.GraphDef.FromString((FIXTURES / f"{name}.pb").read_bytes())
    with tf.Graph().as_default() as graph:
        import_graph_def(theirs, name="")
    assert graph.as_graph_def(add_shapes=True) == theirs


@pytest.mark.parametrize("case", graph_cases.REFUSED)
def test_refuses_what_tensorflow_refuses(case):
    graph = tf.Graph()
    with graph.as_default():
        tf.no_op("here")
        before = graph.as_graph_def()
        error = {"ValueError": ValueError, "NotFoundError": errors.NotFoundError}[ERRORS[case]]
        with pytest.raises(error) as caught:
            import_graph_def(parse(graph_cases.REFUSED[case]))
        assert graph.as_graph_def() == before
        assert graph.unique_name("import") == "import", "the failed import's name is free again"
    if "consumer" not in case:
        assert re.search("'_?y?'|import/y|y <-", str(caught.value)), caught.value


def test_near_names_of_an_unknown_op():
    with pytest.raises(errors.NotFoundError, match=r"Node 'y'.*'Idenity'.*Did you mean Identity"):
        load('node { name: "y" op: "Idenity" }')


def test_any_order_in_the_file():
    graph, _ = load(Y + X)
    assert names(graph) == ["import/x", "import/y"]
    assert graph.get_operation_by_name("import/y").inputs[0].name == "import/x:0"


def test_prefixes_and_taken_names():
    graph, _ = load(X, name="a")
    load(X, graph, name="a")
    load(X, graph, name="a/")
    load(X + Y, graph, name="")
    load(X + Y, graph, name="")
    expected = ["a/x", "a_1/x", "a/x_1", "x", "y", "x_1", "y_1"]
    assert names(graph) == expected
    assert graph.get_operation_by_name("y_1").inputs[0].name == "x_1:0"
    load('node { name: "a" op: "NoOp" }', graph, name="")
    assert names(graph)[-1] == "a_2", "a and a_1 are scopes"


def test_return_elements():
    graph, found = load(X + Y, return_elements=["y:0", "x"])
    assert found == [
        graph.get_tensor_by_name("import/y:0"),
        graph.get_operation_by_name("import/x"),
    ]
    for wrong in ("z", "z:0", "x:2", "x:a"):
        with pytest.raises(ValueError, match=wrong.replace(":2", "")):
            load(X, return_elements=[wrong])
    with pytest.raises(TypeError, match="list of strings"):
        load(X, return_elements="x")


def test_input_map_takes_values_and_controls():
    control = 'node { name: "n" op: "NoOp" }' + Y.replace('input: "x"', 'input: "x" input: "^n"')
    graph, (x, y) = load(
        X + control, input_map={"x": np.float32([1, 2]), "^n": 3.0}, return_elements=["x:0", "y:0"]
    )
    assert x.op.type == "Const" and x.name.startswith("import/_inputs/")
    assert y.op.inputs == [x] and y.shape.as_list() == [2]
    assert [c.type for c in y.op.control_inputs] == ["Const"]
    with tf.Session(graph=graph) as session:
        np.testing.assert_array_equal(session.run(y), [1, 2])


def test_input_map_replaces_nodes_that_the_file_lacks():
    graph = tf.Graph()
    with graph.as_default():
        c = tf.constant(2.0)
        (y,) = import_graph_def(parse(Y), {"x": c}, ["y:0"], name="")
    assert y.op.inputs == [c]


@pytest.mark.parametrize(
    ("input_map", "arguments", "error", "words"),
    [
        ({"w": 1.0}, {}, ValueError, "not found in graph_def: \\[w:0\\]"),
        ({"x:3": 1.0}, {}, ValueError, "not found in graph_def: \\[x:3\\]"),
        ({"^w": 1.0}, {}, ValueError, "\\[\\^w\\]"),
        ({"x": 1}, {}, ValueError, "Input 0 of node 'y' was passed int32"),
        ({"x": 1.0}, {"name": ""}, ValueError, "non-empty `name`"),
        ({3: 1.0}, {}, TypeError, "mapping strings"),
        ([3], {}, TypeError, "mapping strings"),
    ],
)
def test_bad_input_maps(input_map, arguments, error, words):
    graph = tf.Graph()
    with pytest.raises(error, match=words):
        load(X + Y, graph, input_map=input_map, **arguments)
    assert names(graph) == []


def test_other_arguments_that_are_refused():
    with pytest.raises(TypeError, match="must be a GraphDef"):
        import_graph_def(3)
    with pytest.raises(TypeError, match="must be an OpList"):
        load(X, producer_op_list=proto.GraphDef())
    with pytest.raises(ValueError, match="op_dict"):
        load(X, op_dict={})


def test_a_new_attribute_with_its_default_is_dropped():
    text = 'node { name: "n" op: "NoOp" attr { key: "new" value { i: 5 } } }'
    newer = 'op { name: "NoOp" attr { name: "new" type: "int" default_value { i: %d } } }'
    ops = text_format.Parse(newer % 5, proto.OpList())
    _, (n,) = load(text, producer_op_list=ops, return_elements=["n"])
    assert list(n.node_def.attr) == []
    with pytest.raises(ValueError, match="attr 'new'"):
        load(text, producer_op_list=text_format.Parse(newer % 6, proto.OpList()))


def test_devices_colocation_and_control_scopes_apply():
    beside = Y.replace("} } }", '} } attr { key: "_class" value { list { s: "loc:@x" } } } }')
    graph = tf.Graph()
    with graph.as_default():
        first = tf.no_op("first")
        with graph.device("/job:ps"), graph.control_dependencies([first]):
            load(X.replace("op:", 'device: "/device:CPU:1" op:') + beside, graph)
    x, y = (graph.get_operation_by_name(f"import/{n}") for n in "xy")
    assert x.device == y.device == "/job:ps/device:CPU:1"
    assert y.colocation_groups() == [b"loc:@import/x"]
    assert x.control_inputs == y.control_inputs == [first]


def test_versions_merge():
    graph, _ = load(X + "versions { producer: 27 min_consumer: 12 }")
    load(X + "versions { producer: 30 min_consumer: 15 }", graph)
    versions = graph.as_graph_def().versions
    assert (versions.producer, versions.min_consumer) == (27, 15)


def test_functions_come_along():
    library = 'library { function { signature { name: "f" } } }'
    graph, _ = load(library)
    assert [f.signature.name for f in graph.as_graph_def().library.function] == ["f"]
    other = library.replace('"f"', '"f" is_stateful: true')
    with pytest.raises(ValueError, match="another function called 'f'"):
        load(other, graph)


@st.composite
def graphs(draw) -> tf.Graph:
    """Random small graphs: sources, products and identities, with control edges and devices."""
    graph = tf.Graph()
    with graph.as_default():
        tensors = [tf.placeholder("float32", [2], name="source")]
        for _ in range(draw(st.integers(0, 8))):
            waits = draw(st.lists(st.sampled_from(tensors), max_size=3, unique=True))
            device = draw(st.sampled_from(["", "/device:CPU:1", "/job:w/task:3"]))
            scope = draw(st.sampled_from(["a/", "b/c/", "X/"]))
            x, y = (draw(st.sampled_from(tensors)) for _ in range(2))
            kind = draw(st.integers(0, 3))
            with graph.control_dependencies(waits), graph.device(device), graph.name_scope(scope):
                if kind == 0:
                    values = draw(st.lists(st.floats(width=32), min_size=2, max_size=2))
                    tensors.append(tf.constant(values, "float32"))
                elif kind == 1:
                    tensors.append(tf.multiply(x, y))
                elif kind == 2:
                    with graph.colocate_with(x):
                        tensors.append(tf.identity(x))
                else:
                    tensors.append(tf.placeholder("float32", [2]))
    return graph


@given(graphs(), st.randoms(use_true_random=False))
def test_export_import_export_is_the_identity(graph, random):
    written = graph.as_graph_def(add_shapes=True)
    as_text = parse(text_format.MessageToString(written))
    assert as_text.SerializeToString(deterministic=True) == written.SerializeToString(
        deterministic=True
    )
    with tf.Graph().as_default() as again:
        import_graph_def(as_text, name="")
    assert again.as_graph_def(add_shapes=True).SerializeToString(
        deterministic=True
    ) == written.SerializeToString(deterministic=True)

    mixed = list(written.node)
    random.shuffle(mixed)
    with tf.Graph().as_default() as again:
        import_graph_def(proto.GraphDef(node=mixed, versions=written.versions), name="")
    by_name = {op.name: op.node_def for op in again.get_operations()}
    assert by_name.keys() == {n.name for n in written.node}


def loop_nodes(back, source="next"):
    """Return the nodes of a loop with a single iteration."""
    t = "attr { key: 'T' value { type: DT_FLOAT } }"
    text = f"""
    node {{ name: 'x' op: 'Placeholder' attr {{ key: 'dtype' value {{ type: DT_FLOAT }} }} }}
    node {{ name: 'merge' op: 'Merge' input: 'x' input: '{source}' {t}
            attr {{ key: 'N' value {{ i: 2 }} }} }}
    node {{ name: 'pass' op: 'Identity' input: 'merge' {t} }}
    node {{ name: 'cast' op: 'Cast' input: 'pass'
            attr {{ key: 'SrcT' value {{ type: DT_FLOAT }} }}
            attr {{ key: 'DstT' value {{ type: DT_{back} }} }} }}
    node {{ name: 'next' op: 'NextIteration' input: 'cast'
            attr {{ key: 'T' value {{ type: DT_{back} }} }} }}
    """
    return text_format.Parse(text, tf.GraphDef())


def test_only_a_next_iteration_leads_back():
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(loop_nodes("FLOAT"), name="a")
        merge = graph.get_operation_by_name("a/merge")
        assert [t.name for t in merge.inputs] == ["a/x:0", "a/next:0"]
        assert merge.outputs[0].shape.ndims is None  # in any order
        again = graph.as_graph_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(again, name="")
        assert graph.as_graph_def() == again
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError, match=r"nodes in a cycle: .*merge"):
            tf.import_graph_def(loop_nodes("FLOAT", source="cast"))
        with pytest.raises(ValueError, match="was passed int32 from next:0 incompatible"):
            tf.import_graph_def(loop_nodes("INT32"))
        assert not graph.get_operations()


def unary(name: str, source: str) -> str:
    kind = "attr { key: 'T' value { type: DT_FLOAT } }"
    return f"node {{ name: '{name}' op: 'Neg' input: '{source}' {kind} }}"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (unary("a", "b") + unary("b", "a"), 2),
        (unary("a", "a"), 1),
        (unary("a", "b") + unary("b", "a") + unary("after", "b"), 3),
        ("node { name: 'p' op: 'NoOp' input: '^q' } node { name: 'q' op: 'NoOp' input: '^p' }", 2),
        (unary("a", "b") + unary("b", "c") + unary("c", "a") + X + Y, 3),
    ],
)
def test_cycles_are_refused(text, count):
    with pytest.raises(ValueError, match=f"^{count} nodes in a cycle"):
        load(text)


def test_a_mapped_input_breaks_a_cycle():
    with tf.Graph().as_default(), tf.Session() as session:
        text = unary("a", "b") + unary("b", "a")
        (a,) = tf.import_graph_def(
            parse(text), input_map={"b:0": tf.constant(2.0)}, return_elements=["a:0"]
        )
        assert session.run(a) == -2


@pytest.mark.parametrize("producer", [0, 20, 21, 22, 134])
def test_a_placeholder_of_an_old_graph_has_no_shape_where_it_is_a_scalar(producer):
    scalar = (
        "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } "
        "attr { key: 'shape' value { shape { } } } }"
    )
    vector = scalar.replace("'x'", "'v'").replace("shape { }", "shape { dim { size: 3 } }")
    versions = f"versions {{ producer: {producer} }}"
    graph, (x, v) = load(scalar + vector + versions, return_elements=["x:0", "v:0"])
    assert x.shape.ndims == (None if producer <= 21 else 0)
    assert v.shape == [3]
    if producer <= 21:
        with tf.Session(graph=graph) as session, graph.as_default():
            assert session.run(x + 1.0, {x: [1.0, 2.0]}).tolist() == [2.0, 3.0]


def test_producers_below_zero_are_refused():
    with pytest.raises(ValueError, match="GraphDef producer version -1 below min producer 0"):
        load(X + "versions { producer: -1 }")


def test_names_may_be_bytes():
    graph, (y, tensor) = load(X + Y, return_elements=[b"y", b"y:0"], name=b"there")
    assert (y.name, tensor.name) == ("there/y", "there/y:0")
    with graph.as_default():
        z = tf.constant(1.0, name=b"z")
        (mapped,) = tf.import_graph_def(parse(X + Y), {b"x:0": z}, [b"y:0"])
        assert mapped.op.inputs[0] is z
        assert tf.add(z, z, name=b"sum").name == "sum:0"
        assert graph.create_op("NoOp", [], [], name=b"nothing").name == "nothing"
        assert graph.unique_name(b"free") == "free"
        with tf.name_scope(b"scope"):
            assert tf.Variable(1.0, name=b"v").name == "scope/v:0"
    with pytest.raises(TypeError, match="return_elements must be a list of strings"):
        load(X, return_elements=[3])
