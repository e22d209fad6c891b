"""Lists of tensors by place, and optionals: what functional loops and branches are made of."""

from tests.oracle.case import case


def rows(tf):
    return tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def listed(tf, x):
    return tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[2])


def get(tf, values, index):
    return tf.raw_ops.TensorListGetItem(
        input_handle=values, index=index, element_shape=[2], element_dtype=tf.float32
    )


def stack(tf, values, shape=-1, count=-1):
    return tf.raw_ops.TensorListStack(
        input_handle=values, element_shape=shape, element_dtype=tf.float32, num_elements=count
    )


def put(tf, values, index, item):
    return tf.raw_ops.TensorListSetItem(input_handle=values, index=index, item=item)


@case(graph=False)
def set_and_read(tf):
    x = rows(tf)
    values = listed(tf, x)
    changed = put(tf, values, 1, [7.0, 8.0])
    length = tf.raw_ops.TensorListLength(input_handle=changed)
    shape = tf.raw_ops.TensorListElementShape(input_handle=changed, shape_type=tf.int64)
    return get(tf, values, 1), get(tf, changed, 1), stack(tf, changed, [2], 3), length, shape


@case(graph=False)
def reserved(tf):
    empty = tf.raw_ops.TensorListReserve(
        element_shape=[2], num_elements=3, element_dtype=tf.float32
    )
    some = put(tf, empty, 2, [1.0, 2.0])
    longer = tf.raw_ops.TensorListResize(input_handle=some, size=5)
    shorter = tf.raw_ops.TensorListResize(input_handle=some, size=2)
    return get(tf, empty, 0), stack(tf, some), stack(tf, longer), stack(tf, shorter)


@case(graph=False)
def some_places(tf):
    scattered = tf.raw_ops.TensorListScatterV2(
        tensor=rows(tf), indices=[4, 0, 2], element_shape=[2], num_elements=6
    )
    into = tf.raw_ops.TensorListScatterIntoExistingList(
        input_handle=scattered, tensor=rows(tf)[:2], indices=[1, 4]
    )
    gathered = tf.raw_ops.TensorListGather(
        input_handle=into, indices=[4, 1, 4], element_shape=[2], element_dtype=tf.float32
    )
    return stack(tf, scattered, [2]), stack(tf, into), gathered


@case(graph=False)
def pieces(tf):
    values = tf.raw_ops.TensorListSplit(
        tensor=rows(tf), element_shape=[-1, 2], lengths=tf.constant([2, 0, 1], tf.int64)
    )
    return tf.raw_ops.TensorListConcatV2(
        input_handle=values,
        element_shape=[-1, 2],
        leading_dims=tf.zeros([0], tf.int64),
        element_dtype=tf.float32,
    )


@case(graph=False)
def several_at_once(tf):
    x = rows(tf)
    first, second = tf.stack([listed(tf, x), listed(tf, x[:1])]), listed(tf, x[1:])
    pushed = tf.raw_ops.TensorListPushBackBatch(input_handles=first, tensor=x[:2] * 10.0)
    joined = tf.raw_ops.TensorListConcatLists(
        input_a=second, input_b=second, element_dtype=tf.float32
    )
    pairs = tf.raw_ops.TensorListConcatLists(
        input_a=pushed, input_b=first, element_dtype=tf.float32
    )
    return [stack(tf, v) for v in (pushed[0], pushed[1], joined, pairs[0], pairs[1])]


@case(graph=False)
def slopes_of_lists(tf):
    x, y = rows(tf), tf.constant([7.0, 8.0])
    values = put(tf, listed(tf, x), 1, y * y)
    z = get(tf, values, 0) * get(tf, values, 1) + get(tf, values, 2) ** 2
    picked = tf.raw_ops.TensorListGather(
        input_handle=values, indices=[2, 1], element_shape=[2], element_dtype=tf.float32
    )
    return (
        tf.gradients(z, [x, y]),
        tf.gradients(stack(tf, values, [2], 3) ** 3, [x, y]),
        tf.gradients(picked**2, [x, y]),
    )


@case(graph=False)
def slopes_of_pieces(tf):
    x = rows(tf)
    values = tf.raw_ops.TensorListSplit(
        tensor=x, element_shape=[-1, 2], lengths=tf.constant([2, 1], tf.int64)
    )
    joined, _ = tf.raw_ops.TensorListConcatV2(
        input_handle=values,
        element_shape=[-1, 2],
        leading_dims=tf.zeros([0], tf.int64),
        element_dtype=tf.float32,
    )
    scattered = tf.raw_ops.TensorListScatterV2(
        tensor=x * x, indices=[2, 0, 1], element_shape=[2], num_elements=3
    )
    return tf.gradients(joined**2, x), tf.gradients(get(tf, scattered, 0) ** 2, x)


@case(graph=False)
def optionals(tf):
    x = rows(tf)
    some = tf.raw_ops.OptionalFromValue(components=[x, tf.constant(3)])
    first, second = tf.raw_ops.OptionalGetValue(
        optional=some, output_types=[tf.float32, tf.int32], output_shapes=[[3, 2], []]
    )
    none = tf.raw_ops.OptionalNone()
    has = [tf.raw_ops.OptionalHasValue(optional=o) for o in (some, none)]
    return first, second, has


@case(graph=False)
def graphs_of_functional_loops(tf):
    """TensorFlow writes While, If and lists; Headrace builds the primitives, and reads both."""
    functional = hasattr(tf, "enable_control_flow_v2")
    if functional:
        tf.enable_control_flow_v2()
    try:
        x = tf.constant([0.3, -0.6])

        def step(i, y, rows):
            y = tf.cond(y[0] > 0.5, lambda: y * x, lambda: tf.sin(y) + x)
            return i + 1, y, rows.write(i, y)

        start = (0, x, tf.TensorArray(tf.float32, 4))
        _, last, rows = tf.while_loop(lambda i, *_: i < 4, step, start)
        mapped = tf.map_fn(lambda e: e * x, tf.range(3.0))
        return last, rows.stack(), mapped, tf.gradients([last, rows.stack(), mapped], x)
    finally:
        if functional:
            tf.disable_control_flow_v2()
