"""Small graphs of each differentiable op, from its samples: with static shapes, with unknown first
sizes, with ranks only, with nothing known; with each of several outputs used alone.
"""

from headrace._src.core import dtypes
from headrace._src.graph.definition import definitions
from headrace._src.ops.base.samples import calls, samples_of, type_choices

SITUATIONS = ("static", "rows", "ranked", "unknown")


def situations():
    """Yield (op type, GraphDef, names of ys, names of xs)."""
    for op_type in sorted(definitions()):
        definition = definitions()[op_type]
        if not definition.has_gradient or definition.flow is not None:
            continue
        for i, sample in enumerate(samples_of(definition)):
            for types in chosen_types(definition, sample, every=i == 0):
                for situation in SITUATIONS:
                    yield from asked(definition, sample, types, situation)


def chosen_types(definition, sample, every):
    """float32 where the op takes it; for one sample also doubles, complex numbers and long axes."""
    choices = list(type_choices(definition, sample))
    best = max(choices, key=lambda types: sum(t is dtypes.float32 for t in types.values()))
    yield best
    for wanted in (dtypes.complex64, dtypes.float64, dtypes.int64) if every else ():
        rest = [
            types
            for types in choices
            if types != best
            and wanted in types.values()
            and any(t.is_floating or t.is_complex for t in types.values())
        ]
        yield from rest[:1]


def asked(definition, sample, types, situation):
    try:
        op, _ = calls(definition, sample, types, static=situation != "unknown")
    except (TypeError, ValueError):
        return  # types that don't go together
    graph = op.graph.as_graph_def()
    sources = [t for t in op.inputs if is_numeric(t) and t.op.type in ("Placeholder", "Const")]
    sources += [t for t in op.inputs if t.op.type in ("VariableV2", "VarHandleOp")]
    names = {t.op.name for t in sources}
    for node in graph.node:
        if node.name in names and node.op == "Const":
            sizes = [d.size for d in node.attr["value"].tensor.tensor_shape.dim]
            node.op = "Placeholder"
            del node.attr["value"]
            node.attr["shape"].shape.unknown_rank = False
            for size in sizes:
                node.attr["shape"].shape.dim.add().size = size
        if node.op == "Placeholder" and situation in ("rows", "ranked"):
            for axis, dim in enumerate(node.attr["shape"].shape.dim):
                if situation == "ranked" or axis == 0:
                    dim.size = -1
    ys = [t.name for t in op.outputs if is_numeric(t)]
    xs = list(dict.fromkeys(t.name for t in sources))
    if ys and xs:
        for used in [ys, ys[:1], ys[1:2]] if len(ys) > 1 else [ys]:
            yield definition.op_type, graph, used, xs


def is_numeric(t):
    dtype = t.dtype.base_dtype
    return dtype.is_floating or dtype.is_complex
