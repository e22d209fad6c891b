"""Every recorded case: Headrace builds the same nodes as TensorFlow 1.15.5, with the same static
shapes, gets the same values, and runs TensorFlow's graph.
"""

import functools
import importlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import proto
from headrace._src.core.tensor_proto import to_array
from tests.oracle.case import CASES, run

FIXTURES = Path(__file__).parent.parent / "fixtures" / "oracle"
FAMILIES = sorted(p.stem for p in FIXTURES.glob("*.zip"))
for family in FAMILIES:
    importlib.import_module(f"tests.oracle.cases_{family}")


@functools.cache
def archive_of_family(name):
    """An archive in memory: its directory, which is long, is read once."""
    return zipfile.ZipFile(io.BytesIO((FIXTURES / f"{name}.zip").read_bytes()))


def archive_of(key):
    return archive_of_family(key.split(".")[0].removeprefix("cases_"))


def recorded(key):
    archive = archive_of(key)
    names = json.loads(archive.read(f"{key}/names.json"))
    data = [archive.read(f"{key}/{i}.pb") for i in range(len(names))]
    values = [to_array(proto.TensorProto.FromString(d)) if d else None for d in data]
    return names, values, proto.GraphDef.FromString(archive.read(f"{key}/graph.pb"))


def assert_equal(values, expected, entry):
    assert len(values) == len(expected)
    for value, right in zip(values, expected, strict=True):
        if right is None:
            assert value is None
            continue
        # Not as NumPy's own strings, which lose zero bytes at the end.
        value = np.asarray(value, object if right.dtype == object else None)
        assert value.shape == right.shape
        if right.dtype == object:
            assert value.ravel().tolist() == right.ravel().tolist()
            continue
        assert value.dtype == right.dtype
        if right.dtype.kind in "biu":
            np.testing.assert_array_equal(value, right)
        else:
            wide = np.complex128 if right.dtype.kind == "c" else np.float64
            tolerance = {"rtol": entry["rtol"], "atol": entry["atol"]}
            if right.dtype.itemsize == 2:
                tolerance = {"rtol": 2e-2, "atol": 2e-2}
            np.testing.assert_allclose(value.astype(wide), right.astype(wide), **tolerance)


def summary(graph_def):
    """The nodes as comparable text: name, type, inputs, device and attributes."""
    lines = []
    for node in graph_def.node:
        attrs = {k: _attr(v) for k, v in sorted(node.attr.items()) if k != "_output_shapes"}
        lines.append(f"{node.name} = {node.op}({', '.join(node.input)}) {node.device} {attrs}")
    return lines


def _attr(value):
    if value.WhichOneof("value") == "tensor":
        array = to_array(value.tensor)
        return f"{array.dtype}{array.shape} {array.ravel()[:20].tolist()}"
    return str(value).replace("\n", " ").strip()


# Op types whose static shapes are not TensorFlow's, and why.
OTHER_SHAPES = {
    "EagerPyFunc": "has an output more, which leads gradients to the call",
    "FractionalAvgPool": "TensorFlow forgets the last cut of rows and columns",
    "FractionalMaxPool": "TensorFlow forgets the last cut of rows and columns",
    "HashTable": "a reference of a known shape would be a variable's",
    "PartitionedCall": "what the body gives isn't inferred for each call",
    "StatefulPartitionedCall": "what the body gives isn't inferred for each call",
    "UniqueV2": "TensorFlow takes any input for a vector",
    "UniqueWithCountsV2": "TensorFlow takes any input for a vector",
    "While": "TensorFlow takes the results to be shaped as the inputs, whatever the body does",
}


def differing_shapes(key, graph_def, ours):
    """The operations whose static shapes aren't those that TensorFlow gave: lines of text."""
    theirs = archive_of(key).read(f"{key}/shapes.txt").decode().split("\n")
    lines = zip(graph_def.node, ours.split("\n"), theirs, strict=True)
    return [
        f"{node.op} {node.name}: {a}, not {b}"
        for node, a, b in lines
        if a != b and node.op not in OTHER_SHAPES
    ]


@pytest.mark.parametrize("key", sorted(CASES))
def test_same_values_and_nodes(key):
    entry = CASES[key]
    names, expected, graph_def = recorded(key)
    ours_names, ours, data, shapes = run(tf, entry)
    if entry["graph"]:
        assert summary(proto.GraphDef.FromString(data)) == summary(graph_def)
        assert ours_names == names
        assert differing_shapes(key, graph_def, shapes) == []
    assert_equal(ours, expected, entry)


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(k for k, entry in CASES.items() if entry["imports"]))
def test_runs_tensorflows_graph(key):
    entry = CASES[key]
    names, expected, graph_def = recorded(key)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.Session() as session:
            for op in graph.get_operations():
                if op.type in ("Assign", "AssignVariableOp") and op.name == (
                    op.inputs[0].op.name + "/Assign"
                ):
                    session.run(op)
            assert_equal(session.run(names, entry["feeds"]), expected, entry)
