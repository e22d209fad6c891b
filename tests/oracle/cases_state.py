"""Variables, scopes, initializers and the ops that change state."""

import numpy as np

from tests.oracle.case import case


def after(tf, op, variable):
    """The variable's value once `op` has run."""
    with tf.control_dependencies([op]):
        return variable.read_value()


def both(function, **options):
    """Register a case twice: with reference and with resource variables."""

    def ref(tf):
        return function(tf, False)

    def resource(tf):
        return function(tf, True)

    ref.__name__ = function.__name__ + "_ref"
    resource.__name__ = function.__name__ + "_resource"
    ref.__module__ = resource.__module__ = function.__module__
    case(ref, **options)
    case(resource, **options)
    return function


# -- tf.Variable -----------------------------------------------------------------------------------


@both
def variable_from_list(tf, use_resource):
    return tf.Variable([1.0, 2.0], name="v", use_resource=use_resource)


@both
def variable_from_function(tf, use_resource):
    v = tf.Variable(lambda: tf.constant([1.0, 2.0]), name="v", use_resource=use_resource)
    w = tf.Variable(lambda: [1, 2], dtype=tf.float64, use_resource=use_resource)
    return [v, w]


@both
def variable_from_tensor(tf, use_resource):
    with tf.name_scope("outer"):
        v = tf.Variable(tf.zeros([2]), use_resource=use_resource)
        w = tf.Variable(tf.ones([2]), name="w", trainable=False, use_resource=use_resource)
    return [v + 1.0, 2.0 * w, w / v.read_value(), -v, v > w]


@both
def variable_of_unknown_shape(tf, use_resource):
    return tf.Variable([1.0, 2.0], validate_shape=False, use_resource=use_resource)


@both
def variable_devices(tf, use_resource):
    with tf.device("/cpu:0"):
        v = tf.Variable(1, use_resource=use_resource)
        w = tf.Variable(lambda: 1, use_resource=use_resource)
    u = tf.Variable(1, caching_device="/cpu:0", use_resource=use_resource)
    return [v + 1, w + 1, u + 1]


@both
def variable_under_control(tf, use_resource):
    c = tf.constant(1.0)
    with tf.control_dependencies([c]):
        v = tf.Variable(2.0, use_resource=use_resource)
        return v + 1.0


@both
def variable_operators(tf, use_resource):
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=use_resource)
    i = tf.Variable([5, 6], use_resource=use_resource)
    p = tf.Variable([True, False], use_resource=use_resource)
    out = [v + v, v - 1.0, 1.0 - v, v * v, v / 2.0, 2.0 / v, v**2.0, 2.0**v, v @ v, abs(v)]
    out += [i // 4, 17 // i, i % 4, 17 % i, v < 2.0, v <= 2.0, v >= 2.0, ~p, p & p, p | p, p ^ p]
    return out + [v[0], v[:, 1:], v[..., tf.newaxis], v[tf.constant([True, False])]]


@both
def variable_as_argument(tf, use_resource):
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=use_resource)
    return [tf.identity(v), tf.reduce_sum(v), tf.matmul(v, v), tf.convert_to_tensor(v), tf.shape(v)]


@both
def variable_initializers(tf, use_resource):
    v = tf.Variable([1.0], use_resource=use_resource)
    w = tf.Variable([1.0], collections=[tf.GraphKeys.LOCAL_VARIABLES], use_resource=use_resource)
    ops = [tf.global_variables_initializer(), tf.local_variables_initializer()]
    ops += [tf.variables_initializer([v, w], "both"), tf.variables_initializer([])]
    return [v, w, tf.is_variable_initialized(v)]


@case
def report_uninitialized(tf):
    tf.Variable(1.0, name="v")
    tf.Variable(1.0, name="w", use_resource=True)
    return tf.report_uninitialized_variables()


@case
def report_no_variables(tf):
    return tf.report_uninitialized_variables()


@case
def assert_initialized(tf):
    tf.Variable(1.0)
    tf.Variable([2.0])
    return tf.assert_variables_initialized()


@case(graph=False)  # TensorFlow reads each variable a second time, for nothing
def assert_initialized_resource(tf):
    tf.Variable(1.0, use_resource=True)
    tf.Variable([2.0], use_resource=True)
    return tf.assert_variables_initialized()


