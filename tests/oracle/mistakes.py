"""Typical mistakes, as programs valid under TensorFlow 1.15.5 and under Headrace: what each raises.
This file must stay valid Python 3.7.

A mistake is a function of `tf` and of `run`, a session's. `@mistake()` asks for TensorFlow's first
line as a whole to be in ours; `@mistake(phrase)` only for that phrase of it, where the rest names
what is private to an implementation. scripts/record_mistakes runs them under TensorFlow.
"""

import os
import re
import tempfile

import numpy as np

MISTAKES = {}


def mistake(*phrases):
    """Register a mistake; `phrases` are what programs may match on, by default the whole line."""

    def register(function):
        assert function.__name__ not in MISTAKES, function.__name__
        MISTAKES[function.__name__] = function, phrases
        return function

    return register


def run_mistake(tf, name):
    """What a mistake raises, as plain data: the class, the first line, the code, the op."""
    function, _ = MISTAKES[name]
    with tf.Graph().as_default(), tf.Session() as session:
        try:
            function(tf, session.run)
        except Exception as error:
            return describe(tf, error)
    raise AssertionError(name + " raises nothing")


def describe(tf, error):
    """The class, the first line, and what errors of operations have besides."""
    found = {"type": type(error).__name__, "line": first_line(str(error))}
    found["kinds"] = [kind.__name__ for kind in type(error).__mro__[:-2]]
    if isinstance(error, tf.errors.OpError):
        found["code"] = error.error_code
        found["message"] = first_line(error.message)
        found["op"] = error.op.name if error.op is not None else None
        found["node_def"] = error.node_def.name if error.node_def is not None else None
    return found


def first_line(text):
    """The first line, without the node and the values of inputs that TensorFlow shows in it, and
    with numbers of private names made constant.
    """
    line = text.strip().splitlines()[0] if text.strip() else ""
    line = re.sub(r"\s*\[\[\{?\{?node.*", "", line).strip()
    line = re.sub(r" and with (computed )?input tensors.*", ".", line)
    line = re.sub(r"/tmp/\S*?(?=[/:;,' ]|$)", "/tmp/X", line)
    line = re.sub(r"TensorArray_\d+", "TensorArray_0", line)
    return re.sub(r"(?<=['\s])_\d+_", "_0_", line)


# -- Shapes, while a graph is built ----------------------------------------------------------------


@mistake()
def matmul_of_other_sizes(tf, run):
    tf.matmul(tf.ones([2, 3]), tf.ones([4, 5]), name="product")


@mistake()
def matmul_of_a_vector(tf, run):
    tf.matmul(tf.ones([3]), tf.ones([3, 2]), name="product")


@mistake()
def add_of_other_sizes(tf, run):
    tf.add(tf.ones([2]), tf.ones([3]), name="total")


@mistake()
def multiply_of_other_sizes(tf, run):
    tf.multiply(tf.ones([2, 3]), tf.ones([3, 2]), name="product")


@mistake()
def equal_of_other_sizes(tf, run):
    tf.less(tf.ones([2]), tf.ones([3]), name="smaller")


@mistake()
def concat_of_other_sizes(tf, run):
    tf.concat([tf.ones([2, 3]), tf.ones([2, 4])], 0, name="joined")


@mistake()
def concat_of_other_ranks(tf, run):
    tf.concat([tf.ones([2, 3]), tf.ones([2])], 0, name="joined")


@mistake()
def concat_along_too_large_an_axis(tf, run):
    tf.concat([tf.ones([2, 3]), tf.ones([2, 3])], 5, name="joined")


@mistake()
def stack_of_other_sizes(tf, run):
    tf.stack([tf.ones([2]), tf.ones([3])], name="together")


@mistake()
def stack_along_too_large_an_axis(tf, run):
    tf.stack([tf.ones([2]), tf.ones([2])], axis=3, name="together")


@mistake()
def unstack_of_unknown_size(tf, run):
    tf.unstack(tf.placeholder(tf.float32, [None, 3], name="x"))


@mistake()
def reshape_to_other_size(tf, run):
    tf.reshape(tf.ones([2, 3]), [4, 2], name="shaped")


@mistake()
def reshape_with_two_unknowns(tf, run):
    run(tf.reshape(tf.ones([2, 3]), [-1, -1], name="shaped"))


@mistake()
def transpose_by_a_short_permutation(tf, run):
    tf.transpose(tf.ones([2, 3, 4]), [0, 1], name="turned")


@mistake()
def transpose_by_no_permutation(tf, run):
    tf.transpose(tf.ones([2, 3]), [0, 2], name="turned")


@mistake()
def expand_dims_too_far(tf, run):
    tf.expand_dims(tf.ones([2]), 3, name="wider")


@mistake()
def squeeze_of_a_large_dimension(tf, run):
    tf.squeeze(tf.ones([2, 3]), [0], name="thin")


@mistake()
def slice_out_of_bounds(tf, run):
    run(tf.slice(tf.ones([3]), [2], [4], name="part"))


@mistake()
def index_out_of_bounds(tf, run):
    tf.ones([3])[5]


@mistake()
def too_many_indices(tf, run):
    tf.ones([3])[0, 1]


@mistake()
def reduce_over_too_large_an_axis(tf, run):
    tf.reduce_sum(tf.ones([2, 3]), axis=2, name="total")


@mistake()
def argmax_over_too_large_an_axis(tf, run):
    tf.argmax(tf.ones([2, 3]), axis=3, name="best")


@mistake()
def split_that_does_not_divide(tf, run):
    tf.split(tf.ones([5]), 2, name="parts")


@mistake()
def split_by_sizes_that_do_not_add_up(tf, run):
    tf.split(tf.ones([5]), [2, 2], name="parts")


@mistake()
def tile_by_too_few_multiples(tf, run):
    tf.tile(tf.ones([2, 3]), [2], name="tiled")


@mistake()
def pad_by_too_few_paddings(tf, run):
    tf.pad(tf.ones([2, 3]), [[1, 1]], name="padded")


