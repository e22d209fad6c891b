"""Cases that run under TensorFlow 1.15.5 and under Headrace alike. This file and the cases must
stay valid Python 3.7.

A case is a function of `tf` that builds a small graph and returns what to fetch: a tensor, an
operation's tensors, or any nesting of lists, tuples and dicts. scripts/record_oracle runs the cases
under TensorFlow and keeps results and graphs.
"""

CASES = {}


def case(function=None, graph=True, feeds=None, rtol=1e-5, atol=1e-6, imports=True, tables=False):
    """Register a case.

    graph: whether our nodes must equal TensorFlow's. imports: whether TensorFlow's graph can run
    here (not if it branches with Switch and Merge). feeds: {tensor name: value}. tables: whether
    lookup tables have to be initialized before the step.
    """

    def register(f):
        key = f.__module__.rpartition(".")[2] + "." + f.__name__
        assert key not in CASES, key
        CASES[key] = {
            "build": f,
            "graph": graph,
            "imports": imports,
            "tables": tables,
            "feeds": feeds or {},
            "rtol": rtol,
            "atol": atol,
        }
        return f

    return register if function is None else register(function)


def flatten(value):
    """The leaves of a nesting, in order; dicts by sorted key; composites by their parts."""
    if value is None:
        return []
    if hasattr(value, "dense_shape") and hasattr(value, "values") and not isinstance(value, dict):
        parts = [value.values, value.indices, value.dense_shape]
        return [p for p in parts if p is not None]
    if hasattr(value, "nested_row_splits"):
        return [value.flat_values, *value.nested_row_splits]
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in flatten(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in flatten(v)]
    return [value]


def static_shapes(graph):
    """What `tensor.shape` says of every tensor, as text: a line per operation in the order of the
    graph, its outputs' shapes separated by blanks ("[2,?]" for (2, ?), "*" for an unknown rank).
    """
    return "\n".join(" ".join(map(_show, op.outputs)) for op in graph.get_operations())


def _show(tensor):
    if tensor.shape.ndims is None:
        return "*"
    sizes = ",".join("?" if n is None else str(n) for n in tensor.shape.as_list())
    return f"[{sizes}]"


def run(tf, entry):
    """Build and run one case; returns (names of the fetched tensors, their values, the GraphDef's
    bytes, the static shapes of the graph's tensors).
    """
    with tf.Graph().as_default() as g:
        leaves = flatten(entry["build"](tf))
        leaves = [leaf if hasattr(leaf, "op") else tf.convert_to_tensor(leaf) for leaf in leaves]
        leaves = [getattr(leaf, "_as_graph_element", lambda t=leaf: t)() for leaf in leaves]
        definition = g.as_graph_def().SerializeToString()
        shapes = static_shapes(g)
        names = [leaf.name for leaf in leaves]
        with tf.Session(graph=g) as session:
            initializers = [v.initializer for v in tf.global_variables() + tf.local_variables()]
            for initializer in initializers:
                session.run(initializer)
            if entry["tables"]:
                session.run(tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS))
            values = session.run(leaves, entry["feeds"])
    return names, values, definition, shapes
