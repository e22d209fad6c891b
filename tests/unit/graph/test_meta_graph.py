"""MetaGraphDefs: TensorFlow's files and ours are the same; scopes, collections, rewriting."""

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import headrace as tf
from headrace._src.core import proto
from headrace._src.core.tensor_proto import to_array
from headrace._src.graph import proto_functions
from headrace._src.graph.meta_graph import export_meta_graph
from headrace._src.train.saving import graph_util
from headrace._src.train.saving.import_meta_graph import import_meta_graph
from tests.unit.graph import graph_cases

FIXTURE = Path(__file__).parents[2] / "fixtures" / "graphs" / "meta.meta"


def ordered() -> tf.Graph:
    with tf.Graph().as_default() as graph:
        graph_cases.order(tf, graph)
        for key, items in graph_cases.collections(graph).items():
            for item in items:
                graph.add_to_collection(key, item)
    return graph


def test_writes_what_tensorflow_writes():
    ours = export_meta_graph(graph=ordered(), strip_default_attrs=True)
    assert ours == proto.MetaGraphDef.FromString(FIXTURE.read_bytes())


@pytest.mark.parametrize("scope", [None, "top"])
def test_reads_what_tensorflow_wrote(scope):
    with tf.Graph().as_default() as graph:
        assert import_meta_graph(FIXTURE, import_scope=scope) is None
    prefix = f"{scope}/" if scope else ""
    found = {key: graph.get_collection(key) for key in graph.get_all_collection_keys()}
    assert found == {
        "tensors": [graph.get_tensor_by_name(f"{prefix}{n}:0") for n in ("c", "out")],
        "ops": [graph.get_operation_by_name(f"{prefix}z_last")],
        "ints": [3, 4],
        "floats": [2.5, 1.0],
        "texts": ["top/one", "top/two"] if scope else [b"one", b"two"],
    }


@pytest.mark.parametrize("as_text", [True, False])
def test_files(as_text, tmp_path):
    path = tmp_path / "graph.meta"
    written = export_meta_graph(path, graph=ordered(), as_text=as_text)
    with tf.Graph().as_default() as graph:
        import_meta_graph(str(path), clear_devices=True)
    assert {op.device for op in graph.get_operations()} == {""}
    assert export_meta_graph(graph=ordered()) == written
    with pytest.raises(OSError, match="does not exist"):
        import_meta_graph(tmp_path / "none")
    with pytest.raises(TypeError, match="Expected a MetaGraphDef"):
        import_meta_graph(3)


def test_a_scope_leaves_its_inputs_unbound():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", [2], name="x")
        with graph.name_scope("s"):
            y = tf.multiply(x, x, name="y")
            with graph.colocate_with(y):
                tf.identity(y, name="z")
        graph.add_to_collection("tensors", x)
        graph.add_to_collection("tensors", y)
    scoped = export_meta_graph(graph=graph, export_scope="s")
    assert [(n.name, list(n.input)) for n in scoped.graph_def.node] == [
        ("y", ["$unbound_inputs_x", "$unbound_inputs_x"]),
        ("z", ["y"]),
    ]
    with tf.Graph().as_default() as other:
        with pytest.raises(ValueError, match=r"unbound inputs: \$unbound_inputs_x"):
            import_meta_graph(scoped)
        import_meta_graph(scoped, import_scope="T", input_map={"$unbound_inputs_x": [1.0, 2.0]})
        assert other.get_collection("tensors") == [other.get_tensor_by_name("T/y:0")]
        assert other.get_operation_by_name("T/z").colocation_groups() == [b"loc:@T/y"]
        with tf.Session() as session:
            np.testing.assert_array_equal(session.run("T/z:0"), [1, 4])


def test_objects_go_through_their_proto_functions(monkeypatch):
    monkeypatch.setattr(proto_functions, "_registered", {})
    proto_functions.register_proto_function(
        "things",
        "TensorInfo",
        to_proto=lambda thing, export_scope: proto.TensorInfo(name=thing["is"]),
        from_proto=lambda message, import_scope: {"is": message.name, "in": import_scope},
    )
    with pytest.raises(KeyError, match="things"):
        proto_functions.register_proto_function("things")
    graph = ordered()
    graph.add_to_collection("things", {"is": "here"})
    with tf.Graph().as_default() as other:
        import_meta_graph(export_meta_graph(graph=graph), import_scope="T")
    assert other.get_collection("things") == [{"is": "here", "in": "T"}]


def test_collections_that_cannot_be_written_are_left_out_with_a_warning():
    graph = ordered()
    graph.add_to_collection("objects", object())
    with pytest.warns(UserWarning, match="'objects'"):
        found = export_meta_graph(graph=graph)
    assert "objects" not in found.collection_def and "ints" in found.collection_def
    assert list(export_meta_graph(graph=graph, collection_list=["ints"]).collection_def) == ["ints"]


def test_a_failed_import_adds_no_collections():
    meta = export_meta_graph(graph=ordered())
    meta.collection_def["tensors"].node_list.value.append("gone:0")
    with tf.Graph().as_default() as graph, pytest.raises(KeyError, match="gone"):
        import_meta_graph(meta)
    assert graph.get_operations() == [] and graph.get_all_collection_keys() == []


def test_extract_sub_graph():
    graph_def = ordered().as_graph_def()
    part = graph_util.extract_sub_graph(graph_def, ["out"])
    assert [n.name for n in part.node] == ["z_last", "a_first", "c", "out"]
    assert part.versions == graph_def.versions
    with pytest.raises(AssertionError, match="nope is not in graph"):
        graph_util.extract_sub_graph(graph_def, ["nope"])
    with pytest.raises(TypeError, match="dest_nodes"):
        graph_util.extract_sub_graph(graph_def, "out")