@mistake()
def gather_from_a_scalar(tf, run):
    tf.gather(tf.constant(1.0), [0], name="rows")


@mistake()
def convolution_of_a_matrix(tf, run):
    tf.nn.conv2d(tf.ones([5, 5]), tf.ones([3, 3, 1, 1]), [1, 1, 1, 1], "SAME", name="conv")


@mistake()
def convolution_of_other_channels(tf, run):
    x, w = tf.ones([1, 5, 5, 2]), tf.ones([3, 3, 3, 1])
    tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME", name="conv")


@mistake()
def convolution_larger_than_its_input(tf, run):
    x, w = tf.ones([1, 2, 2, 1]), tf.ones([3, 3, 1, 1])
    tf.nn.conv2d(x, w, [1, 1, 1, 1], "VALID", name="conv")


@mistake()
def pooling_larger_than_its_input(tf, run):
    tf.nn.max_pool(tf.ones([1, 2, 2, 1]), [1, 3, 3, 1], [1, 1, 1, 1], "VALID", name="pool")


@mistake()
def bias_of_other_size(tf, run):
    tf.nn.bias_add(tf.ones([2, 3]), tf.ones([4]), name="biased")


@mistake()
def cross_entropy_of_other_sizes(tf, run):
    tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.ones([2, 3]), logits=tf.ones([2, 4]), name="loss"
    )


@mistake()
def sparse_cross_entropy_of_other_ranks(tf, run):
    tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.zeros([2, 1], tf.int32), logits=tf.ones([2, 4])
    )


@mistake()
def sigmoid_cross_entropy_of_other_shapes(tf, run):
    tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones([2]), logits=tf.ones([3]))


@mistake()
def cross_entropy_without_names(tf, run):
    tf.nn.softmax_cross_entropy_with_logits(tf.ones([2, 3]), tf.ones([2, 3]))


@mistake()
def broadcast_to_a_smaller_shape(tf, run):
    tf.broadcast_to(tf.ones([3]), [2], name="wide")


@mistake()
def where_of_other_shapes(tf, run):
    tf.where(tf.constant([True, False]), tf.ones([3]), tf.ones([3]), name="chosen")


@mistake()
def one_hot_of_a_vector_of_depths(tf, run):
    tf.one_hot([1], depth=[3], name="hot")


@mistake()
def set_shape_that_disagrees(tf, run):
    tf.placeholder(tf.float32, [2, 3], name="x").set_shape([2, 4])


@mistake()
def merge_of_shapes_that_disagree(tf, run):
    tf.TensorShape([2, 3]).merge_with([3, 3])


@mistake()
def shape_of_another_rank(tf, run):
    tf.TensorShape([2, 3]).with_rank(3)


@mistake()
def assert_shapes_are_compatible(tf, run):
    tf.TensorShape([2, 3]).assert_is_compatible_with([3, 3])


@mistake()
def list_of_an_unknown_shape(tf, run):
    tf.TensorShape(None).as_list()


@mistake()
def assign_of_another_shape(tf, run):
    tf.assign(tf.Variable(tf.ones([2]), name="v"), tf.ones([3]), name="set")


@mistake()
def assign_to_a_resource_of_another_shape(tf, run):
    tf.Variable(tf.ones([2]), name="v", use_resource=True).assign(tf.ones([3]))


@mistake()
def matrix_inverse_of_no_square(tf, run):
    tf.matrix_inverse(tf.ones([2, 3]), name="inverse")


@mistake("for 'einsum/")
def einsum_of_other_sizes(tf, run):
    tf.einsum("ij,jk->ik", tf.ones([2, 3]), tf.ones([4, 5]))


@mistake()
def tensordot_of_other_sizes(tf, run):
    tf.tensordot(tf.ones([2, 3]), tf.ones([4, 5]), 1)


@mistake()
def dense_layer_of_unknown_depth(tf, run):
    tf.layers.dense(tf.placeholder(tf.float32, [2, None]), 3)


@mistake(
    "is incompatible with the layer:", "expected min_ndim=2, found ndim=1. Full shape received: [3]"
)
def dense_layer_of_a_scalar_row(tf, run):
    tf.layers.dense(tf.ones([3]), 3)


@mistake()
def conv_layer_of_a_matrix(tf, run):
    tf.layers.conv2d(tf.ones([5, 5]), 3, 2)


@mistake()
def while_shape_that_grows(tf, run):
    tf.while_loop(lambda x: True, lambda x: tf.concat([x, x], 0), [tf.ones([2])])


@mistake()
def boolean_mask_of_unknown_rank(tf, run):
    tf.boolean_mask(tf.ones([2]), tf.placeholder(tf.bool))


@mistake()
def boolean_mask_of_other_size(tf, run):
    tf.boolean_mask(tf.ones([2]), [True, False, True])


# -- Types and arguments ---------------------------------------------------------------------------


@mistake()
def types_that_differ(tf, run):
    tf.multiply(tf.ones([2]), tf.ones([2], tf.int32), name="product")


@mistake()
def types_that_differ_in_an_operator(tf, run):
    tf.placeholder(tf.float32, name="x") + tf.placeholder(tf.int32, name="n")


@mistake()
def types_that_differ_in_a_list(tf, run):
    tf.concat([tf.ones([2]), tf.ones([2], tf.int32)], 0)


@mistake()
def type_that_an_op_does_not_take(tf, run):
    tf.nn.softmax(tf.constant([1, 2]))


@mistake()
def matmul_of_strings(tf, run):
    tf.matmul([["a"]], [["b"]])


@mistake()
def constant_of_a_wrong_type(tf, run):
    tf.constant(1.5, tf.int32)


@mistake()
def constant_of_a_string_as_a_number(tf, run):
    tf.constant("a", tf.float32)


@mistake()
def constant_of_ragged_lists(tf, run):
    tf.constant([[1, 2], [3]])


