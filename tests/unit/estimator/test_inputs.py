"""Input functions from arrays: order, epochs, shuffling, and errors."""

import numpy as np
import pytest

import headrace as tf

numpy_input_fn = tf.estimator.inputs.numpy_input_fn


def batches(input_fn):
    with tf.Graph().as_default():
        fetched = input_fn()
        found = []
        with tf.train.MonitoredSession() as session:
            while not session.should_stop():
                found.append(session.run(fetched))
    return found


def test_in_order():
    x = {"b": np.arange(5), "a": np.arange(10).reshape(5, 2) / 2}
    found = batches(numpy_input_fn(x, np.arange(5) * 3, batch_size=2, num_epochs=2, shuffle=False))
    assert [labels.tolist() for _, labels in found] == [[0, 3], [6, 9], [12, 0], [3, 6], [9, 12]]
    assert found[2][0]["b"].tolist() == [4, 0]
    assert found[2][0]["a"].tolist() == [[4.0, 4.5], [0.0, 0.5]]


def test_shuffled():
    (first, second) = batches(numpy_input_fn(np.arange(8), batch_size=5, shuffle=True))
    assert (len(first), len(second)) == (5, 3)
    assert sorted([*first, *second]) == list(range(8))


def test_labels_by_name_and_strings():
    x = np.array(["one", "two"])
    ((features, labels),) = batches(
        numpy_input_fn(x, {"p": np.array([1, 2]), "q": np.array([3.0, 4.0])}, shuffle=False)
    )
    assert features.tolist() == [b"one", b"two"]
    assert {key: value.tolist() for key, value in labels.items()} == {"p": [1, 2], "q": [3.0, 4.0]}


def test_several_threads_repeat_epochs():
    found = batches(numpy_input_fn(np.arange(3), num_epochs=1, shuffle=True, num_threads=2))
    assert sorted(np.concatenate(found)) == [0, 0, 1, 1, 2, 2]


class Frame(dict):
    """As much of a pandas DataFrame as is used: columns by name, and an index."""

    def __init__(self, **columns):
        super().__init__({name: np.array(column) for name, column in columns.items()})
        self.columns = list(columns)
        self.index = np.arange(len(next(iter(self.values())))) + 100


class Series(np.ndarray):
    @property
    def index(self):
        return np.arange(len(self)) + 100


def test_frames():
    pandas_input_fn = tf.estimator.inputs.pandas_input_fn
    x = Frame(a=[1, 2, 3], b=[0.5, 1.5, 2.5])
    y = np.array([7, 8, 9]).view(Series)
    (first, second) = batches(pandas_input_fn(x, y, batch_size=2, shuffle=False))
    assert first[0]["b"].tolist() == [0.5, 1.5]
    assert second[1].tolist() == [9]
    ((_, labels),) = batches(pandas_input_fn(x, Frame(p=[1, 2, 3]), shuffle=False))
    assert labels["p"].tolist() == [1, 2, 3]
    (features,) = batches(pandas_input_fn(x, shuffle=False))
    assert sorted(features) == ["a", "b"]
    with pytest.raises(ValueError, match="Cannot use name a for target column"):
        pandas_input_fn(x, y, shuffle=False, target_column="a")
    with pytest.raises(ValueError, match="Index for x and y are mismatched"):
        pandas_input_fn(x, y[:2], shuffle=False)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: numpy_input_fn(np.arange(3)), ValueError, "explicitly set as boolean"),
        (lambda: numpy_input_fn([1, 2], shuffle=False)(), TypeError, "must be a dict or array"),
        (lambda: numpy_input_fn({}, shuffle=False)(), ValueError, "cannot be an empty dict"),
        (
            lambda: numpy_input_fn(np.arange(3), np.arange(2), shuffle=False)(),
            ValueError,
            r"mismatched[\s\S]*Shapes in y: \(2,\)",
        ),
        (
            lambda: numpy_input_fn({"a": np.arange(3)}, {"a": np.arange(3)}, shuffle=False)(),
            ValueError,
            "1 duplicate keys",
        ),
        (
            lambda: tf.estimator.inputs.pandas_input_fn(np.arange(3), shuffle=False),
            TypeError,
            "must be a pandas DataFrame",
        ),
    ],
)
def test_mistakes(make, error, message):
    with tf.Graph().as_default(), pytest.raises(error, match=message):
        make()
