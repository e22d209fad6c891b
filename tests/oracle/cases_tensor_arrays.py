"""Tensor arrays: rows, shapes, gradients."""

from tests.oracle.case import case


def rows(tf):
    return tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


@case
def written_and_read(tf):
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False)
    for i in range(3):
        array = array.write(i, [1.0 + i, 2.0 * i])
    return array.read(1), array.read(1), array.read(2), array.size()


@case
def named(tf):
    array = tf.TensorArray("int32", 2, tensor_array_name="rows", name="kept", element_shape=[2])
    array = array.write(0, [1, 2], name="first").write(1, [3, 4], name="second")
    return array.stack(name="all"), array.handle.shape.as_list(), array.element_shape.as_list()


@case
def stacked(tf):
    return tf.TensorArray(tf.float32, 3).unstack(rows(tf)).stack()


@case
def gathered(tf):
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(rows(tf))
    return array.gather([2, 0]), array.gather([1, 1])


@case
def joined(tf):
    array = tf.TensorArray(tf.float32, 2, infer_shape=False)
    array = array.write(0, [[1.0, 2.0]]).write(1, [[3.0, 4.0], [5.0, 6.0]])
    return array.concat(name="joined")


@case
def cut(tf):
    array = tf.TensorArray(tf.float32, 3, infer_shape=False, clear_after_read=False)
    array = array.split(tf.range(6.0), [1, 3, 2])
    return array.read(1), array.read(2), array.concat()


@case
def scattered(tf):
    array = tf.TensorArray(tf.float32, 5, element_shape=[2])
    return array.scatter([3, 1], rows(tf)[:2]).stack()


@case
def grown(tf):
    array = tf.TensorArray(tf.int64, 0, dynamic_size=True, clear_after_read=False)
    array = array.write(0, tf.constant(7, tf.int64)).write(3, tf.constant(9, tf.int64))
    return array.size(), array.stack(), array.identity().read(3)


@case
def of_strings(tf):
    array = tf.TensorArray(tf.string, 2).unstack(["a", "bc"])
    return array.stack()


@case
def of_words_one_by_one(tf):
    array = tf.TensorArray(tf.string, 2).write(0, "a").write(1, tf.strings.join(["b", "c"]))
    words = tf.constant(["a", "b"])
    return array.stack(), tf.map_fn(lambda word: tf.strings.join([word, "!"]), words)


@case
def of_nothing(tf):
    return tf.TensorArray(tf.float32, 0, element_shape=[2]).stack()


@case
def rows_that_nobody_wrote(tf):
    return tf.TensorArray(tf.float32, 3).write(1, [1.0, 2.0]).stack()


@case
def with_handle(tf):
    array = tf.TensorArray(tf.float32, 2).unstack([1.0, 2.0])
    return tf.TensorArray(tf.float32, handle=array.handle, flow=array.flow).stack()


@case
def own_gradient_array(tf):
    array = tf.TensorArray(tf.float32, 2).write(0, [1.0, 2.0])
    twin = array.grad("mine")
    return twin.write(0, [1.0, 1.0]).write(0, [3.0, 4.0]).stack()


@case
def gradient_array_with_shape(tf):
    array = tf.TensorArray(tf.float32, 2, element_shape=[2]).write(0, [1.0, 2.0])
    handle, flow = tf.raw_ops.TensorArrayGradWithShape(
        handle=array.handle, flow_in=array.flow, shape_to_prepend=[3], source="mine"
    )
    return tf.raw_ops.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32)


def square_of(array, tf):
    return tf.reduce_sum(tf.square(array) * [1.0, 3.0])


@case(graph=False)
def gradient_of_stack(tf):
    x = rows(tf)
    y = square_of(tf.TensorArray(tf.float32, 3).unstack(x).stack(), tf)
    return tf.gradients(y, x)


@case(graph=False)
def gradient_of_reads(tf):
    x = rows(tf)
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)
    y = tf.reduce_sum(array.read(0) * array.read(0) * array.read(1))
    return tf.gradients(y, x)


@case(graph=False)
def gradient_of_writes(tf):
    x = rows(tf)
    array = tf.TensorArray(tf.float32, 2).write(1, x[0] * 2.0).write(0, x[2] * x[0])
    return tf.gradients(square_of(array.stack(), tf), x)


@case(graph=False)
def gradient_of_gather(tf):
    x = rows(tf)
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)
    return tf.gradients(square_of(array.gather([2, 0, 2]), tf), x)


@case(graph=False)
def gradient_of_scatter(tf):
    x = rows(tf)
    array = tf.TensorArray(tf.float32, 4, element_shape=[2]).scatter([3, 0, 1], x)
    return tf.gradients(square_of(array.stack(), tf), x)


@case(graph=False)
def gradient_of_concat_and_split(tf):
    x = rows(tf)
    array = tf.TensorArray(tf.float32, 2, infer_shape=False).split(x, [1, 2])
    return tf.gradients(square_of(array.concat(), tf), x)


@case(graph=False)
def gradients_of_two_calls(tf):
    x = rows(tf)
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)
    first = tf.gradients(square_of(array.stack(), tf), x)
    return first, tf.gradients(array.read(1) * 3.0, x)


@case(graph=False)
def stack_of_values(tf):
    handle = tf.raw_ops.StackV2(max_size=2, elem_type=tf.float32, stack_name="s")
    one = tf.raw_ops.StackPushV2(handle=handle, elem=[1.0])
    with tf.control_dependencies([one]):
        two = tf.raw_ops.StackPushV2(handle=handle, elem=[2.0, 3.0])
    with tf.control_dependencies([two]):
        last = tf.raw_ops.StackPopV2(handle=handle, elem_type=tf.float32)
    with tf.control_dependencies([last]):
        first = tf.raw_ops.StackPopV2(handle=handle, elem_type=tf.float32)
    with tf.control_dependencies([first]):
        closed = tf.raw_ops.StackCloseV2(handle=handle)
    with tf.control_dependencies([closed]):
        return one, two, last, tf.identity(first)


@case(graph=False)
def stack_of_older_graphs(tf):
    handle = tf.raw_ops.Stack(elem_type=tf.int32, stack_name="s")
    pushed = tf.raw_ops.StackPush(handle=handle, elem=4, swap_memory=True)
    with tf.control_dependencies([pushed]):
        return tf.raw_ops.StackPop(handle=handle, elem_type=tf.int32)
