"""Gradients count as many operations as TensorFlow 1.15.5 makes for them, so that random operations
built after them get the same seeds. scripts/record_gradient_counts recorded TensorFlow's numbers.
"""

import base64
import functools
import gzip
import json
from pathlib import Path

import pytest

import headrace as tf
from headrace._src.core import proto
from headrace._src.graph.definition import definitions
from headrace._src.ops.base.samples import samples_of
from tests.laws.flow_cases import CASES, count, count_twice

FIXTURE = Path(__file__).parent.parent / "fixtures" / "gradient_counts.json.gz"


@functools.cache
def recorded(part):
    return json.loads(gzip.decompress(FIXTURE.read_bytes()))[part]


# Where TensorFlow builds a gradient that we refuse, or the sample's types don't go together.
REFUSED = {"CTCLoss": "LookupError", "Complex": "ValueError", "Imag": "ValueError"}
REFUSED["Real"] = "ValueError"

# Ops whose gradient takes fewer operations here, and why.
FEWER = {
    "RGBToHSV": "one formula for the three channels, not one for each of their orders",
    "RaggedGather": "one gather of the rows' numbers, and one sum of their gradients",
}


def test_every_differentiable_op_is_recorded():
    differentiable = {
        op_type
        for op_type, definition in definitions().items()
        if definition.has_gradient and definition.flow is None and samples_of(definition)
    }
    assert differentiable - set(recorded("ops")) == set()


@pytest.mark.parametrize("op_type", sorted(recorded("ops")))
def test_an_op(op_type):
    for request in recorded("ops")[op_type]:
        if request["counts"] is None:
            continue  # TensorFlow has no gradient here
        graph = proto.GraphDef.FromString(base64.b64decode(request["graph"]))
        try:
            found = count_twice(tf, graph, request["ys"], request["xs"])
        except (LookupError, ValueError) as error:
            assert type(error).__name__ == REFUSED.get(op_type)
            continue
        shapes = [str(n.attr["shape"].shape) for n in graph.node if n.op == "Placeholder"]
        if op_type in FEWER:
            assert found[0] < request["counts"][0], FEWER[op_type]
        else:
            assert found == request["counts"], (request["ys"], shapes)


@pytest.mark.parametrize("name", sorted(CASES))
def test_loops_and_branches(name):
    assert [count(tf, name, gate) for gate in (False, True)] == recorded("flow")[name]
