"""Inputs that are wrong for an op. In: an op's sample. Out: the same operation with one input that
has another shape, no elements, or values that can't be indices or sizes.
"""

from collections.abc import Iterator

import numpy as np

import headrace as tf
from headrace._src.ops.base.samples import calls, samples_of, type_choices

# As in TensorFlow, they aren't built on a block shape of unknown size.
KNOWN_BLOCKS = {"BatchToSpaceND", "SpaceToBatchND"}


def spoiled(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The array made wrong, in each way that its type knows, with a name for the way."""
    yield "one dimension more", array[None]
    first = array.reshape(-1)[:1]
    yield "a scalar", first.reshape(()) if array.size else _blank((), array.dtype)
    yield "no rows", _blank((0, *array.shape[1:]), array.dtype)
    yield "seven rows", _blank((7, *array.shape[1:]), array.dtype)
    yield "nothing", _blank((0,), array.dtype)
    if array.dtype.kind in "iu":
        yield "out of range", np.full_like(array, 127)
        yield "largest", np.full_like(array, np.iinfo(array.dtype).max)
    if array.dtype.kind == "i":
        yield "negative", np.full_like(array, -100)
        yield "minus one", np.full_like(array, -1)
        yield "least", np.full_like(array, np.iinfo(array.dtype).min)
    if array.dtype.kind in "fc":
        yield "nan", np.full_like(array, np.nan)
        yield "inf", np.full_like(array, np.inf)
        yield "minus inf", np.full_like(array, -np.inf)


def _blank(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.full(shape, b"", object) if dtype.hasobject else np.zeros(shape, dtype)


def cases(definition, most_samples: int = 2) -> Iterator[tuple[str, tf.Operation, list]]:
    """Yield (name of the way, operation, arrays for its inputs); the operations of one sample are
    the same one.
    """
    for k, sample in enumerate(samples_of(definition)[:most_samples]):
        types = next(type_choices(definition, sample))
        op, arrays = calls(definition, sample, types, static=definition.op_type in KNOWN_BLOCKS)
        for i, t in enumerate(op.inputs):
            if t.op.type == "Placeholder":
                for way, bad in spoiled(arrays[i]):
                    changed = [bad if j == i else a for j, a in enumerate(arrays)]
                    yield f"sample {k}, input {i}: {way}", op, changed
