"""The law of absurd sizes: an integer that is far too large, in any input or attribute of any op,
makes the step raise an error before memory is allocated for it, or has no effect; both quickly.
"""

import time
import tracemalloc

import numpy as np
import pytest

import headrace as tf
from headrace._src.graph.definition import definitions
from headrace._src.ops.base.samples import calls
from tests.laws.absurd import absurd
from tests.laws.count import count_check
from tests.laws.exemptions import NO_BAD_INPUT
from tests.laws.memory import ALLOWANCE, LIMITED, little_memory
from tests.laws.test_laws import feeds, observed

OPS = sorted(o for o in definitions() if o not in NO_BAD_INPUT)

MOST_MEMORY = 64 << 20
MOST_SECONDS = 5.0


def session_of(graph, compiled):
    levels = tf.OptimizerOptions
    level = levels.ON_1 if compiled else levels.OFF
    options = tf.GraphOptions(optimizer_options=levels(global_jit_level=level))
    return tf.Session(graph=graph, config=tf.ConfigProto(graph_options=options))


def attempt(definition, sample, types, static):
    """Build the op and run it; returns the error, if there is one."""
    try:
        op, arrays = calls(definition, sample, types, static=static)
        with session_of(op.graph, static) as session:
            for initializer in op.graph.get_collection("initializers"):
                session.run(initializer)
            session.run(observed(op) or op, feeds(op, arrays))
    except (tf.errors.OpError, TypeError, ValueError) as error:
        return error
    return None


def measured(attempt, traced=True):
    """Return the result of `attempt`, its peak memory if that is `traced`, which makes everything
    four times slower, and its processor time.
    """
    if traced:
        tracemalloc.start()
    began = time.process_time()
    try:
        error = attempt()
        return error, tracemalloc.get_traced_memory()[1], time.process_time() - began
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("op_type", OPS)
def test_absurd_sizes_are_refused_at_once(op_type):
    definition = definitions()[op_type]
    wrong = []
    with little_memory():
        for what, value, sample, types in absurd(definition):
            # An array in proportion to more than the allowance is not allocated.
            traced = value < ALLOWANCE or not LIMITED
            for static in (False, True) if definition.lower is not None else (False,):
                error, memory, seconds = measured(
                    lambda: attempt(definition, sample, types, static),  # noqa: B023
                    traced,
                )
                late = "Unable to allocate" in str(error)  # NumPy's own message: unchecked
                if memory > MOST_MEMORY or seconds > MOST_SECONDS or late:
                    wrong.append(f"{what}: {memory >> 20} MiB, {seconds:.1f} s, {error}")
                if isinstance(error, tf.errors.InternalError):
                    wrong.append(f"{what}: {error}")
                count_check()
    assert not wrong, "\n".join(wrong)


