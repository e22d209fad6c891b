"""Dense tables: their buckets are TensorFlow's, and what of them savers and checkpoints keep."""

import numpy as np
import pytest

import headrace as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def table(key_dtype=tf.int64, empty=0, deleted=-1, default=-1, buckets=8, **options):
    return tf.lookup.experimental.DenseHashTable(
        key_dtype, tf.int64, default, empty, deleted, initial_num_buckets=buckets, **options
    )


def changed(session, made, *changes):
    """Apply changes: (keys, values) to insert, or (keys,) to remove."""
    for keys, *values in changes:
        keys = tf.constant(keys, made.key_dtype)
        session.run(made.insert(keys, values[0]) if values else made.remove(keys))


# What TensorFlow 1.15.5 exports after the same changes.
@pytest.mark.parametrize(
    ("options", "changes", "keys", "values"),
    [
        (
            {"buckets": 4},
            [([11, 12, 13], [1, 2, 3])],
            [[12], [13], [0], [11]],
            [[2], [3], [0], [1]],
        ),
        (
            {"empty": 100, "deleted": 200},
            [([11, 12, 13, 14], [1, 2, 3, 4]), ([12, 15],), ([20, 28], [5, 6])],
            [[100], [100], [100], [11], [20], [13], [14], [28]],
            [[0], [0], [0], [1], [5], [3], [4], [6]],
        ),
        (
            {"key_dtype": tf.string, "empty": "", "deleted": "$", "buckets": 4},
            [(["a", "b", "c", "d"], [1, 2, 3, 4])],
            [[b""], [b""], [b"b"], [b"d"], [b"a"], [b"c"], [b""], [b""]],
            [[0], [0], [2], [4], [1], [3], [0], [0]],
        ),
        (
            {"empty": [0, 0], "deleted": [-1, -1], "default": [-1, -1], "buckets": 4},
            [([[1, 2], [3, 4], [5, 6]], [[1, 1], [2, 2], [3, 3]]), ([[3, 4]],)],
            [[-1, -1], [0, 0], [5, 6], [1, 2]],
            [[2, 2], [0, 0], [3, 3], [1, 1]],
        ),
    ],
)
def test_exports_are_the_buckets(options, changes, keys, values):
    made = table(**options)
    exported = made.export()
    with tf.Session() as session:
        changed(session, made, *changes)
        found = session.run(exported)
        assert (found[0].tolist(), found[1].tolist()) == (keys, values)
        marks = [np.atleast_1d(options.get(k, d)).tolist() for k, d in _MARKS]
        held = [k for k in keys if [_text(x) for x in k] not in marks]
        assert session.run(made.size()) == len(held)


_MARKS = (("empty", 0), ("deleted", -1))


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_a_table_that_grew_finds_all_its_keys():
    rng = np.random.default_rng(3)
    keys, made = rng.permutation(np.arange(1, 300)), table(buckets=4)
    with tf.Session() as session:
        changed(session, made, (keys[:100], keys[:100] * 2), (keys[50:80],))
        changed(session, made, (keys[90:], keys[90:] * 3))
        expected = np.where(np.arange(299) < 90, keys * 2, keys * 3)
        expected[50:80] = -1
        found = session.run(made.lookup(tf.constant(keys)))
        np.testing.assert_array_equal(found, expected)
        assert session.run(made.size()) == 299 - 30


def words(**options):
    return table(tf.string, "", "$", name="words", **options)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_saver_of_a_table_keeps_its_buckets(tmp_path, checkpoint):
    made = words(checkpoint=checkpoint)
    with tf.Session() as session:
        changed(session, made, (["a", "b"], [1, 2]), (["a"],))
        path = tf.train.Saver([made]).save(session, str(tmp_path / "m"))
        assert tf.train.list_variables(path) == [("words-keys", [8, 1]), ("words-values", [8, 1])]
    with tf.Graph().as_default(), tf.Session() as session:
        made = words(checkpoint=checkpoint, buckets=64)
        changed(session, made, (["c"], [3]))
        tf.train.Saver([made]).restore(session, path)
        keys = tf.constant(["a", "b", "c"])
        assert session.run(made.lookup(keys)).tolist() == [-1, 2, -1]
        assert session.run(made.export())[0].shape == (8, 1)


def test_the_default_saver_keeps_tables_of_the_default_size(tmp_path):
    made = words(buckets=None)
    with tf.Session() as session:
        changed(session, made, (["a"], [1]))
        path = tf.train.Saver().save(session, str(tmp_path / "m"))
    assert dict(tf.train.list_variables(path)) == {
        "words-keys": [131072, 1],
        "words-values": [131072, 1],
    }


def mutable():
    return tf.contrib.lookup.MutableHashTable(tf.string, tf.int64, -1, name="words")


@pytest.mark.parametrize(("make", "shape"), [(words, [8, 1]), (mutable, [1])])
def test_a_table_is_trackable(tmp_path, make, shape):
    made = make()
    with tf.Session() as session:
        changed(session, made, (["a"], [1]))
        path = tf.train.Checkpoint(t=made).save(str(tmp_path / "c"), session=session)
    found = dict(tf.train.list_variables(path))
    assert found["t/.ATTRIBUTES/table-keys"] == shape
    assert found["t/.ATTRIBUTES/table-values"] == shape
    with tf.Graph().as_default(), tf.Session() as session:
        made = make()
        status = tf.train.Checkpoint(t=made).restore(path)
        status.assert_consumed().initialize_or_restore(session)
        assert session.run(made.lookup(tf.constant(["a", "b"]))).tolist() == [1, -1]


def test_a_checkpoint_of_names_restores_a_table(tmp_path):
    made = words()
    with tf.Session() as session:
        changed(session, made, (["a"], [1]))
        path = tf.train.Saver([made]).save(session, str(tmp_path / "m"))
        changed(session, made, (["a"], [2]))
        tf.train.Checkpoint(t=made).restore(path).run_restore_ops(session)
        assert session.run(made.lookup(tf.constant(["a"]))).tolist() == [1]


def test_a_table_with_an_initializer_is_trackable_and_not_stored(tmp_path):
    initializer = tf.lookup.KeyValueTensorInitializer(["a"], [1], tf.string, tf.int64)
    made = tf.lookup.StaticHashTable(initializer, -1)
    with tf.Session() as session:
        path = tf.train.Checkpoint(t=made).save(str(tmp_path / "c"), session=session)
    assert not [name for name, _ in tf.train.list_variables(path) if name.startswith("t/")]