@mistake()
def constant_of_another_shape(tf, run):
    tf.constant([1, 2, 3], shape=[2])


@mistake("None values not supported.")
def constant_of_none(tf, run):
    tf.constant(None)


@mistake()
def add_of_none(tf, run):
    tf.add(tf.ones([2]), None)


@mistake()
def conversion_to_another_type(tf, run):
    tf.convert_to_tensor(tf.ones([2], name="x"), tf.int32)


@mistake()
def unknown_dtype(tf, run):
    tf.as_dtype("float31")


@mistake()
def cast_to_an_unknown_type(tf, run):
    tf.cast(tf.ones([2]), "floaty")


@mistake("using a `tf.Tensor` as a Python `bool` is not allowed in Graph execution.")
def tensor_as_a_bool(tf, run):
    if tf.constant(1) > 0:
        pass


@mistake("iterating over `tf.Tensor` is not allowed in Graph execution.")
def tensor_in_a_loop(tf, run):
    for _ in tf.placeholder(tf.float32, [None]):
        pass


@mistake("iterating over `tf.Tensor` is not allowed in Graph execution.")
def tensor_of_unknown_rank_in_a_loop(tf, run):
    for _ in tf.placeholder(tf.float32):
        pass


@mistake()
def length_of_a_tensor(tf, run):
    len(tf.ones([3]))


@mistake()
def array_of_a_tensor(tf, run):
    np.array(tf.ones([3], name="x"))


@mistake()
def string_for_a_number(tf, run):
    tf.multiply(tf.ones([2]), "a")


@mistake()
def none_in_a_list(tf, run):
    tf.concat([tf.ones([2]), None], 0)


@mistake()
def strings_and_numbers_in_a_list(tf, run):
    tf.concat([[1, 2], ["a"]], 0)


@mistake()
def sum_of_other_sizes(tf, run):
    tf.add_n([tf.ones([2]), tf.ones([3])])


@mistake()
def sum_of_other_types(tf, run):
    tf.add_n([tf.ones([2]), tf.ones([2], tf.int32)])


@mistake()
def placeholder_of_no_type(tf, run):
    tf.placeholder(None)


@mistake()
def zeros_of_an_unknown_size(tf, run):
    tf.zeros([2, None])


@mistake()
def shape_that_is_none(tf, run):
    tf.reshape(tf.ones([2]), None)


@mistake()
def rows_by_numbers_that_are_no_integers(tf, run):
    tf.gather(tf.ones([2]), 1.5)


@mistake()
def axes_in_the_old_order(tf, run):
    tf.concat(3, [tf.ones([2])])


@mistake()
def depthwise_convolution_of_other_channels(tf, run):
    x, w = tf.ones([1, 5, 5, 2]), tf.ones([3, 3, 3, 1])
    tf.nn.depthwise_conv2d_native(x, w, [1, 1, 1, 1], "SAME")


@mistake()
def fed_depthwise_convolution_of_other_channels(tf, run):
    def conv(w, x):
        return tf.nn.depthwise_conv2d_native(x, w, [1, 1, 1, 1], "SAME")

    fed(tf, run, conv, x=np.ones([1, 5, 5, 2], F), w=np.ones([3, 3, 3, 1], F))


@mistake()
def attribute_of_another_type(tf, run):
    tf.nn.lrn(tf.ones([1, 1, 1, 1]), depth_radius="a")


@mistake()
def bad_padding_name(tf, run):
    tf.nn.conv2d(tf.ones([1, 5, 5, 1]), tf.ones([3, 3, 1, 1]), [1, 1, 1, 1], "SOME")


@mistake()
def negative_rate_of_dropout(tf, run):
    tf.nn.dropout(tf.ones([3]), rate=1.5)


@mistake()
def zero_keep_prob(tf, run):
    tf.nn.dropout(tf.ones([3]), keep_prob=2.0)


@mistake()
def bad_operation_name(tf, run):
    tf.constant(1, name="a b")


@mistake()
def bad_scope_name(tf, run):
    with tf.name_scope("a b"):
        pass


@mistake()
def feed_of_a_bad_name_scope_value(tf, run):
    with tf.name_scope(3):
        pass


# -- Finding things, graphs, sessions --------------------------------------------------------------


@mistake()
def tensors_of_two_graphs(tf, run):
    a = tf.constant(1.0, name="a")
    with tf.Graph().as_default():
        tf.add(a, tf.constant(2.0, name="b"))


@mistake()
def fetch_of_another_graph(tf, run):
    with tf.Graph().as_default():
        b = tf.constant(1, name="b")
    tf.constant(2)
    run(b)


@mistake()
def fetch_of_none(tf, run):
    tf.constant(2)
    run(None)


@mistake()
def fetch_of_a_number(tf, run):
    tf.constant(2)
    run(3)


@mistake(
    "Fetch argument 'nothing:0' cannot be interpreted as a Tensor. (",
    "The name 'nothing:0' refers to a Tensor which does not exist. The operation, 'nothing', does",
)
def fetch_by_an_unknown_name(tf, run):
    tf.constant(2)
    run("nothing:0")


@mistake()
def fetch_by_an_incomplete_name(tf, run):
    tf.constant(2, name="two")
    tf.get_default_graph().get_tensor_by_name("two")


@mistake()
def tensor_by_an_unknown_name(tf, run):
    tf.get_default_graph().get_tensor_by_name("nothing:0")


@mistake()
def tensor_by_a_high_number(tf, run):
    tf.constant(2, name="two")
    tf.get_default_graph().get_tensor_by_name("two:3")


@mistake()
def operation_by_an_unknown_name(tf, run):
    tf.get_default_graph().get_operation_by_name("nothing")


@mistake()
def operation_by_a_tensor_name(tf, run):
    tf.constant(2, name="two")
    tf.get_default_graph().get_operation_by_name("two:0")


@mistake()
def run_of_an_empty_graph(tf, run):
    run([])