@both
def in_a_container(tf, use_resource):
    with tf.container("box"):
        return tf.Variable(1.0, name="contained", use_resource=use_resource)


# -- Assignments -----------------------------------------------------------------------------------


@both
def assign_method(tf, use_resource):
    return tf.Variable([1.0, 2.0], use_resource=use_resource).assign([3, 4])


@both
def assign_add_method(tf, use_resource):
    return tf.Variable([1.0, 2.0], use_resource=use_resource).assign_add([3, 4])


@both
def assign_sub_operation(tf, use_resource):
    v = tf.Variable([1.0, 2.0], name="v", use_resource=use_resource)
    return after(tf, v.assign_sub([3, 4], read_value=False, name="minus"), v)


@both
def assign_functions(tf, use_resource):
    v = tf.Variable([1.0, 2.0], name="v", use_resource=use_resource)
    a = tf.assign(v, [3, 4], name="set")
    with tf.control_dependencies([a]):
        b = tf.assign_add(v, [1, 1], use_locking=True)
    with tf.control_dependencies([b]):
        return tf.assign_sub(v, [0.5, 0.5])


@both
def assign_then_use(tf, use_resource):
    v = tf.Variable([1.0, 2.0], name="v", use_resource=use_resource)
    changed = v.assign([5.0, 6.0])
    return changed + 1.0


@case
def assign_another_shape(tf):
    v = tf.Variable([1.0, 2.0], validate_shape=False)
    return tf.assign(v, [[1.0]], validate_shape=False)


@both
def assign_strings(tf, use_resource):
    return tf.Variable(["a", "b"], use_resource=use_resource).assign(["c", "d"])


@both
def count(tf, use_resource):
    i = tf.Variable(3, name="i", use_resource=use_resource)
    j = tf.Variable(np.int64(3), name="j", use_resource=use_resource)
    return [i.count_up_to(5), tf.count_up_to(j, 7)]


@both
def assign_slices(tf, use_resource):
    v = tf.Variable(np.arange(12.0).reshape(3, 4), name="v", use_resource=use_resource)
    a = v[1:, ::2].assign([[-1.0, -2.0], [-3.0, -4.0]])
    with tf.control_dependencies([a]):
        b = v[0].assign([7.0, 8.0, 9.0, 10.0])
    with tf.control_dependencies([b]):
        c = v[2, ::-1].assign([1.0, 2.0, 3.0, 4.0])
    with tf.control_dependencies([c]), tf.name_scope("inner"):
        return v[tf.newaxis, ..., 3].assign([[20.0, 21.0, 22.0]])


# -- Scattering ------------------------------------------------------------------------------------


def scatter(name, dtype=np.float32):
    def build(tf, use_resource):
        start = np.array([[8, 6], [4, 9], [7, 5], [3, 2]], dtype)
        v = tf.Variable(start, name="v", use_resource=use_resource)
        updates = np.array([[2, 3], [4, -2], [1, 2]], dtype)
        return getattr(tf, "scatter_" + name)(v, [1, 3, 0], updates)

    build.__name__ = f"scatter_{name}_{np.dtype(dtype).name}"
    build.__module__ = __name__
    both(build)


for _name in ("update", "add", "sub", "mul", "div", "min", "max"):
    for _dtype in (np.float32, np.int32):
        scatter(_name, _dtype)


def scatter_repeated(name, dtype):
    def build(tf, use_resource):
        v = tf.Variable(np.array([80, -77, 66, 55], dtype), name="v", use_resource=use_resource)
        indices = np.array([[1, 3, 1], [1, 0, 3]])
        return getattr(tf, "scatter_" + name)(v, indices, np.array([[2, 3, 4], [-3, 2, 2]], dtype))

    build.__name__ = f"scatter_repeated_{name}_{np.dtype(dtype).name}"
    build.__module__ = __name__
    both(build)


for _name in ("update", "add", "sub", "mul", "div", "min", "max"):
    for _dtype in (np.float64, np.int64):
        scatter_repeated(_name, _dtype)