IMAGE = np.ones((1, 4, 4, 1), np.float32)
MANY = 2**31 - 1
LONG = np.array([[1]])  # an index of 64 bits
POOL = {"ksize": [1, 2**20, 2**20, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
ROW = {"ksize": [1, 2**20, 1, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
REQUESTS = {
    "as_string width": lambda: tf.as_string([1.5], width=2**30),
    "as_string precision": lambda: tf.as_string([1.5], precision=2**30),
    "average window": lambda: tf.nn.avg_pool(IMAGE, **POOL),
    "broadcast_to": lambda: tf.broadcast_to(1.0, np.array([2**20, 2**30])),
    "bincount": lambda: tf.math.bincount([MANY - 1]),
    "constant": lambda: tf.constant(1.0, shape=[2**20, 2**30]),
    "dynamic_stitch": lambda: tf.dynamic_stitch([[0], [MANY]], [[1.0], [2.0]]),
    "eye": lambda: tf.eye(2**20),
    "fill": lambda: tf.fill(np.array([2**20, 2**30]), 1.0),
    "histogram": lambda: tf.histogram_fixed_width([1.0], [0.0, 2.0], nbins=MANY),
    "linspace": lambda: tf.linspace(0.0, 1.0, MANY),
    "max window": lambda: tf.nn.max_pool(IMAGE, **POOL),
    "max window of one axis": lambda: tf.nn.max_pool(IMAGE, **ROW),
    "multinomial": lambda: tf.multinomial([[1.0, 2.0]], MANY),
    "n-grams": lambda: tf.raw_ops.StringNGrams(
        data=["a", "b"],
        data_splits=[0, 2],
        separator=" ",
        ngram_widths=[2**24],
        left_pad="",
        right_pad="",
        pad_width=-1,
        preserve_short_sequences=False,
    ),
    "one_hot": lambda: tf.one_hot([1, 2], MANY),
    "pad": lambda: tf.pad([1.0], [[MANY, MANY]]),
    "patches": lambda: tf.extract_image_patches(
        IMAGE, [1, 2**20, 2**20, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME"
    ),
    "random_uniform": lambda: tf.random_uniform(np.array([2**20, 2**30])),
    "range": lambda: tf.range(0.0, 1.0, 1e-12),
    "repeat": lambda: tf.repeat([1.0, 2.0], MANY),
    "scatter_nd": lambda: tf.scatter_nd(LONG, [1.0], np.array([2**40])),
    "sequence_mask": lambda: tf.sequence_mask([1, 2], 2**40),
    "space_to_batch": lambda: tf.space_to_batch(IMAGE, [[0, MANY - 3], [0, 0]], 2),
    "sparse_to_dense": lambda: tf.sparse_to_dense(LONG, np.array([2**40]), [1.0]),
    "sparse_reduce_sum": lambda: tf.sparse_reduce_sum(
        tf.SparseTensor([[1, 1]], [1.0], [2**40, 2]), 1
    ),
    "split": lambda: tf.split(np.ones([4], np.float32), 2**30),
    "tensor array": lambda: tf.TensorArray(tf.float32, MANY).write(0, 1.0).concat(),
    "tensor array that grows": lambda: (
        tf.TensorArray(tf.float32, 1, dynamic_size=True).write(MANY - 1, 1.0).size()
    ),
    "tensor list": lambda: tf.raw_ops.TensorListLength(
        input_handle=tf.raw_ops.TensorListReserve(
            element_shape=[2], num_elements=MANY, element_dtype=tf.float32
        )
    ),
    "tensor list by index": lambda: tf.raw_ops.TensorListLength(
        input_handle=tf.raw_ops.TensorListScatter(
            tensor=[1.0], indices=[MANY - 1], element_shape=np.zeros([0], np.int32)
        )
    ),
    "table": lambda: tf.contrib.lookup.MutableDenseHashTable(
        tf.int64, tf.float32, 0.0, 0, deleted_key=1, initial_num_buckets=2**40
    ).size(),
    "tile": lambda: tf.tile([1.0], [MANY]),
    "unsorted_segment_sum": lambda: tf.unsorted_segment_sum([1.0], [0], MANY),
    "window of a sum of rows": lambda: tf.nn.avg_pool(IMAGE, **ROW),
    "zeros": lambda: tf.zeros([2**20, 2**30]),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_absurd_requests_exhaust_resources(name, compiled):
    def run():
        with tf.Graph().as_default() as graph, pytest.raises(tf.errors.ResourceExhaustedError):
            value = REQUESTS[name]()
            with session_of(graph, compiled) as session:
                session.run(value)

    with little_memory():
        _, memory, seconds = measured(run)
    assert memory < MOST_MEMORY
    assert seconds < MOST_SECONDS
    count_check()


def test_messages_say_what_asked_for_how_much():
    refused = pytest.raises(tf.errors.ResourceExhaustedError)
    with tf.Graph().as_default(), tf.Session() as session, refused as caught:
        session.run(tf.one_hot([1, 2], MANY, name="classes"))
    message = str(caught.value)
    assert message.startswith(
        "OneHot 'classes': OOM when allocating tensor with shape[2,2147483647]"
    )
    assert "depth asks for 17,179,869,176 bytes" in message


def test_what_there_is_room_for_is_not_refused():
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(tf.shape(tf.one_hot([1], 2**22))).tolist() == [1, 2**22]
        assert len(session.run(tf.as_string(1.5, width=2**16))) == 2**16
        pooled = session.run(tf.nn.max_pool(IMAGE, [1, 99, 99, 1], [1, 1, 1, 1], "SAME"))
        assert pooled.shape == IMAGE.shape