@mistake()
def placeholder_that_is_not_fed(tf, run):
    run(tf.placeholder(tf.float32, name="x") * 2)


@mistake()
def placeholder_with_a_shape_that_is_not_fed(tf, run):
    run(tf.placeholder(tf.float32, [None, 3], name="x") * 2)


@mistake()
def feed_of_another_shape(tf, run):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    run(x * 2, {x: np.ones((2, 4))})


@mistake("The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python ")
def feed_of_a_tensor(tf, run):
    x = tf.placeholder(tf.float32, [], name="x")
    run(x * 2, {x: tf.constant(1.0)})


@mistake()
def feed_of_words_for_numbers(tf, run):
    x = tf.placeholder(tf.float32, [], name="x")
    run(x * 2, {x: "one"})


@mistake()
def feed_of_ragged_lists(tf, run):
    x = tf.placeholder(tf.float32, name="x")
    run(x * 2, {x: [[1, 2], [3]]})


@mistake()
def feed_by_an_unknown_name(tf, run):
    run(tf.constant(1), {"nothing:0": 1})


@mistake()
def feed_by_a_number(tf, run):
    run(tf.constant(1), {3: 1})


@mistake("input must be a dictionary")
def feeds_that_are_no_dict(tf, run):
    run(tf.constant(1), [1])


@mistake()
def feed_of_what_may_not_be_fed(tf, run):
    x = tf.constant(1, name="x")
    tf.get_default_graph().prevent_feeding(x)
    run(x + 1, {x: 1})


@mistake("Operation 'x' has been marked as not fetchable.")
def fetch_of_what_may_not_be_fetched(tf, run):
    x = tf.constant(1, name="x")
    tf.get_default_graph().prevent_fetching(x.op)
    run(x)


@mistake()
def closed_session(tf, run):
    x = tf.constant(1)
    session = tf.Session()
    session.close()
    session.run(x)


@mistake()
def eval_without_a_session(tf, run):
    with tf.Graph().as_default():
        tf.constant(1).eval()


@mistake()
def run_without_a_session(tf, run):
    with tf.Graph().as_default():
        tf.no_op().run()


@mistake()
def eval_in_another_graphs_session(tf, run):
    x = tf.constant(1)
    with tf.Session(graph=tf.Graph()):
        x.eval()


@mistake()
def finalized_graph(tf, run):
    tf.get_default_graph().finalize()
    tf.constant(1)


@mistake()
def reset_inside_a_graph(tf, run):
    with tf.Graph().as_default():
        tf.reset_default_graph()


@mistake()
def control_input_that_is_none(tf, run):
    with tf.control_dependencies([3]):
        pass


@mistake()
def attribute_that_is_not_there(tf, run):
    tf.constant(1, name="x").op.get_attr("nothing")


@mistake("already been fed")
def partial_run_fed_twice(tf, run):
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.placeholder(tf.float32, [], name="y")
    a, b = x + 1, x * y
    with tf.Session() as session:
        handle = session.partial_run_setup([a, b], [x, y])
        session.partial_run(handle, a, {x: 1.0})
        session.partial_run(handle, b, {x: 1.0, y: 1.0})


@mistake()
def partial_run_of_an_unknown_fetch(tf, run):
    x = tf.placeholder(tf.float32, [], name="x")
    a, b = tf.identity(x, name="a"), tf.negative(x, name="b")
    with tf.Session() as session:
        handle = session.partial_run_setup([a], [x])
        session.partial_run(handle, b, {x: 1.0})


@mistake("Failed to convert object of type <class 'function'> to Tensor. Contents: <function rel")
def gradient_of_a_function(tf, run):
    tf.gradients(tf.nn.relu, tf.placeholder(tf.float32, [3]))


@mistake()
def gradients_of_another_number(tf, run):
    x = tf.placeholder(tf.float32, [3])
    tf.gradients([x * 2], x, grad_ys=[x, x])


@mistake()
def minimize_without_variables(tf, run):
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0))


@mistake("No gradients provided for any variable")
def minimize_what_does_not_depend_on_variables(tf, run):
    tf.Variable(1.0, name="v")
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0))


# -- Variables -------------------------------------------------------------------------------------


@mistake()
def uninitialized_variable(tf, run):
    run(tf.Variable(1.0, name="v") + 1)


@mistake(
    "Error while reading resource variable v from Container: localhost. ",
    "This could mean that the variable was uninitialized. Not found:",
)
def uninitialized_resource(tf, run):
    run(tf.Variable(1.0, name="v", use_resource=True) + 1)


@mistake()
def uninitialized_variable_is_assigned(tf, run):
    run(tf.assign_add(tf.Variable(1.0, name="v"), 1.0))


@mistake()
def duplicate_variable(tf, run):
    tf.get_variable("v", [1])
    tf.get_variable("v", [1])


@mistake()
def reuse_of_a_missing_variable(tf, run):
    with tf.variable_scope("s", reuse=True):
        tf.get_variable("v", [1])


@mistake()
def reuse_with_another_shape(tf, run):
    tf.get_variable("v", [1])
    with tf.variable_scope("", reuse=True):
        tf.get_variable("v", [2])


@mistake()
def reuse_with_another_type(tf, run):
    tf.get_variable("v", [1])
    with tf.variable_scope("", reuse=True):
        tf.get_variable("v", [1], tf.int32)


@mistake()
def variable_without_a_shape(tf, run):
    tf.get_variable("v")


@mistake()
def variable_of_an_unknown_shape(tf, run):
    tf.get_variable("v", [None])


@mistake()
def constant_initializer_with_a_shape(tf, run):
    tf.get_variable("v", [1], initializer=tf.constant([1.0]))


@mistake()
def variable_without_a_value(tf, run):
    tf.Variable(None)


@mistake()
def variable_of_an_unknown_initial_shape(tf, run):
    tf.Variable(tf.placeholder(tf.float32))


