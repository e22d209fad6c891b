"""tf.feature_column: the nodes, variables' names, outputs and gradients of all kinds of columns."""

import os

import numpy as np

from tests.oracle.case import case

VOCABULARY = os.path.join("tests", "fixtures", "vocabulary.txt")


def table(tf):
    """An initializer for embeddings whose numbers don't hang on the random op's seed."""

    def initializer(shape, dtype=None, partition_info=None):
        numbers = np.random.RandomState(3).uniform(-1, 1, [int(size) for size in shape])
        return tf.constant(numbers.astype(np.float32))

    return initializer


def words(tf):
    return tf.SparseTensor(
        [[0, 0], [0, 1], [2, 0]], tf.constant(["fish", "bird", "cat"]), tf.constant([3, 2], "int64")
    )


def features(tf):
    return {
        "price": tf.constant([[1.0], [2.5], [-3.0]]),
        "flat": tf.constant([4.0, 5.0, 6.0]),
        "pair": tf.constant([[1, 9], [3, 4], [5, 6]]),
        "words": words(tf),
        "dense_words": tf.constant([["dog", ""], ["cat", "bird"], ["", "newt"]]),
        "id": tf.constant([[2], [0], [3]], tf.int64),
        "outside": tf.constant([[7], [0], [-4]], tf.int64),
        "weight": tf.SparseTensor(
            [[0, 0], [0, 1], [2, 0]], tf.constant([0.5, 2.0, 3.0]), tf.constant([3, 2], "int64")
        ),
        "dense_weight": tf.constant([[0.5, 0.25], [1.5, -1.0], [2.0, 3.0]]),
    }


def numeric(fc, tf):
    return [
        fc.numeric_column("price"),
        fc.numeric_column("flat", normalizer_fn=lambda x: (x - 1.0) / 2.0),
        fc.numeric_column("pair", shape=[2], dtype=tf.int32, default_value=3),
    ]


def bucketized(fc, tf):
    return [
        fc.bucketized_column(fc.numeric_column("price"), [-2.0, 0.0, 2.5]),
        fc.bucketized_column(fc.numeric_column("pair", shape=2), [2, 5, 8]),
    ]


def hashed(fc, tf):
    return [
        fc.categorical_column_with_hash_bucket("words", 7),
        fc.categorical_column_with_hash_bucket("dense_words", 9),
        fc.categorical_column_with_hash_bucket("id", 5, dtype=tf.int64),
    ]


def identity(fc, tf):
    return [
        fc.categorical_column_with_identity("outside", 5, default_value=1),
        fc.categorical_column_with_identity("pair", 10),
    ]


def checked_identity(fc, tf):
    return [fc.categorical_column_with_identity("id", 4)]


def listed(fc, tf):
    return [
        fc.categorical_column_with_vocabulary_list("words", ["cat", "dog", "bird"]),
        fc.categorical_column_with_vocabulary_list(
            "dense_words", ("cat", "dog"), num_oov_buckets=3
        ),
        fc.categorical_column_with_vocabulary_list("id", [0, 2, 5], default_value=1),
    ]


def filed(fc, tf):
    return [
        fc.categorical_column_with_vocabulary_file("words", VOCABULARY, 3, default_value=2),
        fc.categorical_column_with_vocabulary_file("dense_words", VOCABULARY, num_oov_buckets=2),
    ]


def weighted(fc, tf):
    return [
        fc.weighted_categorical_column(
            fc.categorical_column_with_vocabulary_list("words", ["cat", "fish"], num_oov_buckets=1),
            "weight",
        ),
        fc.weighted_categorical_column(
            fc.categorical_column_with_identity("pair", 10), "dense_weight"
        ),
    ]


def crossed(fc, tf):
    bucket = fc.bucketized_column(fc.numeric_column("price"), [0.0, 2.0])
    inner = fc.crossed_column(["words", bucket], 11)
    return [
        fc.crossed_column(["words", "dense_words"], 20),
        fc.crossed_column([inner, fc.categorical_column_with_identity("id", 4)], 13, hash_key=5),
    ]


CATEGORICAL = [hashed, identity, checked_identity, listed, filed, weighted, crossed]


def outcome(tf, output):
    """An output, and which variables were made for it and are in which collections."""
    named = [tf.global_variables(), tf.trainable_variables(), tf.get_collection("more")]
    named.append(tf.get_collection(tf.GraphKeys.MODEL_VARIABLES))
    return [output, [tf.constant([v.name for v in group] or ["none"]) for group in named]]