def test_remove_training_nodes():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", name="x")
        first = tf.identity(tf.identity(x, name="i"), name="j")
        with graph.control_dependencies([tf.no_op("n")]):
            waits = tf.identity(first, name="waits")
        with graph.colocate_with(first):
            tf.multiply(waits, first, name="y")
    got = graph_util.remove_training_nodes(graph.as_graph_def())
    assert [(n.name, list(n.input)) for n in got.node] == [
        ("x", []),
        ("n", []),
        ("waits", ["x", "^n"]),
        ("y", ["waits", "x"]),
    ]
    assert "_class" not in got.node[-1].attr, "the group's node is gone"
    kept = graph_util.remove_training_nodes(graph.as_graph_def(), protected_nodes=["j"])
    assert [n.name for n in kept.node] == ["x", "j", "n", "waits", "y"]
    shape = graph_util.tensor_shape_from_node_def_name(graph, "x")
    assert shape.ndims is None


def test_nothing_waits_for_a_check_that_is_removed():
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder("float32", name="x"), tf.placeholder("float32", name="y")
        with tf.control_dependencies([y]):
            checked = tf.check_numerics(x, "bad", name="check")
        with tf.control_dependencies([checked]):
            waits = tf.identity(y, name="waits")
            tf.no_op("after")
        tf.multiply(checked, waits, name="z")
    got = graph_util.remove_training_nodes(graph.as_graph_def())
    assert [(n.name, list(n.input)) for n in got.node] == [
        ("x", []),
        ("y", []),
        ("after", []),
        ("z", ["x", "y"]),
    ]
    kept = graph_util.remove_training_nodes(graph.as_graph_def(), protected_nodes=["check"])
    assert [n.name for n in kept.node] == ["x", "y", "check", "waits", "after", "z"]


def _in_branches(x):
    return tf.cond(x < 2, lambda: tf.cond(x < 1, lambda: x, lambda: x * 10), lambda: x * 3)


def _in_a_loop(x):
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: [i + 1, a * x], [0, 1.0])[1]


def _rows_in_a_branch(x):
    table = tf.get_variable("table", initializer=[1.0, 2.0, 3.0])
    return tf.cond(x < 2, lambda: tf.gather(table, [2]), lambda: tf.gather(table, [1]))[0]


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize(
    ("build", "expected"), [(_in_branches, 15.0), (_in_a_loop, 3.375), (_rows_in_a_branch, 3.0)]
)
def test_variables_in_branches_and_loops_are_frozen(build, expected, use_resource):
    with tf.Graph().as_default() as graph, tf.Session() as session:
        with tf.variable_scope("", use_resource=use_resource):
            tf.identity(build(tf.get_variable("x", initializer=1.5)), name="out")
        session.run(tf.global_variables_initializer())
        frozen = graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["out"])
    variables = {"VarHandleOp", "VariableV2", "ReadVariableOp", "ResourceGather"}
    assert not variables & {n.op for n in frozen.node}
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(frozen, name="")
        assert session.run("out:0") == pytest.approx(expected)


FROZEN = """
node { name: "v" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "h" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "r" op: "ReadVariableOp" input: "h" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "rows" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } }
node {
  name: "g" op: "ResourceGather" input: "h" input: "rows" input: "^v"
  attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "Tindices" value { type: DT_INT32 } }
}
node { name: "sum" op: "AddV2" input: "v" input: "r" }
node { name: "unused" op: "VariableV2" }
"""


class Values:
    """A session that knows the values of some tensors."""

    def run(self, fetches: list[str]) -> list[np.ndarray]:
        known = {"v:0": np.float32([1, 2]), "r:0": np.float32([3, 4])}
        return [known[name] for name in fetches]


def test_convert_variables_to_constants():
    graph_def = text_format.Parse(FROZEN, proto.GraphDef())
    frozen = graph_util.convert_variables_to_constants(Values(), graph_def, ["sum", "g"])
    assert [(n.name, n.op, list(n.input)) for n in frozen.node] == [
        ("v", "Const", []),
        ("h", "Const", []),
        ("r", "Identity", ["h"]),
        ("rows", "Const", []),
        ("g/axis", "Const", []),
        ("g", "GatherV2", ["h", "rows", "g/axis", "^v"]),
        ("sum", "AddV2", ["v", "r"]),
    ]
    np.testing.assert_array_equal(to_array(frozen.node[1].attr["value"].tensor), [3, 4])

    for limit in ({"variable_names_whitelist": ["v"]}, {"variable_names_blacklist": ["h"]}):
        part = graph_util.convert_variables_to_constants(Values(), graph_def, ["sum"], **limit)
        assert [n.op for n in part.node] == ["Const", "VarHandleOp", "ReadVariableOp", "AddV2"]


def test_variables_that_cannot_be_frozen():
    graph_def = text_format.Parse(FROZEN, proto.GraphDef())
    graph_def.node.add(name="odd", op="VariableShape", input=["h"])
    with pytest.raises(ValueError, match=r"'odd' \(VariableShape\) uses the variable h"):
        graph_util.convert_variables_to_constants(Values(), graph_def, ["odd"])
    unread = proto.GraphDef(node=graph_def.node[1:2])
    with pytest.raises(ValueError, match="nothing in the graph reads the variable 'h'"):
        graph_util.convert_variables_to_constants(Values(), unread, ["h"])
