"""Functions of the graph: calls, captured tensors, gradients, functional control flow."""

from tests.oracle.case import case


def made_by(tf):
    """Defun, and the functions that build functional ops."""
    if tf.__name__ == "tensorflow":
        from tensorflow.python.framework.function import Defun
        from tensorflow.python.ops import functional_ops

        return Defun, functional_ops
    from headrace._src.gradients.function_gradients import Defun
    from headrace._src.ops.control import functional

    return Defun, functional


@case
def two_results(tf):
    Defun, _ = made_by(tf)

    @Defun(tf.float32, tf.float32, func_name="TwoResults")
    def f(x, y):
        z = x + y
        return z * 2.0, tf.nn.relu(z, name="positive")

    a, b = f(1.0, tf.constant(-2.0))
    return a, b, f(a, b, name="again")


@case
def without_arguments(tf):
    Defun, _ = made_by(tf)

    @Defun(func_name="Constants", out_names=["one", "two"])
    def f():
        return tf.constant(1.0), tf.constant([2])

    return f()


@case
def captured(tf):
    Defun, _ = made_by(tf)
    c = tf.constant([5.0, 6.0], name="c")
    v = tf.Variable(3.0, use_resource=False, name="v")
    r = tf.get_variable("r", initializer=4.0, use_resource=True)

    @Defun(tf.float32, func_name="Captures")
    def f(x):
        return x * c * v + r

    return f(2.0), f(tf.constant([1.0, 0.0]))


@case
def calls_another(tf):
    Defun, _ = made_by(tf)

    @Defun(tf.float32, func_name="InnerFunction")
    def inner(x):
        return x * x

    @Defun(tf.float32, func_name="OuterFunction")
    def outer(x):
        return inner(x) + inner(x + 1.0)

    return outer(2.0)


@case
def given_shape(tf):
    Defun, _ = made_by(tf)

    @Defun(tf.float32, func_name="Shaped", shape_func=lambda op: [op.inputs[0].get_shape()])
    def f(x):
        return x + 1.0

    y = f(tf.zeros([3]))
    return y, y.shape.as_list()


@case
def with_effects(tf):
    Defun, _ = made_by(tf)
    v = tf.get_variable("v", initializer=1.0, use_resource=True)

    @Defun(tf.float32, func_name="Assigns")
    def f(x):
        done = tf.raw_ops.AssignAddVariableOp(resource=v.handle, value=x)
        with tf.control_dependencies([done]):
            return tf.identity(x)

    with tf.control_dependencies([f(2.0)]), tf.control_dependencies([f(3.0)]):
        return v.read_value()


@case(graph=False)
def gradients(tf):
    Defun, _ = made_by(tf)
    c = tf.constant(5.0)

    @Defun(tf.float32, tf.float32, tf.int32, func_name="Cubes")
    def f(x, y, n):
        return x**3 * y + c * x, tf.cast(n, tf.float32) * y, n + 1

    x, y = tf.constant([1.0, 2.0]), tf.constant(3.0)
    first, second, _ = f(x, y, 4)
    return tf.gradients(first, [x, y, c]), tf.gradients([first, second], [x, y])


@case(graph=False)
def gradients_of_variables(tf):
    Defun, _ = made_by(tf)
    v = tf.Variable(3.0, use_resource=False)
    r = tf.get_variable("r", initializer=[4.0, 1.0], use_resource=True)

    @Defun(tf.float32, func_name="OfVariables")
    def f(x):
        return tf.reduce_sum(x * v * r)

    return tf.gradients(f(2.0), [v, r])


@case(graph=False)
def own_gradients(tf):
    Defun, _ = made_by(tf)

    @Defun(tf.float32, tf.float32, func_name="OwnGradient")
    def g(x, dy):
        return dy * 100.0

    @Defun(tf.float32, func_name="HasGradient", grad_func=g)
    def f(x):
        return x * x

    @Defun(tf.float32, func_name="InPython", python_grad_func=lambda op, dy: dy * op.inputs[0])
    def h(x):
        return x * x

    x = tf.constant(2.0)
    return tf.gradients(f(x), x), tf.gradients(h(x), x)


@case
def branches(tf):
    Defun, ops = made_by(tf)

    @Defun(tf.float32, func_name="Then")
    def then(x):
        return x * 2.0, x

    @Defun(tf.float32, func_name="Else")
    def other(x):
        return x - 1.0, x + 7.0

    yes = tf.placeholder_with_default(True, [])
    return [
        ops.If(p, [3.0], then, other)
        for p in (yes, tf.constant(0.0), tf.constant("x"), tf.zeros([0]), tf.zeros([1]))
    ]


@case
def loops(tf):
    Defun, ops = made_by(tf)

    @Defun(tf.int32, tf.float32, func_name="Below5")
    def cond(i, x):
        return i < 5

    @Defun(tf.int32, tf.float32, func_name="Doubles")
    def body(i, x):
        return i + 1, x * 2.0

    @Defun(tf.int32, tf.float32, func_name="AddsUp")
    def step(i, x):
        return x + tf.cast(i, tf.float32)

    return ops.While([0, 1.0], cond, body), ops.For(0, 7, 2, [1.0], step)


@case
def calls_by_name(tf):
    Defun, ops = made_by(tf)

    @Defun(tf.float32, func_name="Squares")
    def f(x):
        return x * x

    x = tf.constant(3.0)
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    return (
        tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=f),
        tf.raw_ops.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=f),
        ops.remote_call(device, [x], [tf.float32], f),
        ops.Gradient([x, tf.constant(2.0)], f),
    )