def gradients_of(build):
    """The gradients of a case's output for its variables."""

    def case_of_gradients(tf):
        output = build(tf)[0]
        found = tf.gradients(tf.reduce_sum(output * output), tf.trainable_variables())
        return [tf.convert_to_tensor(gradient) for gradient in found]

    return case_of_gradients


def add(name, make, **options):
    def build(tf):
        return make(tf)

    build.__name__ = name
    build.__module__ = __name__
    case(**options)(build)


def dense_case(columns):
    return lambda tf: outcome(
        tf, tf.feature_column.input_layer(features(tf), columns(tf.feature_column, tf))
    )


def indicator_case(columns):
    def build(tf):
        fc = tf.feature_column
        found = [fc.indicator_column(column) for column in columns(fc, tf)]
        return outcome(tf, fc.input_layer(features(tf), found))

    return build


def embedding_case(columns, combiner):
    def build(tf):
        fc = tf.feature_column
        found = [fc.embedding_column(column, 2, combiner, table(tf)) for column in columns(fc, tf)]
        return outcome(tf, fc.input_layer(features(tf), found, weight_collections=["more"]))

    return build


def linear_case(columns, **options):
    def build(tf):
        found = columns(tf.feature_column, tf)
        output = tf.feature_column.linear_model(features(tf), found, **options)
        # Zero weights would show nothing: what they are multiplied by is in the gradients.
        return outcome(tf, output + 1.0)

    return build


def needs(columns):
    """A case's options: names of hash tables are random, and tables have to be initialized."""
    return {"tables": True, "imports": False, "graph": columns not in (listed, filed, weighted)}


for columns in (numeric, bucketized):
    add("input_layer_" + columns.__name__, dense_case(columns))
for columns in [bucketized, numeric] + CATEGORICAL:
    add("linear_" + columns.__name__, linear_case(columns), **needs(columns))
for columns in CATEGORICAL:
    add("indicator_" + columns.__name__, indicator_case(columns), **needs(columns))
    for combiner in ("mean", "sqrtn") if columns is weighted else ("sum",):
        name = "_".join(["embedding", columns.__name__, combiner])
        add(name, embedding_case(columns, combiner), **needs(columns))
for name, build in (
    ("linear_bucketized", linear_case(bucketized)),
    ("linear_crossed", linear_case(crossed)),
    ("linear_weighted", linear_case(weighted)),
    ("embedding_hashed", embedding_case(hashed, "mean")),
    ("embedding_weighted", embedding_case(weighted, "sqrtn")),
):
    add(name + "_gradients", gradients_of(build), graph=False, tables=True, imports=False)


@case(tables=True, imports=False, graph=False)
def linear_mean_of_units(tf):
    def columns(fc, tf):
        return listed(fc, tf) + numeric(fc, tf)[:2]

    return linear_case(columns, units=3, sparse_combiner="mean", trainable=True)(tf)


@case
def linear_embedding(tf):
    def columns(fc, tf):
        return [fc.embedding_column(hashed(fc, tf)[0], 3, initializer=table(tf))]

    return linear_case(columns, weight_collections=["more"])(tf)


@case
def linear_models_in_scopes(tf):
    """Names of a second model, in a scope, in one that is used again."""
    columns = numeric(tf.feature_column, tf)[:1]
    raw = features(tf)
    outputs = [tf.feature_column.linear_model(raw, columns) for _ in range(2)]
    with tf.variable_scope("outer"):
        outputs.append(tf.feature_column.linear_model(raw, columns, trainable=False))
    return outputs, [tf.constant(v.name) for v in tf.global_variables()]


@case
def input_layers_in_scopes(tf):
    fc = tf.feature_column
    columns = [fc.embedding_column(hashed(fc, tf)[0], 2, initializer=table(tf), trainable=False)]
    raw = features(tf)
    outputs = [fc.input_layer(raw, columns)]
    with tf.variable_scope("outer"):
        outputs.append(fc.input_layer(raw, columns, trainable=False))
    with tf.variable_scope("outer", reuse=True):
        outputs.append(fc.input_layer(raw, columns))
    return outputs, [tf.constant(v.name) for v in tf.global_variables()]


@case
def random_embedding(tf):
    """The default initializer under a seed, and what is asked to be filled in."""
    tf.set_random_seed(7)
    fc = tf.feature_column
    columns = [fc.embedding_column(c, 3, max_norm=0.5) for c in hashed(fc, tf)[:2]]
    to_vars, to_tensors = {}, {}
    output = fc.input_layer(
        features(tf), columns, cols_to_vars=to_vars, cols_to_output_tensors=to_tensors
    )
    filled = [[tf.constant(v.name) for v in to_vars[c]] + [to_tensors[c]] for c in columns]
    return output, filled