@mistake()
def load_of_another_shape(tf, run):
    v = tf.Variable([1.0], name="v")
    with tf.Session() as session:
        session.run(v.initializer)
        v.load([1.0, 2.0], session)


@mistake()
def assignment_to_a_tensor(tf, run):
    tf.assign(tf.constant(1.0), 2.0)


@mistake("using a `tf.Tensor` as a Python `bool` is not allowed in Graph execution.")
def in_place_addition_to_a_variable_as_a_bool(tf, run):
    bool(tf.Variable(1.0, name="v") > 0)


@mistake()
def saver_without_variables(tf, run):
    tf.train.Saver()


@mistake()
def restore_of_nothing(tf, run):
    tf.Variable(1.0, name="v")
    with tf.Session() as session:
        tf.train.Saver().restore(session, None)


@mistake("is not a valid checkpoint")
def restore_of_a_missing_file(tf, run):
    tf.Variable(1.0, name="v")
    with tf.Session() as session:
        tf.train.Saver().restore(session, os.path.join(tempfile.mkdtemp(), "model"))


@mistake()
def restore_of_a_missing_variable(tf, run):
    path = os.path.join(tempfile.mkdtemp(), "model")
    v = tf.Variable(1.0, name="v")
    with tf.Session() as session:
        session.run(v.initializer)
        tf.train.Saver([v]).save(session, path)
        w = tf.Variable(1.0, name="w")
        tf.train.Saver([w]).restore(session, path)


@mistake()
def restore_of_another_shape(tf, run):
    path = os.path.join(tempfile.mkdtemp(), "model")
    v, w = tf.Variable([1.0], name="v"), tf.Variable([1.0, 2.0], name="w")
    with tf.Session() as session:
        session.run(v.initializer)
        tf.train.Saver([v]).save(session, path)
        tf.train.Saver({"v": w}).restore(session, path)


@mistake()
def saver_of_two_variables_of_one_name(tf, run):
    v, w = tf.Variable(1.0, name="v"), tf.Variable(1.0, name="w")
    tf.train.Saver([v, v, w])
    tf.train.Saver({"a": [v, w]})


# -- Values, while a step runs ---------------------------------------------------------------------


def fed(tf, run, make, **values):
    """Run what `make` builds of placeholders of unknown shapes, fed with `values`."""
    keys = sorted(values)
    places = [tf.placeholder(np.asarray(values[k]).dtype, name=k) for k in keys]
    run(make(*places), {p: values[k] for p, k in zip(places, keys)})


F = np.float32


@mistake()
def fed_add_of_other_sizes(tf, run):
    fed(tf, run, lambda x, y: tf.add(x, y, name="total"), x=np.ones(2, F), y=np.ones(3, F))


@mistake()
def fed_multiply_of_other_sizes(tf, run):
    x, y = np.ones([2, 3], F), np.ones([3, 2], F)
    fed(tf, run, lambda x, y: tf.multiply(x, y, name="product"), x=x, y=y)


@mistake()
def fed_comparison_of_other_sizes(tf, run):
    fed(tf, run, lambda x, y: tf.less(x, y), x=np.ones(2, F), y=np.ones(3, F))


@mistake()
def fed_matmul_of_other_sizes(tf, run):
    def product(x, y):
        return tf.raw_ops.MatMul(a=x, b=y, name="product")

    fed(tf, run, product, x=np.ones([2, 3], F), y=np.ones([4, 5], F))


@mistake()
def fed_batch_matmul_of_other_sizes(tf, run):
    fed(tf, run, tf.matmul, x=np.ones([2, 3], F), y=np.ones([4, 5], F))


@mistake()
def fed_reshape_to_other_size(tf, run):
    fed(tf, run, lambda x: tf.reshape(x, [4]), x=np.ones(3, F))


@mistake()
def fed_reshape_that_does_not_divide(tf, run):
    fed(tf, run, lambda x: tf.reshape(x, [2, -1]), x=np.ones(3, F))


@mistake()
def fed_concat_of_other_sizes(tf, run):
    def join(x, y):
        return tf.concat([x, y], 0, name="joined")

    fed(tf, run, join, x=np.ones([2, 3], F), y=np.ones([2, 4], F))


@mistake()
def fed_stack_of_other_sizes(tf, run):
    fed(tf, run, lambda x, y: tf.stack([x, y]), x=np.ones(2, F), y=np.ones(3, F))


@mistake()
def fed_gather_out_of_range(tf, run):
    fed(tf, run, lambda i, x: tf.gather(x, i), x=np.ones(3, F), i=np.array([1, 5]))


@mistake()
def fed_gather_of_a_negative_row(tf, run):
    fed(tf, run, lambda i, x: tf.gather(x, i), x=np.ones([3, 2], F), i=np.array([[0, -1]]))


@mistake()
def fed_gather_nd_out_of_range(tf, run):
    fed(tf, run, lambda i, x: tf.gather_nd(x, i), x=np.ones([3, 2], F), i=np.array([[0, 2]]))


@mistake()
def fed_embedding_out_of_range(tf, run):
    fed(tf, run, lambda i, x: tf.nn.embedding_lookup(x, i), x=np.ones([3, 2], F), i=np.array([3]))


@mistake()
def fed_scatter_out_of_range(tf, run):
    v = tf.Variable(tf.zeros([3]), name="v")
    run(v.initializer)
    i = tf.placeholder(tf.int32)
    run(tf.scatter_update(v, i, [1.0]), {i: [4]})


@mistake()
def fed_scatter_nd_out_of_range(tf, run):
    fed(tf, run, lambda i: tf.scatter_nd(i, tf.ones([1]), [3]), i=np.array([[4]], np.int32))


@mistake()
def fed_slice_out_of_range(tf, run):
    fed(tf, run, lambda x: tf.slice(x, [2], [4]), x=np.ones(3, F))


@mistake()
def fed_index_out_of_range(tf, run):
    fed(tf, run, lambda x: x[5], x=np.ones(3, F))


