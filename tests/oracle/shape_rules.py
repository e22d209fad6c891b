"""Every op on inputs with fully, partly or not known shapes: the inferred shapes of its outputs, to
compare with TensorFlow 1.15.5 (see scripts/record_shape_rules).

A variant is a GraphDef of one operation, `op`, whose inputs are constants, placeholders or
variables. Variants come from the samples that the definitions bring for the laws.
"""

import json
import zipfile
import zlib
from pathlib import Path

import numpy as np

import headrace as tf
from headrace._src.core import proto
from headrace._src.core.tensor_proto import to_proto
from headrace._src.graph.definition import definitions
from headrace._src.ops.base.samples import calls, samples_of, type_choices

FIXTURE = Path(__file__).parent.parent / "fixtures" / "shape_rules.zip"
REFUSED = "refused"
MOST_SAMPLES = 4
PRODUCER = 134  # the version of GraphDefs that TensorFlow 1.15.5 writes


def op_types():
    """The ops that have variants: those that steer are tested by loops and branches."""
    return [t for t, d in sorted(definitions().items()) if d.flow is None and t[0] != "_"]


def variants(op_type):
    """Pairs (what is known, the GraphDef's bytes)."""
    definition = definitions()[op_type]
    found = {}
    for sample in samples_of(definition)[:MOST_SAMPLES]:
        op, arrays = calls(definition, sample, next(type_choices(definition, sample)))
        for label, sources in _sources(op, arrays):
            found.setdefault(_graph_def(op, sources), f"{sample}: {label}")
    return [(label, data) for data, label in found.items()]


def _sources(op, arrays):
    """The nodes that the operation takes its inputs from, in each of the ways to try."""
    nodes = {n.name: n for n in op.graph.as_graph_def().node}
    makers = [nodes[t.op.name] for t in op.inputs]
    known = [np.shape(a) for a in arrays]

    def source(i, sizes, constant=False):
        return _source(i, op.inputs[i].dtype, makers[i], arrays[i] if constant else None, sizes)

    literal = [n.op == "Const" for n in makers]
    each = range(len(arrays))
    usual = [source(i, known[i], literal[i]) for i in each]
    yield "constants", [source(i, known[i], True) for i in each]
    yield "shapes", [source(i, known[i]) for i in each]
    yield "ranks", [source(i, (None,) * len(known[i])) for i in each]
    yield "nothing", [source(i, None) for i in each]
    for i in each:
        for sizes in _less_known(known[i]):
            changed = source(i, sizes)
            yield f"input {i}: {sizes}", [changed if k == i else n for k, n in enumerate(usual)]


def _less_known(sizes):
    yield tuple(sizes)
    yield (None,) * len(sizes)
    yield None
    for i in range(len(sizes)):
        yield tuple(None if k == i else n for k, n in enumerate(sizes))
        yield tuple(n if k == i else None for k, n in enumerate(sizes))


def _source(index, dtype, maker, array, sizes):
    node = proto.NodeDef()
    if maker.op not in ("Const", "Placeholder"):  # a variable
        node.CopyFrom(maker)
        del node.input[:]
    else:
        node.op = "Placeholder" if array is None else "Const"
        node.attr["dtype"].type = dtype.as_datatype_enum
    node.name = f"input_{index}"
    if node.op == "Const":
        node.attr["value"].tensor.CopyFrom(to_proto(array, dtype))
    else:
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
    return node


def _graph_def(op, sources):
    graph_def = proto.GraphDef(node=sources)
    graph_def.versions.producer = PRODUCER
    node = graph_def.node.add()
    node.CopyFrom(op.node_def)
    node.name = "op"
    node.attr.pop("_class", None)
    del node.input[:]
    node.input.extend(n.name for n in sources)
    return graph_def.SerializeToString(deterministic=True)


def inferred(data):
    """The static shapes of the operation's outputs, as text."""
    with tf.Graph().as_default() as graph:
        try:
            tf.import_graph_def(proto.GraphDef.FromString(data), name="")
        except (ValueError, TypeError):
            return REFUSED
        return " ".join(str(t.shape) for t in graph.get_operation_by_name("op").outputs)


def key(data):
    return f"{zlib.crc32(data):08x}"


def recorded():
    """What TensorFlow infers, by the `key` of a variant."""
    with zipfile.ZipFile(FIXTURE) as archive:
        return json.loads(archive.read("shapes.json"))
