"""Input producers and batches, with the threads that fill their queues."""

from tests.oracle.sequences import sequence


def drain(tf, run, fetches, times):
    """Start the queue runners, run the fetches so often, and stop."""
    run.session.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(run.session, coordinator)
    for _ in range(times):
        run(fetches)
    coordinator.request_stop()
    run.attempt(lambda: coordinator.join(threads))


@sequence
def strings_in_order(tf, run):
    queue = tf.train.string_input_producer(["a", "b", "c"], num_epochs=2, shuffle=False)
    drain(tf, run, queue.dequeue(), 7)


@sequence
def strings_in_random_order(tf, run):
    queue = tf.train.string_input_producer(["a", "b", "c", "d"], num_epochs=3, seed=1)
    drain(tf, run, queue.dequeue(), 12)


@sequence
def ranges(tf, run):
    queue = tf.train.range_input_producer(4, num_epochs=1, seed=3)
    drain(tf, run, queue.dequeue_many(4), 2)


@sequence
def slices(tf, run):
    rows = tf.constant([[1, 2], [3, 4], [5, 6]])
    pair = tf.train.slice_input_producer([rows, ["x", "y", "z"]], num_epochs=2, shuffle=False)
    drain(tf, run, pair, 7)


@sequence
def batches(tf, run):
    number = tf.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.batch([number, tf.fill([2], number)], 3)
    drain(tf, run, batch, 3)


@sequence
def smaller_last_batch(tf, run):
    number = tf.train.range_input_producer(7, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.batch({"n": number}, 3, allow_smaller_final_batch=True)
    drain(tf, run, batch, 4)


@sequence
def padded_batches(tf, run):
    number = tf.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
    row = tf.fill(tf.reshape(number, [1]), number)
    row.set_shape([None])
    batch = tf.train.batch([row], 3, dynamic_pad=True)
    drain(tf, run, batch, 3)


@sequence
def batches_of_many(tf, run):
    numbers = tf.train.range_input_producer(8, num_epochs=1, shuffle=False).dequeue_many(4)
    batch = tf.train.batch([numbers], 3, enqueue_many=True, allow_smaller_final_batch=True)
    drain(tf, run, batch, 4)


@sequence
def chosen_of_many(tf, run):
    numbers = tf.train.range_input_producer(8, num_epochs=1, shuffle=False).dequeue_many(4)
    odd = tf.equal(numbers % 2, 1)
    batch = tf.train.maybe_batch([numbers], odd, 2, enqueue_many=True)
    drain(tf, run, batch, 3)


@sequence
def chosen_one_by_one(tf, run):
    number = tf.train.range_input_producer(8, num_epochs=1, shuffle=False).dequeue()
    batch = tf.train.maybe_batch([number], tf.greater(number, 3), 2)
    drain(tf, run, batch, 3)


@sequence
def sparse_batches(tf, run):
    number = tf.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
    index = tf.cast(tf.reshape(number, [1, 1]), tf.int64)
    sparse = tf.SparseTensor(index, [tf.cast(number, tf.float32)], [5])
    batch = tf.train.batch([sparse, number], 2)
    drain(tf, run, [batch[0].indices, batch[0].values, batch[0].dense_shape, batch[1]], 2)


@sequence
def sparse_batches_of_many(tf, run):
    number = tf.train.range_input_producer(2, num_epochs=1, shuffle=False).dequeue()
    value = tf.cast(number, tf.float32)
    sparse = tf.SparseTensor([[0, 1], [0, 2], [2, 0]], [value, value + 10, value + 20], [3, 4])
    batch = tf.train.batch([sparse], 3, enqueue_many=True)
    drain(tf, run, [batch.indices, batch.values, batch.dense_shape], 2)


@sequence
def sparse_maps(tf, run):
    add = tf.raw_ops.AddSparseToTensorsMap(
        sparse_indices=[[0], [2]], sparse_values=["a", "b"], sparse_shape=[3], shared_name="map"
    )
    numbers = tf.placeholder(tf.int64)
    take = tf.raw_ops.TakeManySparseFromTensorsMap(
        sparse_handles=numbers, dtype=tf.string, shared_name="map"
    )
    run(add)
    run(add)
    run(list(take), {numbers: [1, 0]})
    run(add)
    run(list(take), {numbers: [2]})


@sequence
def mistakes(tf, run):
    run.attempt(lambda: tf.train.string_input_producer([]))
    run.attempt(lambda: tf.train.range_input_producer(3, num_epochs=0))
    run.attempt(lambda: tf.train.input_producer(tf.placeholder(tf.int32)))
    run.attempt(lambda: tf.train.batch([], 2))
    run.attempt(lambda: tf.train.batch_join([], 2))
    run.attempt(lambda: tf.train.slice_input_producer([]))
    run.attempt(lambda: tf.train.maybe_batch([1], [True], 2))
    run.attempt(lambda: tf.train.maybe_batch([1], [[True]], 2, enqueue_many=True))
    run.attempt(lambda: tf.train.batch([tf.placeholder(tf.int32, [None])], 2))
    run.attempt(lambda: tf.train.QueueRunner())
    run.attempt(lambda: tf.train.start_queue_runners())
    run.attempt(lambda: tf.train.LooperThread(None, 1.0))


@sequence
def empty_strings(tf, run):
    strings = tf.placeholder_with_default(tf.constant([], tf.string), [None])
    queue = tf.train.string_input_producer(strings, shuffle=False)
    enqueue = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)[0].enqueue_ops[0]
    run(enqueue)
    run(queue.size())
