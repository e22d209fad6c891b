"""Graphs that TensorFlow 1.15 and Headrace build (`tf` is either), and GraphDefs that both refuse.

Python 3.7 reads this file too: see record_graphs.py.
"""


def arithmetic(tf, graph):
    """Constants, placeholders, shapes, a scope."""
    x = tf.placeholder("float32", [None, 2], name="x")
    w = tf.constant([[1.0, 2.0], [3.0, 4.0]], name="w")
    with graph.name_scope("layer"):
        y = tf.multiply(x, w, name="scaled")
        z = tf.identity(y)
    d = tf.placeholder_with_default(z, [None, None], name="d")
    tf.multiply(d, d, name="out")


def order(tf, graph):
    """Control edges, devices, colocation."""
    late, early = tf.no_op("z_last"), tf.no_op("a_first")
    with graph.device("/job:worker/task:1"), graph.device("/device:CPU:1"):
        c = tf.constant([1, 2, 3], name="c")
    with graph.control_dependencies([late, early]):
        out = tf.multiply(c, c, name="out")
    with graph.colocate_with(c):
        tf.identity(out, name="beside")


def types(tf, graph):
    """Constants of many types; scalars and empty ones."""
    for dtype in ("float64", "float16", "int8", "uint16", "int64", "complex64", "bfloat16"):
        tf.identity(tf.constant([1, 2], dtype, name=dtype))
    tf.constant(True, name="truth")
    tf.constant([[b"bytes", b"\xff"]], name="text")
    tf.constant([], "int32", name="empty")
    tf.placeholder("string", name="unknown")


def collections(graph):
    """Collections of every kind that a MetaGraphDef has, for the graph of `order`."""
    return {
        "tensors": [graph.get_tensor_by_name("c:0"), graph.get_tensor_by_name("out:0")],
        "ops": [graph.get_operation_by_name("z_last")],
        "ints": [3, 4],
        "floats": [2.5, 1],
        "texts": ["one", b"two"],
    }


GRAPHS = {f.__name__: f for f in (arithmetic, order, types)}

_X = 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }'
_T = 'attr { key: "T" value { type: DT_FLOAT } }'


def _identity(inputs="", attrs=_T, name="y"):
    return f'node {{ name: "{name}" op: "Identity" {inputs} {attrs} }}'


def _shapes(shapes):
    return (
        'node { name: "y" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } '
        'attr { key: "shape" value { shape { dim { size: 2 } } } } '
        f'attr {{ key: "_output_shapes" value {{ list {{ {shapes} }} }} }} }}'
    )


# GraphDefs in text form that no import accepts; each error says which node is wrong.
REFUSED = {
    "unknown op": 'node { name: "y" op: "Idenity" }',
    "missing attr": _X + _identity('input: "x"', ""),
    "unknown attr": _X + _identity('input: "x"', _T + ' attr { key: "foo" value { i: 1 } }'),
    "attr of a wrong kind": _X + _identity('input: "x"', 'attr { key: "T" value { i: 3 } }'),
    "attr of no value": _X + _identity('input: "x"', 'attr { key: "T" value { } }'),
    "wrong dtype": _X + _identity('input: "x"', 'attr { key: "T" value { type: DT_INT32 } }'),
    "type not allowed": 'node { name: "y" op: "Mul" input: "s" input: "s" '
    'attr { key: "T" value { type: DT_STRING } } }'
    'node { name: "s" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } } }',
    "unknown input": _identity('input: "x"'),
    "unknown control input": _X + _identity('input: "x" input: "^n"'),
    "too few inputs": _X + _identity(),
    "too many inputs": _X + _identity('input: "x" input: "x"'),
    "no such output": _X + _identity('input: "x:1"'),
    "no output index": _X + _identity('input: "x:a"'),
    "control before data": _X + _identity('input: "^x" input: "x"'),
    "cycle": _identity('input: "z"') + _identity('input: "y"', name="z"),
    "its own input": _identity('input: "y"'),
    "name twice": _identity('input: "x"') + _X + _identity('input: "x"'),
    "bad name": 'node { name: "_y" op: "NoOp" }',
    "no name": 'node { op: "NoOp" }',
    "colocated with nothing": 'node { name: "y" op: "NoOp" '
    'attr { key: "_class" value { list { s: "loc:@nope" } } } }',
    "other shapes": _shapes("shape { dim { size: 3 } }"),
    "too few shapes": _shapes(""),
    "bad device": 'node { name: "y" op: "NoOp" device: "foo bar" }',
    "newer consumer": "versions { producer: 200 min_consumer: 135 }",
    "bad consumer": "versions { producer: 134 bad_consumers: 134 }",
}
