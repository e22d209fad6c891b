"""Convert tables from an old vocabulary to a new one. In: both vocabularies, as files with a word
per line, and a table in a checkpoint. Out: a variable's initial value, in which each word that is
in both vocabularies keeps its row (or column).
"""

from __future__ import annotations

import os
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from headrace._src.core.export import export
from headrace._src.ops.base.define import b
from headrace._src.ops.io.checkpoints import restore_v2
from headrace._src.train.saving.checkpoint_init import initialize_with
from headrace._src.train.saving.checkpoint_reader import checkpoint_in, load_checkpoint
from headrace._src.variables.initializers import Zeros

__all__ = ["VocabInfo", "start_from_vocabulary"]


class _Fields(NamedTuple):
    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int
    backup_initializer: Any
    axis: int


@export("estimator.VocabInfo", "train.VocabInfo")
class VocabInfo(_Fields):
    """The old and new vocabularies of a table.

    new_vocab, old_vocab   files with a word per line
    new_vocab_size         how many words of the file are used
    num_oov_buckets        how many rows follow for words that the file lacks
    old_vocab_size         how many words of the old file are used; -1: all
    backup_initializer     initialises rows that the checkpoint lacks; None: zeros
    axis                   0 if the words are the table's rows, 1 if they are its columns
    """

    __slots__ = ()

    def __new__(
        cls,
        new_vocab: Any,
        new_vocab_size: int,
        num_oov_buckets: int,
        old_vocab: Any,
        old_vocab_size: int = -1,
        backup_initializer: Any = None,
        axis: int = 0,
    ) -> VocabInfo:
        if axis not in (0, 1):
            raise ValueError(f"The only supported values for the axis argument are 0 and 1: {axis}")
        return super().__new__(
            cls,
            os.fsdecode(new_vocab),
            new_vocab_size,
            num_oov_buckets,
            os.fsdecode(old_vocab),
            old_vocab_size,
            backup_initializer,
            axis,
        )

    def places(self) -> np.ndarray:
        """Return, for each row of the new table, its position in the old one; -1: none."""
        old = _words(self.old_vocab, self.old_vocab_size)
        new = _words(self.new_vocab, self.new_vocab_size)
        if len(new) < self.new_vocab_size:
            raise ValueError(
                f"{self.new_vocab} has {len(new)} words, but new_vocab_size is "
                f"{self.new_vocab_size}"
            )
        known = {word: place for place, word in enumerate(old)}
        found = [known.get(word, -1) for word in new]
        return np.array(found + [-1] * self.num_oov_buckets, np.int64)


def _words(path: str, count: int) -> list[bytes]:
    with open(path, "rb") as file:
        lines = (line.rstrip(b"\r\n") for line in file)
        return list(lines if count < 0 else islice(lines, count))


def start_from_vocabulary(checkpoint: Any, saved: str, parts: list[Any], info: VocabInfo) -> None:
    """Initialise a variable, or all parts of one, from a table of the old vocabulary."""
    prefix = checkpoint_in(checkpoint)
    shapes = load_checkpoint(prefix).get_variable_to_shape_map()
    if saved not in shapes:
        raise ValueError(f"Tensor {saved} is not found in {prefix} checkpoint {shapes}")
    places, axis = info.places(), info.axis
    first = parts[0]._get_save_slice_info()
    whole = list(parts[0].shape if first is None else first.full_shape)
    expected = list(shapes[saved])
    if axis >= len(expected) or places.max(initial=-1) >= expected[axis]:
        raise ValueError(
            f"{saved} of shape {expected} has no place for each word of {info.old_vocab} along "
            f"axis {axis}"
        )
    expected[axis] = len(places)
    if whole != expected:
        raise ValueError(
            f"Shape of variable {parts[0].name} ({whole}) doesn't match that of tensor {saved} "
            f"with the new vocabulary ({expected})"
        )
    for part in parts:
        sliced = part._get_save_slice_info()
        start = 0 if sliced is None else sliced.var_offset[axis]
        chosen = places[start : start + part.shape[axis].value]
        with part.graph.as_default(), part.graph.device("/device:CPU:0"):
            initialize_with(part, _moved(prefix, saved, part, sliced, chosen, info))


def _moved(
    prefix: str, saved: str, part: Any, sliced: Any, places: np.ndarray, info: VocabInfo
) -> Any:
    """Return the value of a part: rows of the old table, or of the backup initializer where it has
    none.
    """
    dtype, shape = part.dtype.base_dtype, part.shape.as_list()
    (table,) = restore_v2(prefix, [saved], [""], [dtype], name="checkpoint_initializer")
    if sliced is not None and len(shape) > 1:
        # The part's own range of the axis that doesn't change.
        other = 1 - info.axis
        begin = [0] * len(shape)
        sizes = [-1] * len(shape)
        begin[other], sizes[other] = sliced.var_offset[other], shape[other]
        table = b.slice(table, begin, sizes)
    rows = b.gather(table, np.maximum(places, 0), axis=info.axis)
    rows.set_shape(shape)
    backup = (info.backup_initializer or Zeros())(shape, dtype=dtype)
    spread = [1] * len(shape)
    spread[info.axis] = len(places)
    known = np.broadcast_to((places >= 0).reshape(spread), shape)
    return b.where(known, rows, backup)
