"""Exported graphs equal TensorFlow's, and survive files in both forms."""

from pathlib import Path

import pytest

import headrace as tf
from headrace._src.core import proto
from headrace._src.graph.definition import lookup
from headrace._src.graph.graph_def import op_def, strip_default_attributes
from headrace._src.graph.graph_io import read_message, write_graph
from tests.unit.graph import graph_cases

FIXTURES = Path(__file__).parents[2] / "fixtures" / "graphs"


def built(name: str) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default():
        graph_cases.GRAPHS[name](tf, graph)
    return graph


@pytest.mark.parametrize("name", graph_cases.GRAPHS)
def test_writes_what_tensorflow_writes(name):
    theirs = (FIXTURES / f"{name}.pb").read_bytes()
    ours = built(name).as_graph_def(add_shapes=True)
    assert ours == proto.GraphDef.FromString(theirs)
    assert ours.SerializeToString(deterministic=True) == theirs


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("name", graph_cases.GRAPHS)
def test_files_in_both_forms(name, as_text, tmp_path):
    graph = built(name)
    path = write_graph(graph, tmp_path / "new", "g", as_text)
    assert path == str(tmp_path / "new" / "g")
    assert read_message(path, proto.GraphDef) == graph.as_graph_def()
    assert list((tmp_path / "new").iterdir()) == [Path(path)], "nothing else is left behind"


@pytest.mark.parametrize("name", graph_cases.GRAPHS)
def test_text_files_of_tensorflow(name, tmp_path):
    theirs = FIXTURES / f"{name}.pbtxt"
    assert read_message(theirs, proto.GraphDef) == built(name).as_graph_def()
    ours = write_graph(built(name), tmp_path, "g.pbtxt")
    assert Path(ours).read_text() == theirs.read_text()


def test_files_that_hold_no_graph(tmp_path):
    with pytest.raises(OSError, match="does not exist"):
        read_message(tmp_path / "none", proto.GraphDef)
    (tmp_path / "bad").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OSError, match="Cannot parse"):
        read_message(tmp_path / "bad", proto.GraphDef)
    with pytest.raises(TypeError, match="needs a Graph"):
        write_graph("x", tmp_path, "g")


def test_from_version_leaves_out_what_was_there():
    graph = built("arithmetic")
    version = graph.version
    with graph.as_default():
        tf.no_op("new")
    assert [n.name for n in graph.as_graph_def(from_version=version).node] == ["new"]


def test_control_inputs_are_sorted_in_a_graph_only():
    op = built("order").get_operation_by_name("out")
    assert list(op.node_def.input) == ["c", "c", "^z_last", "^a_first"]
    (node,) = [n for n in op.graph.as_graph_def().node if n.name == "out"]
    assert list(node.input) == ["c", "c", "^a_first", "^z_last"]


def test_op_def_of_a_choice_and_a_default():
    multiply = lookup("Mul")
    found = op_def(multiply.schema, multiply)
    assert found.is_commutative and not found.is_stateful
    assert [a.name for a in found.input_arg] == ["x", "y"]
    assert proto.DataType.DT_COMPLEX128 in found.attr[0].allowed_values.list.type
    placeholder = lookup("Placeholder")
    shape = op_def(placeholder.schema, placeholder).attr[1]
    assert shape.type == "shape" and shape.default_value.shape.unknown_rank


def test_default_attributes_are_stripped():
    with tf.Graph().as_default() as graph:
        tf.placeholder("float32", name="any")
        tf.placeholder("float32", [2], name="two")
    stripped = graph.as_graph_def()
    strip_default_attributes(stripped)
    assert [sorted(n.attr) for n in stripped.node] == [["dtype"], ["dtype", "shape"]]
