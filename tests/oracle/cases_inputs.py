"""Input producers and batches: the graphs that they build. Their outputs are in
sequences_inputs.py, since there are none without queue runners.
"""

from tests.oracle.case import case


def count_of_runners(tf):
    return len(tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS))


def built(function):
    """A case that runs nothing but a constant: the graph is what counts."""

    def build(tf):
        function(tf)
        return [tf.constant(count_of_runners(tf)), tf.constant(len(tf.local_variables()))]

    build.__name__ = function.__name__
    build.__module__ = function.__module__
    return case(build)


@built
def string_input_producer(tf):
    tf.train.string_input_producer(["a", "b"], num_epochs=2, seed=1)
    tf.train.string_input_producer(["a", "b"], shuffle=False, capacity=5, name="named")


@built
def range_input_producer(tf):
    tf.train.range_input_producer(5, num_epochs=1, shuffle=False)
    tf.train.range_input_producer(tf.constant(5), seed=1, shared_name="s")


@built
def slice_input_producer(tf):
    tf.train.slice_input_producer([tf.ones([4, 2]), tf.constant([1, 2, 3, 4])], seed=3)


@built
def input_producer(tf):
    tf.train.input_producer(tf.placeholder(tf.int32), element_shape=[2], shuffle=False)
    tf.train.input_producer(tf.ones([3, 2]), summary_name="full", shuffle=False)


@built
def match_filenames_once(tf):
    tf.train.match_filenames_once("tests/oracle/*.nothing", name="files")
    tf.train.match_filenames_once(["tests/oracle/*.nothing", "tests/golden/*.nothing"])


@built
def limit_epochs(tf):
    tf.train.limit_epochs(tf.constant([1, 2]), num_epochs=3)
    tf.train.limit_epochs(tf.constant([1, 2]))


@built
def batch(tf):
    x, y = tf.constant(1), tf.constant([1.0, 2.0])
    tf.train.batch([x, y], 4, num_threads=2)
    tf.train.batch({"b": x, "a": y}, 4, allow_smaller_final_batch=True, name="dictionary")
    tf.train.batch([y], tf.constant(2), enqueue_many=True, capacity=7)
    tf.train.batch([tf.placeholder(tf.int32, [None])], 2, dynamic_pad=True)
    tf.train.batch([tf.placeholder(tf.int32)], 2, shapes=[[3]], shared_name="s")


@built
def batch_join(tf):
    tf.train.batch_join([[tf.constant(i), tf.ones([2])] for i in range(3)], 4)
    tf.train.batch_join(
        [{"x": tf.placeholder(tf.float32, [None])} for _ in range(2)],
        4,
        dynamic_pad=True,
        allow_smaller_final_batch=True,
    )


@built
def shuffle_batch(tf):
    tf.train.shuffle_batch([tf.constant(1), tf.ones([2])], 4, 20, 5, seed=2)
    tf.train.shuffle_batch_join([[tf.constant(i)] for i in range(2)], 4, 20, 5, seed=2)


@built
def maybe_batch(tf):
    x = tf.constant([1, 2, 3])
    tf.train.maybe_batch([x], tf.constant([True, False, True]), 2, enqueue_many=True)
    tf.train.maybe_shuffle_batch([x], 2, 10, 1, tf.greater(x, 2), seed=1, enqueue_many=True)
    tf.train.maybe_batch([x], False, 2)