@mistake()
def fed_reduction_over_too_large_an_axis(tf, run):
    fed(tf, run, lambda x: tf.reduce_sum(x, axis=3), x=np.ones(3, F))


@mistake()
def fed_argmax_over_too_large_an_axis(tf, run):
    fed(tf, run, lambda x: tf.argmax(x, axis=3), x=np.ones(3, F))


@mistake()
def fed_transpose_by_a_long_permutation(tf, run):
    fed(tf, run, lambda x: tf.transpose(x, [1, 0, 2]), x=np.ones([2, 3], F))


@mistake()
def fed_expand_dims_too_far(tf, run):
    fed(tf, run, lambda x: tf.expand_dims(x, 4), x=np.ones([2, 3], F))


@mistake()
def fed_squeeze_of_a_large_dimension(tf, run):
    fed(tf, run, lambda x: tf.squeeze(x, [0]), x=np.ones([2, 3], F))


@mistake()
def fed_tile_by_too_few_multiples(tf, run):
    fed(tf, run, lambda m, x: tf.tile(x, m), x=np.ones([2, 3], F), m=np.array([2], np.int32))


@mistake()
def fed_pad_by_negative_amounts(tf, run):
    fed(tf, run, lambda p, x: tf.pad(x, p), x=np.ones([2], F), p=np.array([[-1, 0]], np.int32))


@mistake()
def fed_split_that_does_not_divide(tf, run):
    fed(tf, run, lambda x: tf.split(x, 2, num=None), x=np.ones([5], F))


@mistake()
def fed_sparse_cross_entropy_of_a_high_label(tf, run):
    def loss(labels, logits):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)

    fed(tf, run, loss, labels=np.array([4]), logits=np.ones([1, 3], F))


@mistake()
def fed_cross_entropy_of_other_sizes(tf, run):
    def loss(labels, logits):
        return tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)

    fed(tf, run, loss, labels=np.ones([2, 3], F), logits=np.ones([2, 4], F))


@mistake()
def fed_convolution_of_other_channels(tf, run):
    def conv(w, x):
        return tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")

    fed(tf, run, conv, x=np.ones([1, 5, 5, 2], F), w=np.ones([3, 3, 3, 1], F))


@mistake()
def fed_bias_of_other_size(tf, run):
    fed(tf, run, lambda x, y: tf.nn.bias_add(x, y), x=np.ones([2, 3], F), y=np.ones([4], F))


