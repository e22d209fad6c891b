"""`tensorflow.contrib.learn.datasets`: data that scikit-learn carries, and MNIST."""

from __future__ import annotations

from typing import Any

from headrace._src.compat import mnist, mnist_files
from headrace._src.compat import mnist_files as base

__all__ = ["base", "load_dataset", "load_iris", "mnist"]


def load_iris(data_path: str | None = None) -> Any:
    """Return the iris data set: `data` float [150, 4], `target` int [150]."""
    if data_path is not None:
        return mnist_files.load_csv_with_header(data_path, int, float)
    from sklearn.datasets import load_iris

    found: Any = load_iris()
    return mnist_files.Dataset(found.data, found.target)


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Any:
    """Return a data set: "iris" or "mnist"."""
    known = {"iris": load_iris, "mnist": mnist.load_mnist}
    if name not in known:
        raise ValueError(f"Name of dataset is not found: {name}. Headrace has {', '.join(known)}")
    return known[name]()
