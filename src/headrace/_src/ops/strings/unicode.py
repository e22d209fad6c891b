"""Text in many encodings. In: encoded strings or code points. Out: code points or encoded strings.

The code points of several strings are one vector with row splits: string i is
`values[splits[i]:splits[i + 1]]`.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import Kind, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.strings import unicode_kernels, unicode_scripts

__all__ = ["unicode_encode", "unicode_script", "unicode_transcode"]

_TEXTS = [["h\u00e9", ""], "\u4e2d\u6587", []]
_DECODE_ATTRS = (
    "input_encoding: string; errors: {'strict'|'replace'|'ignore'} = 'replace'; "
    "replacement_char: int = 65533; replace_control_characters: bool = False; "
    "Tsplits: {index} = int64"
)


def _splits_of(texts: TensorShape) -> tuple[int | None]:
    count = texts.num_elements()
    return (None if count is None else count + 1,)


@define(
    "UnicodeDecode",
    "input: string -> row_splits: Tsplits, char_values: int32",
    _DECODE_ATTRS,
    infer=lambda c, texts: [_splits_of(texts), (None,)],
    kernel=unicode_kernels.unicode_decode,
    samples=[Sample(t, input_encoding="UTF-8") for t in _TEXTS],
)
def unicode_decode_op(
    input,
    input_encoding,
    errors="replace",
    replacement_char=65533,
    replace_control_characters=False,
    Tsplits=dtypes.int64,
    name=None,
):
    """Return the code points of the strings, with row splits."""


@define(
    "UnicodeDecodeWithOffsets",
    "input: string -> row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64",
    _DECODE_ATTRS,
    infer=lambda c, texts: [_splits_of(texts), (None,), (None,)],
    kernel=unicode_kernels.unicode_decode_with_offsets,
    samples=[Sample(t, input_encoding="UTF-8", errors="ignore") for t in _TEXTS],
)
def unicode_decode_with_offsets_op(
    input,
    input_encoding,
    errors="replace",
    replacement_char=65533,
    replace_control_characters=False,
    Tsplits=dtypes.int64,
    name=None,
):
    """Return the code points of the strings, with row splits and the byte offset of each."""


def _encode_infer(c: InferenceContext, values: TensorShape, splits: TensorShape) -> Any:
    values.with_rank(1)
    sizes = splits.with_rank(1).sizes
    count = sizes[0] if sizes else None
    if count == 0:
        raise ValueError("input_splits must not be empty")
    return (None if count is None else count - 1,)


@define(
    "UnicodeEncode",
    "input_values: int32, input_splits: Tsplits -> output: string",
    "errors: {'ignore'|'replace'|'strict'} = 'replace'; "
    "output_encoding: {'UTF-8'|'UTF-16-BE'|'UTF-32-BE'}; replacement_char: int = 65533; "
    "Tsplits: {index} = int64",
    infer=_encode_infer,
    kernel=unicode_kernels.unicode_encode,
    samples=[
        Sample([104, 233, 105], [0, 2, 2, 3], output_encoding="UTF-8"),
        Sample([0x4E2D], [0, 1], output_encoding="UTF-16-BE", errors="strict"),
    ],
)
def unicode_encode_op(
    input_values,
    input_splits,
    output_encoding,
    errors="replace",
    replacement_char=65533,
    name=None,
):
    """Return one string per row of code points."""


@composed
@dispatched
@export("strings.unicode_encode")
def unicode_encode(
    input: Any,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Tensor:
    """Return the strings whose code points are the rows (the last dimension) of a tensor or a
    ragged tensor.

    errors: what to do with invalid code points: 'replace' them by replacement_char, 'ignore' them
    or fail ('strict').
    """
    with name_scope(name, "UnicodeEncode", [input]):
        points = convert_to_tensor(input)
        rank = points.shape.ndims
        if rank is None:
            raise ValueError("Rank of input_tensor must be statically known.")
        if rank == 0:
            raise ValueError("input_tensor's rank must be at least 1.")
        shape = b.shape(points, out_type=dtypes.int64)
        count, length = b.reduce_prod(shape[:-1]), shape[-1]
        splits = b.range(count + 1) * length
        texts = unicode_encode_op(
            b.reshape(points, [-1]), splits, output_encoding, errors, replacement_char
        )
        return b.reshape(texts, shape[:-1])


@export("strings.unicode_transcode")
@define(
    "UnicodeTranscode",
    "input: string -> output: string",
    "input_encoding: string; output_encoding: {'UTF-8'|'UTF-16-BE'|'UTF-32-BE'}; "
    "errors: {'strict'|'replace'|'ignore'} = 'replace'; replacement_char: int = 65533; "
    "replace_control_characters: bool = False",
    infer=infer.same_as(0),
    kernel=unicode_kernels.unicode_transcode,
    samples=[Sample(t, input_encoding="UTF-8", output_encoding="UTF-16-BE") for t in _TEXTS],
)
def unicode_transcode(
    input,
    input_encoding,
    output_encoding,
    errors="replace",
    replacement_char=65533,
    replace_control_characters=False,
    name=None,
):
    """Return every string in another encoding.

    errors: what to do with malformed input: 'replace' it by replacement_char, 'ignore' it or fail
    ('strict'). replace_control_characters: whether to replace these too.
    """


@export("strings.unicode_script")
@define(
    "UnicodeScript",
    "input: int32 -> output: int32",
    infer=infer.same_as(0),
    kernel=unicode_scripts.unicode_script,
    kind=Kind.ELEMENTWISE,
    samples=[Sample([[65, 0x4E2D], [-1, 0x3B1]]), Sample([])],
)
def unicode_script(input, name=None):
    """Return ICU's number of each code point's script, -1 for invalid code points."""
