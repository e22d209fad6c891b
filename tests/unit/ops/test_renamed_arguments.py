"""Arguments that were renamed: either name does, both are refused in TensorFlow 1.15's words."""

import numpy as np
import pytest

import headrace as tf

SPARSE = tf.SparseTensor([[0]], [1.0], [2])

REFUSED = {
    "'reduction_indices' and 'axis'": lambda: tf.reduce_sum([1], axis=0, reduction_indices=0),
    "'dim' and 'axis'": lambda: tf.expand_dims([1], axis=0, dim=0),
    "'squeeze_dims' and 'axis'": lambda: tf.squeeze([1], axis=[0], squeeze_dims=[0]),
    "'dimension' and 'axis'": lambda: tf.argmax([1], axis=0, dimension=0),
    "'input_tensor' and 'input'": lambda: tf.count_nonzero([1], input=[2]),
    "'string_tensor' and 'input'": lambda: tf.strings.to_number("1", input="2"),
    "'bytes' and 'input_bytes'": lambda: tf.decode_raw("a", tf.uint8, bytes="b"),
    "'delimiter' and 'sep'": lambda: tf.string_split(["a"], sep=" ", delimiter=" "),
    "'source' and 'input'": lambda: tf.strings.split(["a"], source=["a"]),
    "'keep_dims' and 'keepdims'": lambda: tf.sparse.reduce_sum(
        SPARSE, keepdims=True, keep_dims=True
    ),
}


@pytest.mark.parametrize("names", REFUSED)
def test_both_names_are_refused(names):
    with pytest.raises(ValueError, match=f"Cannot specify both {names}"):
        REFUSED[names]()


def test_the_old_name_means_the_same():
    x = np.arange(6.0).reshape(2, 3)
    with tf.Session() as session:
        new, old = session.run([tf.reduce_sum(x, axis=1), tf.reduce_sum(x, reduction_indices=1)])
        lengths = [1, 3]
        turned = tf.reverse_sequence(x, lengths, seq_dim=1, batch_dim=0)
        assert session.run(turned).tolist() == [[0, 1, 2], [5, 4, 3]]
    assert new.tolist() == old.tolist() == [3, 12]
