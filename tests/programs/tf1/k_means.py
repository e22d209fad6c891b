"""k-means with segment ops: assignments, means, inertia; Lloyd's iterations inside one graph."""

import numpy as np


def run(tf):
    rng = np.random.RandomState(10)
    points = np.concatenate([rng.randn(40, 3) + 4 * rng.randn(3) for _ in range(5)])
    data = tf.constant(points, tf.float32, name="points")
    k = 5
    first = tf.random_shuffle(data, seed=12)[:k]
    centers = tf.Variable(first, name="centers")
    iteration = tf.Variable(0, trainable=False, name="iteration")

    differences = tf.expand_dims(data, 1) - tf.expand_dims(centers, 0)
    distances = tf.reduce_sum(differences**2, reduction_indices=2)
    nearest = tf.argmin(distances, axis=1, output_type=tf.int32)
    inertia = tf.reduce_sum(tf.reduce_min(distances, axis=1))
    counts = tf.unsorted_segment_sum(tf.ones_like(nearest), nearest, k)
    sums = tf.unsorted_segment_sum(data, nearest, k)
    means = tf.where(counts > 0, sums / tf.to_float(tf.maximum(counts, 1))[:, None], centers)

    # The same through sorted segments: order the points by their cluster first.
    order = tf.argsort(nearest, stable=True)
    clusters, places, sizes = tf.unique_with_counts(tf.gather(nearest, order))
    sorted_means = tf.segment_mean(tf.gather(data, order), places)
    farthest = tf.segment_max(tf.gather(tf.reduce_min(distances, 1), order), places)
    same = tf.reduce_max(tf.abs(sorted_means - tf.gather(means, clusters)))
    parts = tf.dynamic_partition(data, nearest, k)
    spread = tf.stack([tf.reduce_sum(p) for p in parts])
    tf.get_default_graph().add_to_collection("checks", same < 1e-4)

    fetches = [inertia, tf.reduce_sum(farthest), tf.reduce_max(sizes), tf.norm(spread)]
    with tf.control_dependencies(fetches + [same]):
        train = tf.group(tf.assign(centers, means), iteration.assign_add(1))
    with tf.Session() as session:
        session.run(tf.initialize_all_variables())
        for _ in range(10):
            values = session.run(fetches + tf.get_collection("checks") + [train])[:-1]
            yield values + [iteration.eval()]
