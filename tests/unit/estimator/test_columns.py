"""Feature columns: errors are raised early, and equal columns are shared."""

import numpy as np
import pytest

import headrace as tf

fc = tf.feature_column


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fc.numeric_column(3), "key must be a string"),
        (lambda: fc.numeric_column("x", shape=0), "must be greater than 0"),
        (lambda: fc.numeric_column("x", dtype=tf.string), "convertible to float"),
        (lambda: fc.numeric_column("x", (2,), [1.0]), "must be equal to given shape"),
        (lambda: fc.bucketized_column("x", [1]), "generated with numeric_column"),
        (lambda: fc.bucketized_column(fc.numeric_column("x"), []), "must not be empty"),
        (lambda: fc.bucketized_column(fc.numeric_column("x"), [2, 1]), "must be a sorted list"),
        (lambda: fc.bucketized_column(fc.numeric_column("x", (2, 2)), [1]), "one-dimensional"),
        (lambda: fc.categorical_column_with_hash_bucket("x", 0), "must be at least 1"),
        (lambda: fc.categorical_column_with_hash_bucket("x", 3, tf.float32), "string or integer"),
        (lambda: fc.categorical_column_with_identity("x", 3, 3), r"not in range \[0, 3\)"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", []), "must be non-empty"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", ["a", "a"]), "Duplicate keys"),
        (lambda: fc.categorical_column_with_vocabulary_list("x", [1.5]), "string or integer"),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], tf.int64),
            "do not match",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_list("x", ["a"], None, 0, 2),
            "both num_oov_buckets and default_value",
        ),
        (
            lambda: fc.categorical_column_with_vocabulary_file("x", "/nowhere/at all"),
            "does not exist",
        ),
        (lambda: fc.crossed_column(["x"], 3), "length > 1"),
        (lambda: fc.crossed_column(["x", fc.numeric_column("y")], 3), "Unsupported key type"),
        (
            lambda: fc.crossed_column(["x", fc.categorical_column_with_hash_bucket("y", 3)], 3),
            "not supported for crossing",
        ),
        (
            lambda: fc.embedding_column(fc.categorical_column_with_identity("x", 3), 0),
            "Invalid dimension 0",
        ),
        (
            lambda: fc.embedding_column(
                fc.categorical_column_with_identity("x", 3), 2, ckpt_to_load_from="a"
            ),
            "Must specify both",
        ),
        (
            lambda: fc.shared_embedding_columns(
                [
                    fc.categorical_column_with_identity("x", 3),
                    fc.categorical_column_with_identity("y", 4),
                ],
                2,
            ),
            "same number of buckets",
        ),
        (lambda: fc.input_layer({}, []), "must not be empty"),
        (lambda: fc.input_layer({"x": [1.0]}, ["x"]), "must be a FeatureColumn"),
        (
            lambda: fc.input_layer({"x": [[1]]}, [fc.categorical_column_with_identity("x", 3)]),
            "wrap a categorical column with an embedding_column or indicator_column",
        ),
        (
            lambda: fc.input_layer({"y": [[1.0]], "z": 2}, [fc.numeric_column("x")]),
            "Feature x is not in features dictionary. It has: y, z",
        ),
        (lambda: fc.input_layer({"x": 1.0}, [fc.numeric_column("x")]), "cannot have rank 0"),
        (
            lambda: fc.linear_model([[1.0]], [fc.numeric_column("x")]),
            "features should be a dictionary",
        ),
        (
            lambda: fc.input_layer(
                {"x": [[1.0]], "y": [[1.0], [2.0]]},
                [fc.numeric_column("x"), fc.numeric_column("y")],
            ),
            r"Batch size of columns \(x, y\): \(1, 2\)",
        ),
        (
            lambda: fc.linear_model({"x": [[1.0]]}, [fc.numeric_column("x")] * 2),
            "Duplicate feature column name",
        ),
        (
            lambda: fc.linear_model({"x": [[0.5]]}, [fc.categorical_column_with_identity("x", 3)]),
            "not integer. key: x",
        ),
        (
            lambda: fc.make_parse_example_spec(
                [fc.numeric_column("x"), fc.categorical_column_with_identity("x", 3)]
            ),
            "different parse_spec for key x",
        ),
    ],
)
def test_mistakes(make, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        make()


def test_types_of_numbers():
    with pytest.raises(TypeError, match="must be compatible with dtype"):
        fc.numeric_column("x", default_value=0.5, dtype=tf.int64)
    with pytest.raises(TypeError, match="must be a callable"):
        fc.numeric_column("x", normalizer_fn=3)


def test_ids_out_of_range_fail_the_step():
    column = fc.indicator_column(fc.categorical_column_with_identity("x", 3))
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.int64, [None, 1])
        layer = fc.input_layer({"x": x}, [column])
        np.testing.assert_array_equal(session.run(layer, {x: [[2]]}), [[0, 0, 1]])
        with pytest.raises(tf.errors.InvalidArgumentError, match="exceeds number of buckets"):
            session.run(layer, {x: [[3]]})


def test_equal_columns_are_one():
    first, second = (fc.categorical_column_with_vocabulary_list("x", ["a", "b"]) for _ in range(2))
    assert first == second
    assert len({first, second}) == 1
    assert repr(fc.numeric_column("p", shape=2)).startswith("NumericColumn(key='p', shape=(2,)")


def test_transformations_are_built_once():
    """A column and its bucketized form share the cast of the raw feature."""
    with tf.Graph().as_default() as graph:
        price = fc.numeric_column("price", dtype=tf.int32)
        columns = [price, fc.bucketized_column(price, [1.0])]
        fc.input_layer({"price": tf.constant([[1]])}, columns)
        assert sum(op.type == "Cast" for op in graph.get_operations()) == 2  # and to the one-hot's


def test_embedding_from_a_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("table", initializer=[[1.0, 2.0], [3.0, 4.0]])
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "old"))
    column = fc.embedding_column(
        fc.categorical_column_with_identity("x", 2),
        2,
        ckpt_to_load_from=path,
        tensor_name_in_ckpt="table",
    )
    with tf.Graph().as_default(), tf.Session() as session:
        layer = fc.input_layer({"x": tf.constant([[1], [0]])}, [column])
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(layer), [[3, 4], [1, 2]])
