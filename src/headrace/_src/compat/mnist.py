"""`tensorflow.examples.tutorials.mnist.input_data`: MNIST for programs that read it in batches.

In: a directory. Out: three DataSets, of MNIST's files if they are there, else of the digits that
scikit-learn carries. Nothing is downloaded. Batches are TensorFlow's for the same seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.compat.mnist_files import Dataset, Datasets, digits, maybe_download, mnist_arrays
from headrace._src.compat.notices import notice
from headrace._src.core.dtypes import as_dtype
from headrace._src.ops.random.random_functions import get_seed

__all__ = ["DataSet", "Dataset", "Datasets", "load_mnist", "maybe_download", "read_data_sets"]

SOURCE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_PIXELS = 784


class DataSet:
    """Images and labels, in batches. State: the order of the current epoch and the position in it.

    images: uint8 [n, 28, 28, 1]. reshape: make them [n, 784]. dtype: tf.uint8 keeps the bytes,
    tf.float32 scales them to [0, 1]. seed: of the order of batches.
    """

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = "float32",
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        graph_seed, op_seed = get_seed(seed)
        np.random.seed(graph_seed if seed is None else op_seed)
        dtype = as_dtype(dtype).base_dtype
        if dtype not in (as_dtype("uint8"), as_dtype("float32")):
            raise TypeError(f"Invalid image dtype {dtype!r}, expected uint8 or float32")
        if fake_data:
            self._num_examples = 10000
            self.one_hot = one_hot
        else:
            if images.shape[0] != labels.shape[0]:
                raise ValueError(f"images.shape: {images.shape} labels.shape: {labels.shape}")
            self._num_examples = images.shape[0]
            if reshape:
                if images.shape[3] != 1:
                    raise ValueError(f"images of depth {images.shape[3]} cannot be reshaped")
                images = images.reshape(len(images), images.shape[1] * images.shape[2])
            if dtype == as_dtype("float32"):
                images = np.multiply(images.astype(np.float32), np.float32(1.0 / 255.0))
        self._images = images
        self._labels = labels
        self._fake = fake_data
        self._epochs_completed = 0
        self._index_in_epoch = 0

    @property
    def images(self) -> Any:
        """All images, in the order of the current epoch."""
        return self._images

    @property
    def labels(self) -> Any:
        """All labels, in the order of the current epoch."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """The number of images."""
        return self._num_examples

    @property
    def epochs_completed(self) -> int:
        """How often all images have been used."""
        return self._epochs_completed

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[Any, Any]:
        """Return the next images and labels. Each epoch has an order of its own."""
        if fake_data or self._fake:
            label: Any = [1] + [0] * 9 if getattr(self, "one_hot", False) else 0
            return [[1] * _PIXELS for _ in range(batch_size)], [label for _ in range(batch_size)]
        start = self._index_in_epoch
        if self._epochs_completed == 0 and start == 0 and shuffle:
            self._mix()
        if start + batch_size <= self._num_examples:
            self._index_in_epoch += batch_size
            end = self._index_in_epoch
            return self._images[start:end], self._labels[start:end]
        self._epochs_completed += 1
        rest = self._num_examples - start
        last = self._images[start:], self._labels[start:]
        if shuffle:
            self._mix()
        self._index_in_epoch = end = batch_size - rest
        first = self._images[:end], self._labels[:end]
        return np.concatenate((last[0], first[0])), np.concatenate((last[1], first[1]))

    def _mix(self) -> None:
        order = np.arange(self._num_examples)
        np.random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


def dense_to_one_hot(labels_dense: np.ndarray, num_classes: int) -> np.ndarray:
    """Return a row with a single 1 for each label."""
    return np.eye(num_classes)[labels_dense]


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = "float32",
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = SOURCE_URL,
) -> Any:
    """Return Datasets(train, validation, test)."""
    if fake_data:
        fakes = [DataSet([], [], True, one_hot, dtype, seed=seed) for _ in range(3)]
        return Datasets(*fakes)
    arrays = mnist_arrays(train_dir)
    kept = validation_size
    if arrays is None:
        arrays = digits()
        kept = round(validation_size * len(arrays[0]) / 60000)
        notice(
            "mnist",
            f"MNIST's files are not in {train_dir!r}: the {len(arrays[0]) + len(arrays[2])} digits "
            "of scikit-learn stand in for them. For MNIST, put train-images-idx3-ubyte.gz, "
            "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz "
            "there.",
        )
    train_images, train_labels, test_images, test_labels = arrays
    if not 0 <= kept <= len(train_images):
        raise ValueError(
            f"Validation size should be between 0 and {len(train_images)}. "
            f"Received: {validation_size}."
        )
    if one_hot:
        train_labels, test_labels = (dense_to_one_hot(x, 10) for x in (train_labels, test_labels))
    options: dict[str, Any] = {"dtype": dtype, "reshape": reshape, "seed": seed}
    train = DataSet(train_images[kept:], train_labels[kept:], **options)
    validation = DataSet(train_images[:kept], train_labels[:kept], **options)
    return Datasets(train, validation, DataSet(test_images, test_labels, **options))


def load_mnist(train_dir: str = "MNIST-data") -> Any:
    """Return MNIST as tf.contrib.learn does."""
    return read_data_sets(train_dir)
