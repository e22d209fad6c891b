"""Control-flow contexts: what MetaGraphDefs say of them, and what may not cross their borders."""

import base64
import json
from pathlib import Path

import pytest

import headrace as tf
from headrace.core import proto
from tests.oracle import cases_control_flow  # noqa: F401
from tests.oracle.case import CASES

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "contexts.json").read_text())
MESSAGES = {"cond_context": proto.CondContextDef, "while_context": proto.WhileContextDef}


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