@mistake()
def fed_integer_division_by_zero(tf, run):
    fed(tf, run, lambda x, y: x // y, x=np.array([1]), y=np.array([0]))


@mistake()
def fed_modulo_of_zero(tf, run):
    fed(tf, run, lambda x, y: x % y, x=np.array([1]), y=np.array([0]))


@mistake()
def fed_not_a_number(tf, run):
    fed(tf, run, lambda x: tf.check_numerics(x, "bad loss"), x=np.array([np.nan], F))


@mistake()
def fed_infinity(tf, run):
    fed(tf, run, lambda x: tf.check_numerics(x, "bad loss"), x=np.array([np.inf], F))


@mistake("assertion failed: [x must be positive]")
def fed_assertion(tf, run):
    def check(x):
        with tf.control_dependencies([tf.Assert(tf.reduce_all(x > 0), ["x must be positive", x])]):
            return tf.identity(x)

    fed(tf, run, check, x=np.array([-1.0], F))


@mistake("assertion failed: [")
def fed_assert_equal(tf, run):
    fed(tf, run, lambda x, y: tf.assert_equal(x, y), x=np.array([1]), y=np.array([2]))


@mistake()
def assert_equal_of_constants(tf, run):
    tf.assert_equal(tf.constant(1), tf.constant(2))


@mistake()
def fed_inverse_of_a_singular_matrix(tf, run):
    fed(tf, run, tf.matrix_inverse, x=np.ones([2, 2], F))


@mistake()
def fed_cholesky_of_no_positive_matrix(tf, run):
    fed(tf, run, tf.cholesky, x=-np.eye(2, dtype=F))


@mistake()
def fed_string_that_is_no_number(tf, run):
    run(tf.string_to_number(tf.constant(["a"])))


@mistake("Field 1 in record 0 is not a valid float: x")
def fed_csv_that_is_no_number(tf, run):
    run(tf.decode_csv(tf.constant(["1,x"]), [[0.0], [0.0]]))


@mistake()
def fed_csv_of_too_few_fields(tf, run):
    run(tf.decode_csv(tf.constant(["1"]), [[0.0], [0.0]]))


@mistake()
def fed_raw_bytes_of_another_length(tf, run):
    run(tf.decode_raw(tf.constant(["abc"]), tf.int32))


@mistake("Could not parse example input")
def fed_example_that_is_none(tf, run):
    run(tf.parse_single_example(tf.constant("abc"), {"x": tf.FixedLenFeature([], tf.float32)}))


@mistake("Feature: x (data type: float) is required but could not be found.")
def fed_example_without_a_feature(tf, run):
    run(tf.parse_single_example(tf.constant(""), {"x": tf.FixedLenFeature([], tf.float32)}))


@mistake()
def fed_unsorted_segments_out_of_range(tf, run):
    i = np.array([5], np.int32)
    fed(tf, run, lambda i, x: tf.unsorted_segment_sum(x, i, 3), x=np.ones(1, F), i=i)


@mistake()
def fed_segments_out_of_order(tf, run):
    i = np.array([1, 0], np.int32)
    fed(tf, run, lambda i, x: tf.segment_sum(x, i), x=np.ones(2, F), i=i)


@mistake()
def fed_sparse_indices_out_of_order(tf, run):
    i = np.array([[1], [0]], np.int64)
    fed(tf, run, lambda i: tf.sparse_to_dense(i, [3], tf.ones([2])), i=i)


@mistake()
def fed_top_k_of_too_many(tf, run):
    fed(tf, run, lambda x: tf.nn.top_k(x, 5)[0], x=np.ones(3, F))


@mistake()
def fed_in_top_k_of_another_length(tf, run):
    i = np.array([0, 1, 2], np.int32)
    fed(tf, run, lambda i, x: tf.nn.in_top_k(x, i, 1), x=np.ones([2, 3], F), i=i)


@mistake()
def fed_assignment_of_another_shape(tf, run):
    v = tf.Variable(tf.zeros([3]), name="v")
    x = tf.placeholder(tf.float32)
    run(tf.assign(v, x), {x: [1.0]})


@mistake()
def fed_range_of_no_step(tf, run):
    fed(tf, run, lambda x: tf.range(0, 3, x), x=np.array(0, np.int32))


@mistake()
def fed_fill_of_a_negative_size(tf, run):
    fed(tf, run, lambda x: tf.fill(x, 1.0), x=np.array([-1], np.int32))


@mistake()
def fed_python_function_of_another_type(tf, run):
    run(tf.py_func(lambda: np.ones(2), [], tf.int32))


@mistake("ValueError: no such row")
def fed_python_function_that_raises(tf, run):
    def load():
        raise ValueError("no such row")

    run(tf.py_func(load, [], tf.float32))


@mistake("ZeroDivisionError: division by zero")
def fed_python_function_that_divides_by_zero(tf, run):
    run(tf.py_func(lambda: 1 / 0, [], tf.float32))


# -- Control flow ----------------------------------------------------------------------------------


@mistake()
def branches_of_two_types(tf, run):
    tf.cond(tf.placeholder(tf.bool), lambda: 1.0, lambda: 1)


@mistake("The two structures don't have the same nested structure.")
def branches_of_two_structures(tf, run):
    tf.cond(tf.placeholder(tf.bool), lambda: 1.0, lambda: [1.0, 2.0])


@mistake()
def branch_that_returns_nothing(tf, run):
    tf.cond(tf.placeholder(tf.bool), lambda: None, lambda: None)


@mistake()
def branch_that_is_no_function(tf, run):
    tf.cond(tf.placeholder(tf.bool), 1.0, 2.0)


@mistake()
def predicate_that_is_a_bool(tf, run):
    tf.cond(True, lambda: 1.0, lambda: 2.0)


@mistake()
def loop_without_variables(tf, run):
    tf.while_loop(lambda: True, lambda: [], [])


@mistake("The two structures don't have the same nested structure.")
def loop_that_returns_other_variables(tf, run):
    tf.while_loop(lambda i: i < 3, lambda i: (i, i), [tf.constant(0)])


@mistake("Cannot use 'while/inside' as input to 'outside' because 'while/inside' is in a while ")
def value_that_leaves_its_loop(tf, run):
    seen = []

    def body(i):
        seen.append(tf.add(i, 1, name="inside"))
        return seen[0]

    tf.while_loop(lambda i: i < 3, body, [0])
    tf.multiply(seen[0], 2, name="outside")


@mistake("Operation 'while/inside' has been marked as not fetchable.")
def value_that_leaves_its_loop_is_fetched(tf, run):
    seen = []

    def body(i):
        seen.append(tf.add(i, 1, name="inside"))
        return seen[0]

    tf.while_loop(lambda i: i < 3, body, [0])
    run(seen[0])


@mistake(
    "Could not read from TensorArray index 1.  Furthermore, the element shape is not fully defined",
)
def tensor_array_read_before_it_is_written(tf, run):
    run(tf.TensorArray(tf.float32, 3).read(1))


@mistake()
def tensor_array_written_out_of_range(tf, run):
    run(tf.TensorArray(tf.float32, 3).write(5, 1.0).flow)


@mistake()
def tensor_array_written_twice(tf, run):
    array = tf.TensorArray(tf.float32, 3).write(0, 1.0).write(0, 2.0)
    run(array.flow)


@mistake()
def tensor_array_read_twice(tf, run):
    array = tf.TensorArray(tf.float32, 1).write(0, 1.0)
    with tf.control_dependencies([array.read(0)]):
        again = array.read(0)
    run(again)


@mistake()
def case_of_no_pairs(tf, run):
    tf.case([3], lambda: 1)


# -- Other ops, layers and training ----------------------------------------------------------------


@mistake()
def cell_without_a_type_of_state(tf, run):
    tf.nn.dynamic_rnn(tf.nn.rnn_cell.LSTMCell(3), tf.ones([2, 4, 5]))


@mistake()
def loss_of_other_shapes(tf, run):
    tf.losses.mean_squared_error(tf.ones([2]), tf.ones([3]))


@mistake()
def loss_without_labels(tf, run):
    tf.losses.mean_squared_error(None, tf.ones([3]))


@mistake()
def metric_of_other_shapes(tf, run):
    tf.metrics.accuracy(tf.ones([2]), tf.ones([3]))


@mistake()
def no_gradients_to_apply(tf, run):
    tf.train.GradientDescentOptimizer(0.1).apply_gradients([])


@mistake()
def layer_of_integers(tf, run):
    tf.layers.dense(tf.ones([2, 3], tf.int32), 2)


@mistake()
def layer_of_a_name_that_is_taken(tf, run):
    for _ in range(2):
        tf.layers.dense(tf.ones([2, 3]), 2, name="a")


@mistake()
def layer_reused_for_another_size(tf, run):
    tf.layers.dense(tf.ones([2, 3]), 2, name="a")
    tf.layers.dense(tf.ones([2, 4]), 2, name="a", reuse=True)


@mistake("Invalid pattern: (, error: missing )")
def bad_regular_expression(tf, run):
    run(tf.regex_replace(tf.constant("abc"), "(", ""))


@mistake()
def bad_base64(tf, run):
    run(tf.decode_base64(tf.constant("%%")))


@mistake()
def updates_of_another_shape(tf, run):
    tf.scatter_nd([[1]], tf.ones([2]), [3])


@mistake()
def partitions_of_another_shape(tf, run):
    tf.dynamic_partition(tf.ones([3]), [0, 1], 2)


@mistake()
def fed_permutation_that_is_none(tf, run):
    fed(tf, run, tf.invert_permutation, x=np.array([1, 1], np.int32))


@mistake()
def shape_that_is_ensured_in_vain(tf, run):
    tf.ensure_shape(tf.ones([3]), [2])


@mistake()
def default_of_another_shape(tf, run):
    tf.placeholder_with_default(tf.ones([2]), [3])


@mistake()
def softmax_along_too_large_an_axis(tf, run):
    tf.nn.softmax(tf.ones([2, 3]), axis=5)


@mistake()
def slice_by_a_step_of_zero(tf, run):
    tf.strided_slice(tf.ones([3]), [0], [2], [0])


@mistake()
def index_that_is_a_word(tf, run):
    tf.ones([3])["a"]


@mistake()
def rank_that_is_asserted_in_vain(tf, run):
    tf.assert_rank(tf.ones([3]), 2)


@mistake()
def mapped_function_of_another_structure(tf, run):
    tf.map_fn(lambda x: (x, x), tf.ones([2]))


@mistake()
def missing_meta_graph(tf, run):
    tf.train.import_meta_graph("/nonexistent.meta")


# -- Queues, files and threads ---------------------------------------------------------------------


@mistake("is closed and has insufficient elements (requested 1, current size 0)")
def dequeue_from_a_closed_queue(tf, run):
    queue = tf.FIFOQueue(3, tf.float32)
    run(queue.close())
    run(queue.dequeue())


@mistake("is closed and has insufficient elements (requested 3, current size 1)")
def dequeue_many_from_a_closed_queue(tf, run):
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[]])
    run(queue.enqueue(1.0))
    run(queue.close())
    run(queue.dequeue_many(3))


