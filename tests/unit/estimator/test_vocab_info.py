"""Tables that are converted from an old vocabulary to a new one in a warm start."""

import numpy as np
import pytest

import headrace as tf

OLD = np.arange(8.0, dtype="float32").reshape(4, 2) + 1


@pytest.fixture
def files(tmp_path):
    (tmp_path / "old.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "new.txt").write_text("d\nx\na\n")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("old/table", initializer=OLD)
        tf.get_variable("columns", initializer=OLD.T)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(tmp_path / "model"))
    return tmp_path


def started(files, name, shape, prev=None, partitioner=None, **settings):
    info = tf.estimator.VocabInfo(
        files / "new.txt", 3, settings.pop("num_oov_buckets", 1), files / "old.txt", **settings
    )
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable(name, shape, partitioner=partitioner)
        tf.train.warm_start(
            str(files / "model"),
            var_name_to_vocab_info={name: info},
            var_name_to_prev_var_name={} if prev is None else {name: prev},
        )
        session.run(tf.global_variables_initializer())
        return session.run(tf.convert_to_tensor(variable))


def test_words_keep_their_rows_and_others_get_zeros(files):
    found = started(files, "table", [4, 2], prev="old/table")
    np.testing.assert_array_equal(found, [OLD[3], [0, 0], OLD[0], [0, 0]])


def test_what_is_new_is_initialized(files):
    found = started(files, "old/table", [4, 2], backup_initializer=tf.ones_initializer())
    np.testing.assert_array_equal(found, [OLD[3], [1, 1], OLD[0], [1, 1]])


def test_old_words_that_do_not_count(files):
    found = started(files, "old/table", [4, 2], old_vocab_size=3)
    np.testing.assert_array_equal(found, [[0, 0], [0, 0], OLD[0], [0, 0]])


def test_words_may_be_columns(files):
    found = started(files, "columns", [2, 3], axis=1, num_oov_buckets=0)
    np.testing.assert_array_equal(found.T, [OLD[3], [0, 0], OLD[0]])


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_start_too(files, axis):
    parts = tf.fixed_size_partitioner(2, axis)
    found = started(files, "old/table", [4, 2], partitioner=parts)
    np.testing.assert_array_equal(found, [OLD[3], [0, 0], OLD[0], [0, 0]])


def test_mistakes(files):
    with pytest.raises(ValueError, match="doesn't match that of tensor old/table"):
        started(files, "old/table", [9, 2])
    with pytest.raises(ValueError, match="Tensor nothing is not found"):
        started(files, "table", [4, 2], prev="nothing")
    with pytest.raises(ValueError, match="supported values for the axis argument are 0 and 1"):
        tf.train.VocabInfo("new", 1, 0, "old", axis=2)
    with tf.Graph().as_default():
        tf.get_variable("columns", [2, 4])
        info = tf.train.VocabInfo(files / "new.txt", 3, 0, files / "old.txt")
        with pytest.raises(ValueError, match="in var_name_to_vocab_info that were not used"):
            tf.train.warm_start(str(files / "model"), var_name_to_vocab_info={"tabel": info})
