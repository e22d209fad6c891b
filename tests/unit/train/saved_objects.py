"""An object with variables, functions and a table, saved by tf.saved_model.save; and the checks of
what load_v2 returns, which run under TensorFlow 1.15.5 and Headrace alike.

This file must stay valid Python 3.7; scripts/record_saved_models.py says what it's for.
"""

import os

import numpy as np

VOCABULARY = os.path.join("tests", "fixtures", "vocabulary.txt")


def write_objects(tf, folder):
    """Write the model under TensorFlow, whose tf.function makes the functions."""

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable([2.0, 3.0], use_resource=True, name="scale")
            self.rest = [
                tf.Variable(1.0, use_resource=True, trainable=False),
                {"offset": tf.Variable(7.0, use_resource=True)},
            ]
            line = tf.lookup.TextFileIndex
            words = tf.lookup.TextFileInitializer(
                VOCABULARY, tf.string, line.WHOLE_LINE, tf.int64, line.LINE_NUMBER
            )
            self.table = tf.lookup.StaticHashTable(words, -1)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def apply(self, x):
            return {"y": x * self.scale, "z": (x + self.rest[1]["offset"],)}

        @tf.function
        def add(self, x, n=2, negate=False):
            return -x - n if negate else x + n

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
        def numbers(self, words):
            return self.table.lookup(words)

    model = Model()
    model.add(tf.constant([1.0]))
    model.add(tf.constant([1.0]), negate=True)
    served = tf.function(lambda x: {"scaled": model.scale * x}).get_concrete_function(
        tf.TensorSpec([None], tf.float32, name="x")
    )
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        tf.saved_model.save(model, folder, signatures=served)


def write_again(tf, source, folder):
    """Load the model, change a variable, and save what doesn't need the table."""
    with tf.Session() as session:
        model = tf.saved_model.load_v2(source)
        session.run(tf.global_variables_initializer())
        session.run(model.scale.assign([9.0, 8.0]))
        del model.table, model.numbers
        tf.saved_model.save(model, folder, signatures=model.signatures)


def check_objects(tf, folder, scale, with_table):
    """See that the loaded functions give what they should."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = tf.saved_model.load_v2(folder, tags=["serve"])
        assert [v.name for v in tf.trainable_variables()] == []
        x = tf.constant([1.0, 2.0])
        applied = model.apply(x)
        fetches = [
            applied["y"],
            applied["z"][0],
            model.add(tf.constant([1.0])),
            model.add(tf.constant([1.0]), negate=True),
            model.signatures["serving_default"](x=x)["scaled"],
        ]
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        found = session.run(fetches)
        expected = [np.multiply(scale, [1, 2]), [8, 9], [3], [-3], np.multiply(scale, [1, 2])]
        for value, right in zip(found, expected):
            np.testing.assert_array_equal(value, right)
        np.testing.assert_array_equal(session.run(model.rest[0]), 1.0)
        if with_table:
            numbers = session.run(model.numbers(tf.constant(["bird", "yak"])))
            np.testing.assert_array_equal(numbers, [2, -1])
    with tf.Graph().as_default(), tf.Session() as session:
        meta_graph = tf.saved_model.load(session, ["serve"], folder)
        served = meta_graph.signature_def["serving_default"]
        feeds = {served.inputs["x"].name: [1.0, 2.0]}
        value = session.run(served.outputs["scaled"].name, feeds)
        np.testing.assert_array_equal(value, np.multiply(scale, [1, 2]))