@mistake("is closed.")
def enqueue_into_a_closed_queue(tf, run):
    queue = tf.FIFOQueue(3, tf.float32)
    run(queue.close())
    run(queue.enqueue(1.0))


@mistake("is already closed.")
def close_of_a_closed_queue(tf, run):
    queue = tf.FIFOQueue(3, tf.float32)
    close = queue.close()
    run(close)
    run(close)


@mistake()
def enqueue_of_another_type(tf, run):
    tf.FIFOQueue(3, tf.float32).enqueue(tf.constant(1))


@mistake()
def enqueue_of_another_shape(tf, run):
    tf.FIFOQueue(3, tf.float32, shapes=[[2]]).enqueue(tf.ones([3]))


@mistake("Shape mismatch in tuple component 0. Expected [2], got [3]")
def fed_enqueue_of_another_shape(tf, run):
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[2]])
    x = tf.placeholder(tf.float32)
    run(queue.enqueue(x), {x: np.ones(3)})


@mistake("DequeueMany and DequeueUpTo require the components to have specified shapes.")
def dequeue_many_without_shapes(tf, run):
    run(tf.FIFOQueue(3, tf.float32).dequeue_many(2))


@mistake("Timed out waiting for notification")
def deadline_that_passes(tf, run):
    run(tf.FIFOQueue(3, tf.float32).dequeue(), options=tf.RunOptions(timeout_in_ms=50))


@mistake("; No such file or directory")
def missing_file(tf, run):
    run(tf.read_file(os.path.join(tempfile.mkdtemp(), "nothing")))


@mistake("; No such file or directory")
def missing_file_of_gfile(tf, run):
    tf.gfile.GFile(os.path.join(tempfile.mkdtemp(), "nothing")).read()


@mistake("Could not find directory ")
def missing_directory(tf, run):
    tf.gfile.ListDirectory(os.path.join(tempfile.mkdtemp(), "nothing"))


@mistake()
def damaged_records(tf, run):
    path = os.path.join(tempfile.mkdtemp(), "records")
    with open(path, "wb") as f:
        f.write(b"x" * 40)
    list(tf.python_io.tf_record_iterator(path))


@mistake()
def table_that_is_not_initialized(tf, run):
    table = tf.contrib.lookup.index_table_from_tensor(["a"])
    run(table.lookup(tf.constant(["a"])))


@mistake()
def shared_queue_of_another_kind(tf, run):
    a = tf.FIFOQueue(3, tf.float32, shared_name="q")
    b = tf.FIFOQueue(4, tf.float32, shared_name="q")
    run(a.size())
    run(b.size())


@mistake("Cannot assign a device for operation a")
def device_that_does_not_exist(tf, run):
    with tf.device("/device:GPU:7"):
        a = tf.constant(1.0, name="a")
    run(a)


@mistake("Op type not registered 'NoSuchOp'")
def imported_graph_without_an_op(tf, run):
    graph = tf.GraphDef()
    graph.node.add(name="a", op="NoSuchOp")
    tf.import_graph_def(graph)


@mistake()
def imported_graph_without_an_input(tf, run):
    graph = tf.GraphDef()
    node = graph.node.add(name="a", op="Neg", input=["b"])
    node.attr["T"].type = 1
    tf.import_graph_def(graph)


@mistake("Value for attr 'padding' of \"SOME\" is not in the list of allowed values: ")
def imported_graph_with_a_bad_attribute(tf, run):
    with tf.Graph().as_default() as g:
        x, w = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
    graph = g.as_graph_def()
    graph.node[-1].attr["padding"].s = b"SOME"
    tf.import_graph_def(graph)


@mistake()
def import_of_no_graph(tf, run):
    tf.import_graph_def("graph.pb")


@mistake()
def input_map_of_a_missing_node(tf, run):
    with tf.Graph().as_default() as g:
        tf.placeholder(tf.float32, name="x")
    tf.import_graph_def(g.as_graph_def(), input_map={"y:0": tf.constant(1.0)})


@mistake()
def returned_element_that_is_missing(tf, run):
    with tf.Graph().as_default() as g:
        tf.placeholder(tf.float32, name="x")
    tf.import_graph_def(g.as_graph_def(), return_elements=["y:0"])