@case
def shared_embeddings(tf):
    fc = tf.feature_column
    columns = fc.shared_embedding_columns(
        [
            fc.categorical_column_with_hash_bucket("words", 6),
            fc.categorical_column_with_hash_bucket("dense_words", 6),
        ],
        dimension=2,
        initializer=table(tf),
    )
    return outcome(tf, fc.input_layer(features(tf), columns))


@case
def unknown_ranks(tf):
    fc = tf.feature_column
    raw = {
        "price": tf.placeholder_with_default([1.0, 2.0], None),
        "id": tf.placeholder_with_default(np.array([[1], [2]], np.int64), [None, None]),
    }
    columns = [fc.numeric_column("price")]
    columns.append(fc.indicator_column(fc.categorical_column_with_identity("id", 4)))
    return fc.input_layer(raw, columns)


@case
def parsed_examples(tf):
    """A spec of columns, and what it parses Examples into."""
    fc = tf.feature_column
    columns = [
        fc.bucketized_column(fc.numeric_column("price", default_value=1.5), [1.0, 2.0]),
        fc.weighted_categorical_column(
            fc.categorical_column_with_hash_bucket("words", 6), "weight"
        ),
        fc.crossed_column(["words", fc.categorical_column_with_identity("id", 4)], 10),
    ]
    records = [record(tf, price=[2.5], words=[b"a", b"b"], weight=[1.0, 2.0], id=[3])]
    records.append(record(tf, words=[b"c"], weight=[0.5], id=[1]))
    parsed = tf.parse_example(records, fc.make_parse_example_spec(columns))
    return parsed, fc.linear_model(parsed, columns)


def record(tf, **values):
    feature = {}
    for key, value in values.items():
        if isinstance(value[0], bytes):
            feature[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
        elif isinstance(value[0], float):
            feature[key] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        else:
            feature[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


@case
def dense_features(tf):
    """The layer that canned estimators use, twice."""
    fc = tf.feature_column
    columns = [fc.embedding_column(c, 2, "sum", table(tf)) for c in hashed(fc, tf)[:2]]
    layer = tf.keras.layers.DenseFeatures(columns + numeric(fc, tf)[:2], name="first")
    output = layer(features(tf))
    return [output, layer(features(tf))], [tf.constant(v.name) for v in tf.global_variables()]


def steps(tf):
    return {
        "words": words(tf),
        "numbers": tf.SparseTensor(
            [[0, 0], [0, 1], [0, 2], [0, 3], [2, 0], [2, 1]],
            tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            tf.constant([3, 4], "int64"),
        ),
        "ids": tf.SparseTensor(
            [[0, 0], [0, 1], [2, 0]], tf.constant([3, 1, 2], "int64"), tf.constant([3, 2], "int64")
        ),
    }


@case(graph=False)
def sequence_features(tf):
    """Not node by node: of constants we know more shapes."""
    fc = tf.feature_column
    columns = [
        fc.sequence_numeric_column("numbers", shape=(2,), default_value=-1.0),
        fc.indicator_column(fc.sequence_categorical_column_with_identity("ids", 4)),
        fc.embedding_column(
            fc.sequence_categorical_column_with_hash_bucket("words", 5), 2, "sum", table(tf)
        ),
    ]
    layer = tf.keras.experimental.SequenceFeatures(columns, name="steps")
    return layer(steps(tf)), [tf.constant(v.name) for v in tf.global_variables()]


@case(graph=False, tables=True, imports=False)
def sequence_vocabularies(tf):
    fc = tf.feature_column
    columns = [
        fc.indicator_column(
            fc.sequence_categorical_column_with_vocabulary_list("words", ["cat", "fish"])
        ),
        fc.sequence_numeric_column("numbers", shape=[2], normalizer_fn=lambda x: x),
    ]
    raw = steps(tf)
    indicated = tf.keras.experimental.SequenceFeatures(columns, name="steps")(raw)
    filed = fc.sequence_categorical_column_with_vocabulary_file(
        "words", VOCABULARY, num_oov_buckets=1
    )
    embedded = fc.embedding_column(filed, 3, initializer=table(tf))
    return indicated, tf.keras.experimental.SequenceFeatures([embedded], name="other")(raw)
