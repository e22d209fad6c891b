"""Two models, written and checked by code that runs under TensorFlow 1.15.5 and Headrace alike.

This file must stay valid Python 3.7; scripts/record_saved_models.py says what it's for.
"""

import os

import numpy as np

VOCABULARY = os.path.join("tests", "fixtures", "vocabulary.txt")


def _write_plain(tf, folder):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.get_variable("w", initializer=[[1.0], [2.0]])
    y = tf.matmul(x, w, name="y")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        signature = tf.saved_model.signature_def_utils.predict_signature_def({"x": x}, {"y": y})
        builder = tf.saved_model.builder.SavedModelBuilder(folder)
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save(as_text=True)


def _check_plain(tf, session, meta_graph):
    signature = meta_graph.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    x = tf.saved_model.utils.get_tensor_from_tensor_info(signature.inputs["x"])
    assert x.shape.as_list() == [None, 2]
    y = session.run(signature.outputs["y"].name, {x: [[1.0, 1.0], [0.0, 3.0]]})
    np.testing.assert_array_equal(y, [[3.0], [6.0]])


def _write_words(tf, folder):
    """Examples with words from a vocabulary, a file that travels with the model."""
    text = tf.placeholder(tf.string, [None], name="examples")
    parsed = tf.parse_example(text, {"words": tf.VarLenFeature(tf.string)})
    line = tf.lookup.TextFileIndex
    words = tf.lookup.TextFileInitializer(
        VOCABULARY, tf.string, line.WHOLE_LINE, tf.int64, line.LINE_NUMBER
    )
    table = tf.lookup.StaticVocabularyTable(words, num_oov_buckets=1)
    ids = tf.sparse_tensor_to_dense(table.lookup(parsed["words"]), default_value=-1)
    scores = tf.reduce_sum(tf.one_hot(ids, 4), axis=1) * tf.get_variable(
        "scale", initializer=2.0, use_resource=True
    )
    classes = tf.tile(tf.constant([["a", "b", "c", "d"]]), [tf.shape(scores)[0], 1])
    build = tf.saved_model.signature_def_utils
    signatures = {"serving_default": build.classification_signature_def(text, classes, scores)}
    signatures["scores"] = build.predict_signature_def({"words": parsed["words"]}, {"s": scores})
    builder = tf.saved_model.builder.SavedModelBuilder(folder)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.tag_constants.SERVING, "words"],
            signatures,
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
            strip_default_attrs=True,
        )
        builder.add_meta_graph(["other"], {})
    builder.save()


def _check_words(tf, session, meta_graph):
    signature = meta_graph.signature_def["serving_default"]
    assert tf.saved_model.signature_def_utils.is_valid_signature(signature)
    example = tf.train.Example()
    example.features.feature["words"].bytes_list.value.extend([b"bird", b"newt", b"bird"])
    feeds = {signature.inputs["inputs"].name: [example.SerializeToString()]}
    scores = session.run(signature.outputs["scores"].name, feeds)
    np.testing.assert_array_equal(scores, [[0.0, 0.0, 4.0, 2.0]])
    words = tf.saved_model.utils.get_tensor_from_tensor_info(
        meta_graph.signature_def["scores"].inputs["words"]
    )
    assert words.dtype == tf.string


MODELS = {
    "plain": (_write_plain, _check_plain, ["serve"]),
    "words": (_write_words, _check_words, ["serve", "words"]),
}


def write(tf, name, folder):
    with tf.Graph().as_default():
        MODELS[name][0](tf, folder)


def check(tf, name, folder):
    """Load a model, and see that it gives what it should."""
    with tf.Graph().as_default(), tf.Session() as session:
        meta_graph = tf.saved_model.loader.load(session, MODELS[name][2], folder)
        MODELS[name][1](tf, session, meta_graph)
