"""Names, scopes, control dependencies, devices and colocation: the same nodes as TensorFlow's."""

from tests.oracle.case import case


@case
def control_dominance(tf):
    a, b = tf.no_op("a"), tf.no_op("b")
    with tf.control_dependencies([a]):
        c = tf.constant(1.0, name="c")
        with tf.control_dependencies([b, a]):
            d = tf.identity(c, name="d")
            e = tf.constant(2.0, name="e")
            f = tf.add(d, e, name="f")
        h = tf.identity(f, name="h")
        with tf.control_dependencies(None):
            i = tf.identity(h, name="i")
            with tf.control_dependencies([i]):
                tf.no_op("j")
        return tf.identity(i, name="k")


@case
def control_duplicates(tf):
    a = tf.constant(1.0, name="a")
    with tf.control_dependencies([a, a.op, a]), tf.control_dependencies([a]):
        tf.no_op("n")
        return tf.identity(a), tf.identity(2.0)


@case
def control_on_composites(tf):
    v = tf.Variable(1.0, name="v")
    r = tf.Variable(1.0, name="r", use_resource=True)
    values = tf.constant([1.0])
    slices = tf.IndexedSlices(values, tf.constant([0]))
    with tf.control_dependencies([v, r, slices]):
        return tf.constant(3.0)


@case
def nested_devices(tf):
    with tf.device("/job:localhost"):
        tf.no_op("a")
        with tf.device("/cpu:0"):
            tf.no_op("b")
            with tf.device(None):
                tf.no_op("c")
            with tf.device(lambda op: "/task:0" if op.type == "NoOp" else op.device):
                tf.no_op("d")
                e = tf.constant(1, name="e")
            with tf.device(""):
                tf.no_op("f")
            with tf.device("/job:localhost/cpu:*"):
                tf.no_op("h")
            with tf.device(tf.DeviceSpec(replica=0, task=0)):
                tf.no_op("j")
            with tf.device(lambda op: op.device or "/cpu:0"):
                tf.no_op("l")
            with tf.device(tf.DeviceSpec()):
                tf.no_op("m")
    return e


@case
def colocation(tf):
    g = tf.get_default_graph()
    with tf.device("/cpu:0"):
        a = tf.no_op("a")
    with tf.device("/job:localhost/cpu:0"):
        b = tf.no_op("b")
    c = tf.no_op("c")
    with g.colocate_with(a):
        tf.no_op("d")
        with g.colocate_with(b):
            e = tf.no_op("e")
            with tf.device("/task:0"):
                tf.no_op("f")
            with g.colocate_with(c, ignore_existing=True):
                tf.no_op("g")
            with g.colocate_with(None, ignore_existing=True):
                tf.no_op("h")
        with tf.device("/task:0"):
            tf.no_op("i")
    with tf.device("/replica:0"):
        with g.colocate_with(c):
            tf.no_op("j")
        with g.colocate_with(e):
            tf.no_op("k")
        with g.colocate_with(None, ignore_existing=True):
            tf.no_op("l")
    with tf.device("/cpu:0"), g.colocate_with(c), tf.device("/task:0"):
        tf.no_op("m")
    return tf.constant(1)


@case
def colocation_with_variables(tf):
    with tf.device("/cpu:0"):
        v = tf.Variable(1.0, name="v")
        r = tf.Variable(1.0, name="r", use_resource=True)
    with tf.colocate_with(v):
        tf.no_op("a")
    with tf.colocate_with(v.op):
        tf.no_op("b")
    with tf.colocate_with(r):
        tf.no_op("c")
    with tf.colocate_with(v, True):
        return tf.constant(2.0, name="d")


@case
def scopes(tf):
    with tf.name_scope("a"):
        tf.no_op("x")
        tf.no_op("x")
        with tf.name_scope("x"):
            tf.no_op()
        with tf.name_scope(""):
            tf.no_op("z")
        with tf.name_scope(None):
            tf.no_op("z")
        with tf.name_scope("q/"):
            tf.no_op("z")
    with tf.name_scope("A"):
        tf.no_op("X")
    with tf.name_scope("c/d"):
        tf.no_op("X")
    with tf.name_scope("c/"):
        tf.no_op("d")
    with tf.name_scope("c/d/"):
        tf.no_op("d")
    for name in ("n_1", "n", "n", "n", "n_1", "N"):
        tf.no_op(name)
    with tf.name_scope(None, "default", [tf.constant(1)]) as scope:
        return tf.constant(1, name=scope)


@case
def gradient_overrides(tf):
    g = tf.get_default_graph()
    with g.gradient_override_map({"Identity": "Foo"}):
        i = tf.identity(1.0, name="i")
        with g.gradient_override_map({"Identity": "Bar", "Neg": "Baz"}):
            j = tf.identity(1.0, name="j")
            tf.negative(j)
        return i, tf.identity(1.0, name="k")


@case
def containers(tf):
    g = tf.get_default_graph()
    with g.container("box"):
        v = tf.Variable(1.0, name="v")
        r = tf.Variable(1.0, name="r", use_resource=True)
        with tf.container("inner"):
            w = tf.get_variable("w", initializer=2.0)
        tf.constant(1)
    return v.value(), r.value(), w.value()


@case
def group_on_devices(tf):
    with tf.device("/cpu:0"):
        a, a2 = tf.no_op("a"), tf.no_op("a2")
    with tf.device("/job:localhost"):
        b = tf.constant(1, name="b")
    c = tf.no_op("c")
    tf.group(a, b, a2, c, name="grp")
    tf.group(a, a2)
    tf.group()
    tf.group([a, [b]], a)
    tf.group({"x": a, "w": c})
    return tf.constant(2)


@case
def tuples(tf):
    with tf.device("/cpu:0"):
        a = tf.constant(1.0, name="a")
    b = tf.constant(2.0, name="b")
    v = tf.Variable(3.0, name="v")
    n = tf.no_op("n")
    first = tf.tuple([a, None, b, v], control_inputs=[n, a])
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    return first, tf.tuple([b, slices], name="named")


@case
def exceptions_close_scopes(tf):
    g = tf.get_default_graph()
    a = tf.no_op("a")
    try:
        with tf.name_scope("n"), tf.control_dependencies([a]), g.colocate_with(a), g.container("c"):
            raise KeyError("x")
    except KeyError:
        tf.no_op("b")
    return tf.constant(1.0)


@case
def the_graph_of_the_inputs(tf):
    a = tf.constant(1.0, name="a")
    with tf.Graph().as_default():
        return a + 1.0, tf.stack([a, a])


@case
def jit_scopes(tf):
    with tf.xla.experimental.jit_scope():
        x = tf.constant([1.0, 2.0]) + 1.0
        with tf.xla.experimental.jit_scope(separate_compiled_gradients=True):
            x = x * 2.0
    with tf.xla.experimental.jit_scope(compile_ops=False):
        return tf.square(x)