@both
def scatter_a_scalar(tf, use_resource):
    v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=use_resource)
    return tf.scatter_add(v, [0, 0], 2.0)


@both
def scatter_nothing(tf, use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    return tf.scatter_add(v, np.zeros([0], np.int32), np.zeros([0], np.float32))


@both
def scatter_methods(tf, use_resource):
    v = tf.Variable([1.0, 2.0, 3.0], name="v", use_resource=use_resource)
    rows = tf.IndexedSlices(tf.constant([5.0, 6.0]), tf.constant([2, 0]))
    names = ("add", "sub", "update", "mul", "div", "min", "max")
    last = v
    for name in names:
        with tf.control_dependencies([last.op]):
            last = getattr(v, "scatter_" + name)(rows)
    return last


@both
def scatter_nd_functions(tf, use_resource):
    v = tf.Variable(np.arange(12.0).reshape(3, 2, 2), name="v", use_resource=use_resource)
    last = v
    for function in (tf.scatter_nd_update, tf.scatter_nd_add, tf.scatter_nd_sub):
        with tf.control_dependencies([last.op]):
            last = function(v, [[0, 1], [2, 0]], [[1.0, 2.0], [3.0, 4.0]])
    with tf.control_dependencies([last.op]):
        return tf.scatter_nd_add(v, [[[1, 0, 1], [1, 0, 1]]], [[10.0, 20.0]])


@both
def scatter_nd_methods(tf, use_resource):
    v = tf.Variable([1.0, 2.0, 3.0], name="v", use_resource=use_resource)
    last = v
    for name in ("add", "sub", "update"):
        with tf.control_dependencies([last.op]):
            last = getattr(v, "scatter_nd_" + name)([[2], [0]], [5.0, 6.0])
    return last


@both
def batch_scatter(tf, use_resource):
    v = tf.Variable(np.zeros([2, 3, 2]), use_resource=use_resource)
    return tf.batch_scatter_update(v, [[0, 1], [1, 2]], np.ones([2, 2, 2]))


@both
def batch_scatter_rows(tf, use_resource):
    v = tf.Variable([0.0, 0.0], use_resource=use_resource)
    return tf.batch_scatter_update(v, [1], [5.0])


@case
def sparse_reads(tf):
    v = tf.Variable(np.arange(12.0).reshape(3, 4), use_resource=True)
    return [v.sparse_read([[2, 0]]), v.gather_nd([[1, 2], [0, 3]]), v.gather_nd([[1]], name="nd")]


# -- Gradients -------------------------------------------------------------------------------------


def gradients(function):
    return both(function, graph=False)


@gradients
def gradient_of_product(tf, use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    w = tf.Variable([3.0, 5.0], use_resource=use_resource)
    return tf.gradients(tf.reduce_sum(v * w * v), [v, w])


@gradients
def gradient_of_gather(tf, use_resource):
    v = tf.Variable(np.arange(6.0).reshape(3, 2), use_resource=use_resource)
    rows = tf.gather(v, [[2, 0], [2, 1]])
    return tf.convert_to_tensor(tf.gradients(rows * rows, v)[0])


@case(graph=False)
def gradient_of_sparse_reads(tf):
    v = tf.Variable(np.arange(12.0).reshape(3, 4), use_resource=True)
    a = v.sparse_read([1, 1, 2])
    b = v.gather_nd([[1, 2], [0, 3], [1, 2]])
    first = tf.convert_to_tensor(tf.gradients(a * a, v)[0])
    return [first, tf.gradients(b * b, v)[0]]


# -- tf.get_variable -------------------------------------------------------------------------------


@both
def get_float(tf, use_resource):
    tf.set_random_seed(5)
    return tf.get_variable("w", [2, 3], use_resource=use_resource)


@both
def get_other_types(tf, use_resource):
    names = ["int32", "bool", "string", "float64"]
    tf.set_random_seed(5)
    return [tf.get_variable(n, [2], getattr(tf, n), use_resource=use_resource) for n in names]


@both
def get_from_values(tf, use_resource):
    a = tf.get_variable("a", initializer=[1.0, 2.0], use_resource=use_resource)
    b = tf.get_variable("b", initializer=tf.constant([1, 2]), use_resource=use_resource)
    c = tf.get_variable("c", initializer=3.0, use_resource=use_resource)
    d = tf.get_variable("d", dtype=tf.float32, initializer=[1.0], use_resource=use_resource)
    e = tf.get_variable("e", initializer=lambda: tf.zeros([2]), use_resource=use_resource)
    return [a, b, c, d, e]


@both
def get_with_initializers(tf, use_resource):
    a = tf.get_variable("a", [2], initializer=tf.zeros_initializer, use_resource=use_resource)
    b = tf.get_variable("b", [2], initializer=tf.ones_initializer(), use_resource=use_resource)
    c = tf.get_variable(
        "c",
        [2],
        initializer=lambda shape, dtype, partition_info: tf.fill(shape, tf.cast(3, dtype)),
        use_resource=use_resource,
    )
    return [a, b, c]


@both
def get_regularized(tf, use_resource):
    ones = tf.ones_initializer()

    def square(t):
        return tf.reduce_sum(t * t)

    with tf.variable_scope("s", regularizer=square, initializer=ones, use_resource=use_resource):
        tf.get_variable("a", [2])
        tf.get_variable("b", [2], regularizer=tf.no_regularizer)
        tf.get_variable("c", [3], regularizer=lambda t: tf.reduce_sum(t))
    return tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)


@both
def get_in_scopes(tf, use_resource):
    ones = tf.ones_initializer()
    out = []
    with tf.variable_scope("a", use_resource=use_resource, initializer=ones) as scope:
        out.append(tf.get_variable("v", [1]))
        with tf.variable_scope("b", dtype=tf.float64):
            out += [tf.get_variable("u", [1]), tf.constant(1.0)]
        with tf.variable_scope(scope, reuse=True):
            out += [tf.get_variable("v", [1]), tf.constant(1.0)]
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE, use_resource=use_resource):
        out += [tf.get_variable("v"), tf.get_variable("z", initializer=[2.0]), tf.constant(1.0)]
    for _ in range(2):
        with tf.variable_scope(None, "default", use_resource=use_resource, initializer=ones):
            out.append(tf.get_variable("h", [1]))
    with tf.name_scope("n"), tf.variable_scope("x/y", use_resource=use_resource, initializer=ones):
        out += [tf.get_variable("h", [1]), tf.Variable(1.0), tf.constant(1.0)]
    with tf.variable_scope(scope, auxiliary_name_scope=False):
        out.append(tf.constant(1.0))
    return out


