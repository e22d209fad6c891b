"""MNIST's files, the digits that stand in for them, and batches in TensorFlow's order."""

import gzip
import struct

import numpy as np
import pytest

import headrace as tf
from headrace._src.compat import learn_datasets, mnist, mnist_files, notices

IMAGES = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)


def batches(data, count, **options):
    return [data.next_batch(4, **options)[1].tolist() for _ in range(count)]


def test_order_is_that_of_tensorflow():
    data = mnist.DataSet(IMAGES, np.arange(10), seed=3)
    # Recorded from TensorFlow 1.15.5.
    assert batches(data, 3) == [[5, 4, 1, 2], [9, 6, 7, 0], [3, 8, 2, 3]]
    assert batches(data, 3) == [[1, 4, 8, 9], [5, 7, 0, 6], [2, 9, 0, 4]]
    assert data.epochs_completed == 2
    with tf.Graph().as_default():
        tf.set_random_seed(5)
        data = mnist.DataSet(IMAGES, np.arange(10))
    assert batches(data, 4) == [[9, 5, 2, 4], [7, 1, 0, 8], [6, 3, 2, 1], [0, 4, 6, 5]]
    assert data.next_batch(2)[0][0].tolist() == pytest.approx(
        [28 / 255, 29 / 255, 30 / 255, 31 / 255]
    )
    data = mnist.DataSet(IMAGES, np.arange(10), seed=1, dtype=tf.uint8, reshape=False)
    assert batches(data, 3, shuffle=False) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert data.images.dtype == np.uint8 and data.images.shape == (10, 2, 2, 1)
    with pytest.raises(TypeError, match="Invalid image dtype"):
        mnist.DataSet(IMAGES, np.arange(10), dtype=tf.int32)


def write(folder, name, array, packed):
    head = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    data = head + array.tobytes()
    (folder / f"{name}{'.gz' * packed}").write_bytes(gzip.compress(data) if packed else data)


def test_files_are_read(tmp_path, capsys):
    notices._said.clear()
    images = np.arange(30 * 784, dtype=np.uint8).reshape(30, 28, 28)
    labels = (np.arange(30) % 10).astype(np.uint8)
    write(tmp_path, "train-images-idx3-ubyte", images[:20], True)
    write(tmp_path, "train-labels-idx1-ubyte", labels[:20], True)
    write(tmp_path, "t10k-images-idx3-ubyte", images[20:], False)
    write(tmp_path, "t10k-labels-idx1-ubyte", labels[20:], False)
    found = mnist.read_data_sets(str(tmp_path), one_hot=True, validation_size=5)
    assert [part.num_examples for part in found] == [15, 5, 10]
    assert found.train.labels[0].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert found.test.images[0, 1] == np.float32(images[20, 0, 1]) * np.float32(1 / 255)
    assert capsys.readouterr().err == ""
    with pytest.raises(
        ValueError, match=r"Validation size should be between 0 and 20\. Received: 21"
    ):
        mnist.read_data_sets(str(tmp_path), validation_size=21)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"\x00\x00\x08\x01\x00\x00\x00\x09")
    with pytest.raises(ValueError, match="is not a file of MNIST's format, or is damaged"):
        mnist.read_data_sets(str(tmp_path))


def test_digits_stand_in(tmp_path, capsys):
    notices._said.clear()
    found = mnist.read_data_sets(str(tmp_path), reshape=False)
    assert [part.num_examples for part in found] == [1412, 128, 257]
    assert found.train.images.shape == (1412, 28, 28, 1)
    assert found.train.images.min() == 0 and found.train.images.max() == 1
    assert set(found.test.labels.tolist()) == set(range(10))
    mnist.read_data_sets(str(tmp_path), validation_size=0)
    (line,) = capsys.readouterr().err.splitlines()
    assert "the 1797 digits of scikit-learn stand in" in line and "t10k-labels-idx1" in line
    fake = mnist.read_data_sets("", fake_data=True, one_hot=True).train.next_batch(2)
    assert len(fake[0][0]) == 784 and fake[1][1] == [1] + [0] * 9


def test_other_data_sets(tmp_path):
    assert learn_datasets.load_dataset("iris").data.shape == (150, 4)
    with pytest.raises(ValueError, match="Name of dataset is not found: cats"):
        learn_datasets.load_dataset("cats")
    with pytest.raises(FileNotFoundError, match=r"Put the file text8.zip into .* It expects text8"):
        mnist_files.maybe_download("text8.zip", str(tmp_path), "http://example.com/text8.zip")
    path = tmp_path / "iris.csv"
    path.write_text("2,2,a,b\n1.5,2.5,0\n3.5,4.5,1\n")
    found = mnist_files.load_csv_with_header(str(path), int, float)
    assert found.data.tolist() == [[1.5, 2.5], [3.5, 4.5]] and found.target.tolist() == [0, 1]
