"""Files of data sets. In: directories. Out: arrays, or an error that says which file is expected
where. Programs know it as `tensorflow.contrib.learn.datasets.base`.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np

from headrace._src.compat.mends.downloads import advice

__all__ = [
    "Dataset",
    "Datasets",
    "digits",
    "load_csv_with_header",
    "load_csv_without_header",
    "maybe_download",
    "mnist_arrays",
]

Dataset = namedtuple("Dataset", ["data", "target"])
Datasets = namedtuple("Datasets", ["train", "validation", "test"])

_MNIST = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_MNIST += ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def maybe_download(filename: str, work_directory: str, source_url: str) -> str:
    """Return the path of a file that is there already; nothing is downloaded."""
    path = os.path.join(work_directory, filename)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist. {advice(source_url, path)}")
    return path


def load_csv_with_header(
    filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1
) -> Any:
    """Read a file whose first line has the numbers of samples and of features."""
    with open(filename, newline="") as file:
        rows = list(csv.reader(file))
    return _columns(rows[1 : int(rows[0][0]) + 1], target_dtype, features_dtype, target_column)


def load_csv_without_header(
    filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1
) -> Any:
    """Read a file of samples."""
    with open(filename, newline="") as file:
        return _columns(list(csv.reader(file)), target_dtype, features_dtype, target_column)


def _columns(rows: list[list[str]], target_dtype: Any, features_dtype: Any, column: int) -> Any:
    targets = [row.pop(column) for row in rows]
    return Dataset(np.array(rows, features_dtype), np.array(targets, target_dtype))


def mnist_arrays(folder: str) -> tuple[np.ndarray, ...] | None:
    """Return MNIST's images and labels for training and testing; None if the files are not there.
    Images are uint8 [n, 28, 28, 1], labels uint8 [n].
    """
    found = []
    for name in _MNIST:
        paths = [Path(folder) / f"{name}.gz", Path(folder) / name]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return None
        found.append(_read_idx(path))
    return found[0][..., np.newaxis], found[1], found[2][..., np.newaxis], found[3]


def _read_idx(path: Path) -> np.ndarray:
    """Read a file of MNIST's format: zeros, a type, the rank, the sizes, the bytes."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    rank = data[3] if data[:3] == b"\x00\x00\x08" else 0
    sizes = np.frombuffer(data, ">u4", rank, 4).astype(int) if rank else np.zeros(0, int)
    body = np.frombuffer(data, np.uint8, -1, 4 + 4 * rank)
    if not rank or body.size != np.prod(sizes):
        raise ValueError(f"{path} is not a file of MNIST's format, or is damaged")
    return body.reshape(sizes)


def digits() -> tuple[np.ndarray, ...]:
    """Return the 1797 digits that scikit-learn carries, in MNIST's form and proportions."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ModuleNotFoundError(
            "MNIST's files are not there, and scikit-learn, whose digits stand in for them, is not "
            "installed: pip install scikit-learn"
        ) from None
    found: Any = load_digits()
    order = np.random.RandomState(0).permutation(len(found.images))
    images, labels = _enlarged(found.images[order]), found.target[order].astype(np.uint8)
    held_out = round(len(images) / 7)  # MNIST has 60,000 and 10,000
    return images[:-held_out], labels[:-held_out], images[-held_out:], labels[-held_out:]


def _enlarged(images: np.ndarray) -> np.ndarray:
    """Scale images from 8x8 values up to 16 to 28x28 values up to 255, linearly."""
    at = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    left = np.minimum(at.astype(int), 6)
    weights = np.zeros((28, 8))
    weights[np.arange(28), left] = 1 - (at - left)
    weights[np.arange(28), left + 1] = at - left
    scaled = weights @ images @ weights.T * (255 / 16)
    return np.round(scaled).astype(np.uint8)[..., np.newaxis]
