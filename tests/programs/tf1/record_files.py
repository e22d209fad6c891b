"""TFRecords: written, read by a reader of a file queue, parsed, batched."""

import os
import shutil
import tempfile

import numpy as np


def write(tf, path, rng, count):
    writer = tf.python_io.TFRecordWriter(path)
    for i in range(count):
        image = rng.randint(0, 255, (4, 4), "uint8")
        feature = {
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 3])),
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
            "weight": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5 + i / 10.0])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writer.write(example.SerializeToString())
    writer.close()


def run(tf):
    tf.set_random_seed(100)
    rng = np.random.RandomState(100)
    folder = tempfile.mkdtemp()
    try:
        names = [os.path.join(folder, f"part-{i}.tfrecords") for i in range(2)]
        for name in names:
            write(tf, name, rng, 6)
        queue = tf.train.string_input_producer(names, num_epochs=2, shuffle=False)
        reader = tf.TFRecordReader()
        _, serialized = reader.read(queue)
        features = tf.parse_single_example(
            serialized,
            features={
                "label": tf.FixedLenFeature([], tf.int64),
                "image": tf.FixedLenFeature([], tf.string),
                "weight": tf.FixedLenFeature([], tf.float32),
            },
        )
        image = tf.reshape(tf.decode_raw(features["image"], tf.uint8), [16])
        image = tf.cast(image, tf.float32) / 255.0 - 0.5
        images, labels, weights = tf.train.batch(
            [image, features["label"], features["weight"]], batch_size=4, num_threads=1
        )
        logits = tf.layers.dense(images, 3)
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits, weights=weights)
        train = tf.train.FtrlOptimizer(0.5).minimize(loss)
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(session, coord)
            for _ in range(5):
                found = session.run([loss, labels, weights, train])
                yield [found[0], found[1].sum(), found[2].sum()]
            coord.request_stop()
            coord.join(threads)
    finally:
        shutil.rmtree(folder)
