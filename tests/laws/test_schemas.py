"""The schema of every op is TensorFlow 1.15's OpDef of that name, which makes GraphDefs
interchangeable. The OpDefs were recorded by scripts/record_schemas.py.
"""

import functools
import gzip
import inspect
from pathlib import Path

import pytest

from headrace._src.core import dtypes, proto
from headrace._src.core.tensor_proto import to_array
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Effect, definitions
from headrace._src.graph.schema import MISSING
from headrace._src.ops.base.define import b

FIXTURE = Path(__file__).parent.parent / "fixtures" / "ops115.pb.gz"


@functools.cache
def recorded():
    return {op.name: op for op in proto.OpList.FromString(gzip.decompress(FIXTURE.read_bytes())).op}


# Ops that TensorFlow has no name for: counts of late gradients, Horovod's ops, and two for the
# gradients of these.
OURS: set[str] = {
    "AccumulatorNumDropped",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodBroadcast",
    "HorovodGroupedAllreduce",
    "HorovodRank",
    "HorovodSize",
    "ResourceAccumulatorNumDropped",
}

# Where our effect is not what TensorFlow's `is_stateful` says, and why.
EFFECTS_DIFFER = {
    "FractionalAvgPool": "draws random numbers",
    "FractionalMaxPool": "draws random numbers",
    "MatchingFiles": "the files may change between steps",
    "ReadFile": "the file may change between steps",
    "PyFuncStateless": "a user's function must not be called while a graph is built",
}
BY_PLACE = (
    "Concat",
    "ConcatLists",
    "ConcatV2",
    "ElementShape",
    "FromTensor",
    "Gather",
    "GetItem",
    "Length",
    "PopBack",
    "PushBack",
    "PushBackBatch",
    "Reserve",
    "Scatter",
    "ScatterIntoExistingList",
    "ScatterV2",
    "SetItem",
    "Split",
    "Stack",
)
LISTS = ("EmptyTensorList", *(f"TensorList{name}" for name in BY_PLACE))
LISTS += tuple(f"Optional{name}" for name in ("FromValue", "GetValue", "HasValue", "None"))
ON_ROWS = ("Close", "Concat", "Gather", "Read", "Scatter", "Size", "Split", "Write")
LISTS += tuple(f"TensorArray{name}V2" for name in ON_ROWS)
EFFECTS_DIFFER |= dict.fromkeys(LISTS, "a list lives in one step, and is no constant of a graph")


def theirs(argument):
    return (
        argument.name,
        dtypes.as_dtype(argument.type).name if argument.type else "",
        argument.type_attr,
        argument.number_attr,
        argument.type_list_attr,
        argument.is_ref,
    )


def ours(argument):
    return (
        argument.name,
        argument.dtype.name if argument.dtype else "",
        argument.type_attr,
        argument.number_attr,
        argument.type_list_attr,
        argument.is_ref,
    )


def plain(value, kind):
    """A value of an OpDef as the schema holds it."""
    if kind.startswith("list("):
        element = kind[5:-1]
        field = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type"}.get(element)
        items = getattr(value.list, field or element)
        return tuple(_plain(item, element) for item in items)
    field = {"string": "s", "int": "i", "float": "f", "bool": "b"}.get(kind, kind)
    return _plain(getattr(value, field), kind)


def _plain(item, kind):
    if kind == "string":
        return item.decode()
    if kind == "type":
        return dtypes.as_dtype(item)
    if kind == "shape":
        return repr(TensorShape(item))
    if kind == "tensor":
        return repr(to_array(item))
    return item


def test_builders_take_inputs_and_attributes():
    schemas = {op_type: definition.schema for op_type, definition in definitions().items()}
    builders = [f for f in vars(b).values() if hasattr(f, "definition")]
    assert len(builders) > 600
    for builder in builders:
        schema = schemas[builder.definition.op_type]
        known = {a.name for a in schema.inputs} | set(schema.attributes) | {"name"}
        assert set(inspect.signature(builder).parameters) <= known, schema.op_type


def test_all_ops_are_recorded():
    assert len(recorded()) > 1000


@pytest.mark.parametrize("op_type", sorted(set(definitions()) - OURS))
def test_schema_is_tensorflows(op_type):
    schema, expected = definitions()[op_type].schema, recorded()[op_type]
    assert [ours(a) for a in schema.inputs] == [theirs(a) for a in expected.input_arg]
    assert [ours(a) for a in schema.outputs] == [theirs(a) for a in expected.output_arg]
    assert set(schema.attributes) == {a.name for a in expected.attr}
    for wanted in expected.attr:
        attribute = schema.attributes[wanted.name]
        assert attribute.kind == wanted.type, wanted.name
        assert attribute.minimum == (wanted.minimum if wanted.has_minimum else None), wanted.name
        default = attribute.default
        if attribute.kind in ("shape", "tensor") and default is not MISSING:
            default = repr(default)
        has_default = wanted.HasField("default_value")
        found = plain(wanted.default_value, wanted.type) if has_default else MISSING
        assert default == found, f"default of {wanted.name}"
        allowed = None if attribute.allowed is None else set(attribute.allowed)
        restricted = wanted.HasField("allowed_values")
        choices = plain(wanted.allowed_values, f"list({attribute.element})") if restricted else None
        assert allowed == (None if choices is None else set(choices)), f"choices of {wanted.name}"


@pytest.mark.parametrize("op_type", sorted(set(definitions()) - OURS))
def test_effect_is_tensorflows(op_type):
    definition, expected = definitions()[op_type], recorded()[op_type]
    assert definition.commutative == expected.is_commutative
    takes_refs = any(a.is_ref for a in expected.input_arg)
    stateful = expected.is_stateful or takes_refs
    if definition.flow is not None:
        assert definition.effect is Effect.PURE  # what steers a reference leaves it alone
    elif op_type in EFFECTS_DIFFER:
        assert (definition.effect is not Effect.PURE) != stateful, "no longer an exception"
    else:
        assert (definition.effect is not Effect.PURE) == stateful
    assert definition.accepts_uninitialized == expected.allows_uninitialized_input