@both
def get_with_custom_getters(tf, use_resource):
    def twice(getter, name, *args, **kwargs):
        return getter(name, *args, **kwargs) * 2.0

    def renamed(getter, name, *args, **kwargs):
        return getter(name + "_renamed", *args, **kwargs)

    ones = tf.ones_initializer()
    with tf.variable_scope("s", custom_getter=twice, initializer=ones, use_resource=use_resource):
        a = tf.get_variable("a", [1])
        with tf.variable_scope("t", custom_getter=renamed):
            return [a, tf.get_variable("b", [1])]


@both
def get_cached(tf, use_resource):
    with tf.variable_scope("s", caching_device="/cpu:0", use_resource=use_resource):
        return tf.get_variable("w", initializer=[1.0]) + 1.0


@both
def get_local(tf, use_resource):
    v = tf.get_local_variable("l", initializer=[1.0], use_resource=use_resource)
    return [v] + tf.local_variables() + tf.trainable_variables()


@both
def get_under_control(tf, use_resource):
    with tf.control_dependencies([tf.constant(1.0)]):
        ones = tf.ones_initializer()
        return tf.get_variable("v", [1], initializer=ones, use_resource=use_resource)


# -- Partitioned variables -------------------------------------------------------------------------


@both
def partitioned(tf, use_resource):
    tf.set_random_seed(3)
    split = tf.fixed_size_partitioner(3)
    w = tf.get_variable("w", [5, 2], partitioner=split, use_resource=use_resource)
    return [tf.convert_to_tensor(w)] + list(w)


