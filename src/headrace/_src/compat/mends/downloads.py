"""Downloads that fail. In: an address and a file. Out: an error that says which file to put where.

The program's download is tried; most addresses of its time are gone, and many machines have no
network.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.error import URLError

__all__ = ["PATCHES", "advice"]

_KNOWN = {
    "cifar-10": "the CIFAR-10 archive, of which TensorFlow's programs read the folder "
    "cifar-10-batches-bin (or -py)",
    "cifar-100": "the CIFAR-100 archive",
    "text8": "text8.zip: the first 100,000,000 letters of Wikipedia, one file named text8",
    "simple-examples": "simple-examples.tgz: the Penn Treebank, as simple-examples/data/ptb.*.txt",
    "inception": "a frozen Inception graph and its labels",
    "imagenet-vgg": "a MATLAB file with the weights of VGG",
    "vgg16": "the weights of VGG-16",
    "train-images-idx3-ubyte": "MNIST's file of that name, gzipped",
    "questions-words": "questions-words.txt: word analogies, four words a line",
    "flower_photos": "flower_photos.tgz: one folder of JPEG files for each kind of flower",
    "aclImdb": "aclImdb_v1.tar.gz: folders train and test of reviews",
    "iris_training": "120 lines of four numbers and a class, after a header",
}


def advice(url: str, filename: str | None) -> str:
    """Say which file a program wants, and where."""
    name = os.path.basename(filename or url.rstrip("/").rpartition("/")[2])
    folder = os.path.abspath(os.path.dirname(filename or "") or ".")
    what = next((text for key, text in _KNOWN.items() if key in url), f"the contents of {url}")
    return f"Put the file {name} into {folder} and run the program again. It expects {what}."


def _patch_request(request: ModuleType) -> None:
    retrieve = request.urlretrieve

    def urlretrieve(url: Any, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
        try:
            return retrieve(url, filename, *args, **kwargs)
        except OSError as error:
            if filename is not None and os.path.exists(filename) and not os.path.getsize(filename):
                os.remove(filename)  # which the program would take for the data
            reason = getattr(error, "reason", error)
            message = f"{url} cannot be downloaded ({reason}). {advice(url, filename)}"
            raise URLError(message) from None

    request.urlretrieve = functools.wraps(retrieve)(urlretrieve)  # type: ignore


PATCHES: dict[str, Callable[[ModuleType], None]] = {"urllib.request": _patch_request}
