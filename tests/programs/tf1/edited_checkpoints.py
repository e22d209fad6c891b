"""Scripts around checkpoints: the average of several, one with other names, and models that start
from a part of one: by a dict of names, by scopes, cut into other parts.
"""

import os
import shutil
import tempfile

import numpy as np


def train(tf, directory):
    """A model with a partitioned table, saved every step; returns the checkpoints."""
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("model"):
            table = tf.get_variable(
                "table",
                [6, 2],
                initializer=tf.random_normal_initializer(seed=1),
                partitioner=tf.fixed_size_partitioner(3),
            )
            w = tf.get_variable("w", initializer=np.arange(2, dtype=np.float32))
        step = tf.train.get_or_create_global_step()
        rows = tf.nn.embedding_lookup(table, [0, 3, 5], partition_strategy="div")
        loss = tf.reduce_sum(tf.square(rows * w - 1.0))
        update = tf.train.AdamOptimizer(0.1).minimize(loss, step)
        saver = tf.train.Saver(max_to_keep=None, pad_step_number=True)
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(update)
            saver.save(session, os.path.join(directory, "model"), global_step=step)
        return (
            saver.last_checkpoints
            or tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths
        )


def averaged(tf, paths):
    readers = [tf.train.NewCheckpointReader(path) for path in paths]
    names = [name for name, _ in tf.train.list_variables(paths[0]) if "Adam" not in name]
    return {
        name: np.mean([reader.get_tensor(name) for reader in readers], axis=0)
        for name in names
        if name.startswith("model/")
    }


def write(tf, values, path):
    """Save values under names of another scope, the way scripts do it."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name in sorted(values):
            tf.Variable(values[name], name=name.replace("model/", "old/"))
        for variable in tf.global_variables():
            session.run(variable.initializer)
        return tf.train.Saver().save(session, path, write_meta_graph=False, write_state=False)


def run(tf):
    directory = tempfile.mkdtemp()
    try:
        train(tf, directory)
        files = sorted(name for name in os.listdir(directory) if name.endswith(".index"))
        paths = [os.path.join(directory, name[: -len(".index")]) for name in files]
        yield [len(paths), tf.train.latest_checkpoint(directory) == paths[-1]]
        average = averaged(tf, paths)
        for name in sorted(average):
            yield average[name].ravel()
        path = write(tf, average, os.path.join(directory, "average"))
        yield [len(tf.train.list_variables(path)), os.path.exists(path + ".meta")]

        with tf.Graph().as_default(), tf.Session() as session:
            with tf.variable_scope("new", partitioner=tf.fixed_size_partitioner(2)):
                table = tf.get_variable("table", [6, 2])
            w = tf.get_variable("new/w", [2])
            head = tf.get_variable("head", initializer=[0.5])
            tf.train.init_from_checkpoint(path, {"old/": "new/"})
            session.run(tf.global_variables_initializer())
            yield session.run(tf.concat([tf.reshape(table, [-1]), w, head], 0))

        with tf.Graph().as_default(), tf.Session() as session:
            whole = tf.get_variable("whole", [6, 2])
            flat = tf.get_variable("flat", [12])
            tf.train.Saver({"model/table": whole}).restore(session, paths[0])
            tf.train.Saver({"old/table": flat}, reshape=True).restore(session, path)
            yield session.run(whole).ravel()
            yield session.run(flat)
            for saver, wanted in (
                (tf.train.Saver({"model/w": flat}), tf.errors.InvalidArgumentError),
                (tf.train.Saver({"model/v": whole}), tf.errors.NotFoundError),
            ):
                try:
                    saver.restore(session, paths[0])
                except wanted:
                    yield [1]
    finally:
        shutil.rmtree(directory)