@both
def partitioned_by_columns(tf, use_resource):
    split = tf.fixed_size_partitioner(2, axis=1)
    value = tf.constant(np.arange(6.0).reshape(2, 3))
    with tf.variable_scope("s", partitioner=split, use_resource=use_resource):
        w = tf.get_variable("w", initializer=value)
        u = tf.get_variable("u", [1, 4], initializer=tf.constant_initializer(2.0))
        one = tf.get_variable("one", [2, 1], initializer=tf.zeros_initializer())
        scalar = tf.get_variable("scalar", [], initializer=tf.zeros_initializer())
    return [tf.identity(w), tf.identity(u), tf.identity(one), scalar]


@both
def partitioned_assign(tf, use_resource):
    split = tf.fixed_size_partitioner(2)
    zeros = tf.zeros_initializer()
    w = tf.get_variable("w", [3], initializer=zeros, partitioner=split, use_resource=use_resource)
    return w.assign(tf.constant([1.0, 2.0, 3.0]))


@case
def partitioned_old(tf):
    a = tf.create_partitioned_variables([4, 2], [2, 1], tf.zeros_initializer(), name="p")
    b = tf.create_partitioned_variables([4, 2], [1, 2], tf.ones([4, 2]))
    return a + b


# -- Initializers ----------------------------------------------------------------------------------


def initializer(name, make, shapes=((4, 3), (2, 3, 4, 2))):
    def build(tf):
        tf.set_random_seed(7)
        made = make(tf)
        return [made(list(shape)) for shape in shapes]

    build.__name__ = "initializer_" + name
    build.__module__ = __name__
    case(build)


initializer("zeros", lambda tf: tf.zeros_initializer())
initializer("ones", lambda tf: tf.ones_initializer(tf.int32))
initializer("constant", lambda tf: tf.constant_initializer([1, 2, 3]))
initializer("uniform", lambda tf: tf.random_uniform_initializer(-1, 2))
initializer("uniform_seeded", lambda tf: tf.random_uniform_initializer(seed=3))
initializer("uniform_ints", lambda tf: tf.random_uniform_initializer(0, 9, dtype=tf.int32))
initializer("normal", lambda tf: tf.random_normal_initializer(1.0, 2.0))
initializer("truncated", lambda tf: tf.truncated_normal_initializer(1.0, 2.0))
initializer("unit_scaling", lambda tf: tf.uniform_unit_scaling_initializer(2.0), [[], [5], [4, 3]])
initializer("glorot_uniform", lambda tf: tf.glorot_uniform_initializer())
initializer("glorot_normal", lambda tf: tf.glorot_normal_initializer())
initializer("he_normal", lambda tf: tf.initializers.he_normal())
initializer("he_uniform", lambda tf: tf.initializers.he_uniform())
initializer("lecun_normal", lambda tf: tf.initializers.lecun_normal())
initializer("lecun_uniform", lambda tf: tf.initializers.lecun_uniform(seed=4))
initializer("orthogonal", lambda tf: tf.orthogonal_initializer(2.0), [[4, 3], [2, 3], [3, 2, 5]])
initializer("identity", lambda tf: tf.initializers.identity(2.0), [[4, 3], [2, 2]])
for _mode in ("fan_in", "fan_out", "fan_avg"):
    for _kind in ("normal", "uniform", "truncated_normal", "untruncated_normal"):
        initializer(
            f"variance_{_mode}_{_kind}",
            lambda tf, m=_mode, k=_kind: tf.variance_scaling_initializer(3.0, m, k),
            [[], [5], [3, 4], [2, 3, 4]],
        )


# -- Templates -------------------------------------------------------------------------------------


@case
def template(tf):
    def layer(x, scale):
        return tf.get_variable("w", initializer=[2.0]) * x * scale

    first = tf.make_template("layer", layer, scale=3.0)
    second = tf.make_template("layer", layer, scale=1.0)
    return [first(1.0), first(2.0), second(1.0), first(3.0)]


@case
def template_with_scope_now(tf):
    made = tf.make_template(
        "t", lambda: tf.get_variable("w", initializer=[2.0]) + 1.0, create_scope_now_=True
    )
    named = tf.make_template(
        "t", lambda: tf.get_variable("w", initializer=[2.0]) + 1.0, unique_name_="own"
    )
    return [made(), named(), made(), named()]
