"""Joining, splitting, searching and changing strings. In: string tensors. Out: string tensors,
lengths, matches; pieces are returned as the three parts of a sparse matrix.
"""

from __future__ import annotations

from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, broadcast
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.definition import Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.strings import regex, string_kernels

__all__ = [
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "string_join",
    "string_length",
    "string_lower",
    "string_split",
    "string_split_v2",
    "string_strip",
    "string_upper",
    "substr",
    "unsorted_segment_join",
]

_TEXTS = [
    Sample([["a b", " C,d "], ["", "\u00e9t\u00e9"]]),
    Sample("One, two"),
    Sample([]),
]


def _with(samples: list[Sample], **attrs: Any) -> list[Sample]:
    return [Sample(*s.inputs, **attrs) for s in samples]


# -- Joining


def _join_kernel(inputs, *, separator):
    return string_kernels.string_join(*inputs, separator=separator)


def _join_infer(c: InferenceContext, shapes: list[TensorShape]) -> Any:
    if all(s.sizes == () for s in shapes):
        return ()
    merged = TensorShape(None)
    for shape in shapes:
        if shape.sizes:
            merged = merged.merge_with(shape)
    return merged


@export("string_join", "strings.join")
@define(
    "StringJoin",
    "inputs: N*string -> output: string",
    "N: int >= 1; separator: string = ''",
    infer=_join_infer,
    kernel=_join_kernel,
    samples=[
        Sample([r(2, 2), r(2, 2), "-"], separator="/"),
        Sample([r(), r()]),
        Sample([r(0)]),
    ],
)
def string_join(inputs, separator="", name=None):
    """Join strings element by element; scalars broadcast."""


@define(
    "ReduceJoin",
    "inputs: string, reduction_indices: int32 -> output: string",
    "keep_dims: bool = False; separator: string = ''",
    infer=infer.reduction,
    kernel=string_kernels.reduce_join,
    samples=[
        Sample(r(2, 3), [0]),
        Sample(r(2, 3), [1, 0], separator=","),
        Sample(r(2, 3, 2), 1, keep_dims=True),
        Sample(r(2, 3), []),
        Sample(r(0, 3), -2),
    ],
)
def reduce_join_op(inputs, reduction_indices, keep_dims=False, separator="", name=None):
    """Join the strings along axes; the first given axis varies fastest."""


@composed
@dispatched
@export("reduce_join", "strings.reduce_join")
def reduce_join(
    inputs: Any,
    axis: Any = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: Any = None,
    keepdims: bool | None = None,
) -> Tensor:
    """Join the strings along `axis`; if it is None, along all axes in row-major order."""
    axis = renamed_argument("axis", axis, "reduction_indices", reduction_indices)
    keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(None, "ReduceJoin", [inputs, axis]):
        texts = convert_to_tensor(inputs, dtypes.string)
        axes = _backward_axes(texts) if axis is None else axis
        return reduce_join_op(texts, axes, keep_dims=keep, separator=separator, name=name)


def _backward_axes(texts: Tensor) -> Tensor:
    """Return all axes, the last first, which gives row-major order."""
    rank = texts.shape.ndims
    if rank is not None:
        return b.constant(list(range(rank - 1, -1, -1)), dtypes.int32)
    return b.range(b.rank(texts) - 1, -1, -1)


def _segment_join_infer(
    c: InferenceContext, data: TensorShape, ids: TensorShape, number: TensorShape
) -> Any:
    number.with_rank(0)
    if ids.sizes is None or data.sizes is None:
        return None
    data[: len(ids.sizes)].merge_with(ids)
    segments = c.value(2)
    first = None if segments is None else int(segments)
    return (first, *data.sizes[len(ids.sizes) :])


@export("strings.unsorted_segment_join")
@define(
    "UnsortedSegmentJoin",
    "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments -> output: string",
    "separator: string = ''; Tindices: {index}; Tnumsegments: {index} = int32",
    infer=_segment_join_infer,
    kernel=string_kernels.unsorted_segment_join,
    samples=[
        Sample(r(3), [0, 2, 0], 4, separator="-"),
        Sample(r(2, 2), [1, 0], 2),
        Sample(r(2, 2), [[1, 0], [1, 1]], 2),
    ],
)
def unsorted_segment_join(inputs, segment_ids, num_segments, separator="", name=None):
    """Join the strings of each segment in order; an empty segment gives an empty string."""


def _ngrams_infer(c: InferenceContext, data: TensorShape, splits: TensorShape) -> list[Any]:
    data.with_rank(1)
    return [(None,), splits.with_rank(1)]


@define(
    "StringNGrams",
    "data: string, data_splits: Tsplits -> ngrams: string, ngrams_splits: Tsplits",
    "separator: string; ngram_widths: list(int) >= 0; left_pad: string; right_pad: string; "
    "pad_width: int; preserve_short_sequences: bool; Tsplits: {index} = int64",
    infer=_ngrams_infer,
    kernel=string_kernels.string_n_grams,
    samples=[
        Sample(
            ["a", "b", "c", "d"],
            [0, 3, 4],
            separator=" ",
            ngram_widths=widths,
            left_pad="<",
            right_pad=">",
            pad_width=pad,
            preserve_short_sequences=keep,
        )
        for widths, pad, keep in [([2], 0, False), ([1, 3], -1, True), ([4], 1, True)]
    ],
)
def string_n_grams(
    data,
    data_splits,
    separator,
    ngram_widths,
    left_pad,
    right_pad,
    pad_width,
    preserve_short_sequences,
    name=None,
):
    """Return the n-grams of each row of a ragged list of words, as a ragged list."""


# -- Splitting


def _split_infer(c: InferenceContext, texts: TensorShape, mark: TensorShape) -> list[Any]:
    texts.with_rank(1)
    mark.with_rank(0)
    return [(None, 2), (None,), (2,)]


@define(
    "StringSplit",
    "input: string, delimiter: string -> indices: int64, values: string, shape: int64",
    "skip_empty: bool = True",
    infer=_split_infer,
    kernel=string_kernels.string_split,
    samples=[
        Sample(["a b", "", " c  d"], " "),
        Sample(["a b", ""], ""),
        Sample(["a,b", ",c;"], ",;", skip_empty=False),
        Sample([], " "),
    ],
)
def string_split_op(input, delimiter, skip_empty=True, name=None):
    """Split strings at every byte of `delimiter`."""


@define(
    "StringSplitV2",
    "input: string, sep: string -> indices: int64, values: string, shape: int64",
    "maxsplit: int = -1",
    infer=_split_infer,
    kernel=string_kernels.string_split_v2,
    samples=[
        Sample(["a b", "", " c  d"], ""),
        Sample(["a<>b<>c", "<>"], "<>", maxsplit=1),
        Sample([], ""),
    ],
)
def string_split_v2_op(input, sep, maxsplit=-1, name=None):
    """Split strings as Python's str.split does."""


def _check_result_type(result_type: str) -> None:
    if result_type not in ("RaggedTensor", "SparseTensor"):
        raise ValueError("result_type must be 'RaggedTensor' or 'SparseTensor'.")


@composed
@export("string_split")
def string_split(
    source: Any,
    sep: Any = None,
    skip_empty: bool = True,
    delimiter: Any = None,
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> Any:
    """Split each string of a vector at the characters of `sep` into a row of a sparse matrix, or of
    a ragged tensor.

    delimiter: old name of sep. skip_empty: whether to drop empty pieces. result_type:
    'SparseTensor' or 'RaggedTensor'.
    """
    sep = renamed_argument("sep", sep, "delimiter", delimiter)
    _check_result_type(result_type)
    with name_scope(name, "StringSplit", [source]):
        mark = convert_to_tensor(" " if sep is None else sep, dtypes.string)
        texts = convert_to_tensor(source, dtypes.string)
        found = string_split_op(texts, mark, skip_empty)
        return SparseTensor(*found) if result_type == "SparseTensor" else b.ragged_pieces(*found)


@composed
@dispatched
@export("strings.split")
def string_split_v2(
    input: Any = None,
    sep: Any = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: Any = None,
    name: str | None = None,
) -> Any:
    """Split each string at `sep`, or at whitespace, into a new, sparse or ragged last dimension.

    maxsplit: the most splits per string, -1 for no limit. result_type: 'SparseTensor' or
    'RaggedTensor'. source: another name of input.
    """
    input = renamed_argument("input", input, "source", source)
    _check_result_type(result_type)
    with name_scope(name, "StringSplit", [input]):
        texts = convert_to_tensor(input, dtypes.string, "input")
        rank = texts.shape.ndims
        mark = convert_to_tensor("" if sep is None else sep, dtypes.string)
        if result_type == "RaggedTensor":
            return b.ragged_split(texts, mark, maxsplit)
        if rank == 0:
            raise ValueError("input must have at least one dimension for a sparse result.")
        flat = texts if rank in (None, 1) else b.reshape(texts, [-1])
        pieces = SparseTensor(*string_split_v2_op(flat, mark, maxsplit))
        if flat is texts:
            return pieces
        shape = b.concat([b.shape(texts, out_type=dtypes.int64), pieces.dense_shape[1:]], 0)
        return b.sparse_reshape(pieces, shape)


def _substr_infer(
    c: InferenceContext, texts: TensorShape, pos: TensorShape, count: TensorShape
) -> TensorShape:
    if pos.sizes is None or count.sizes is None:
        return infer.UNKNOWN
    return broadcast(texts, pos.merge_with(count))


@export("substr", "strings.substr")
@define(
    "Substr",
    "input: string, pos: T, len: T -> output: string",
    "T: {index}; unit: {'BYTE'|'UTF8_CHAR'} = 'BYTE'",
    infer=_substr_infer,
    kernel=string_kernels.substr,
    samples=[
        Sample(["hello", "world"], 1, 3),
        Sample([["hello"], ["world"]], [-2, 0], [1, 9]),
        Sample(["\u00e9t\u00e9"], [-2], [2], unit="UTF8_CHAR"),
    ],
)
def substr(input, pos, len, name=None, unit="BYTE"):
    """Return `len` bytes (or characters) of every string, starting at `pos`.

    unit: 'BYTE' or 'UTF8_CHAR'. A negative pos counts from the end.
    """


# -- Measuring and changing


@export("strings.length")
@define(
    "StringLength",
    "input: string -> output: int32",
    "unit: {'BYTE'|'UTF8_CHAR'} = 'BYTE'",
    infer=infer.same_as(0),
    kernel=string_kernels.string_length,
    samples=_TEXTS + _with(_TEXTS[:1], unit="UTF8_CHAR"),
)
def string_length(input, name=None, unit="BYTE"):
    """Return the number of bytes (or characters) of every string.

    unit: 'BYTE' or 'UTF8_CHAR'.
    """


@export("strings.lower")
@define(
    "StringLower",
    "input: string -> output: string",
    "encoding: string = ''",
    infer=infer.same_as(0),
    kernel=string_kernels.string_lower,
    samples=_TEXTS + _with(_TEXTS[:1], encoding="utf-8"),
)
def string_lower(input, encoding="", name=None):
    """Return every string in lower case: ASCII letters only, unless `encoding` is "utf-8"."""


@export("strings.upper")
@define(
    "StringUpper",
    "input: string -> output: string",
    "encoding: string = ''",
    infer=infer.same_as(0),
    kernel=string_kernels.string_upper,
    samples=_TEXTS + _with(_TEXTS[:1], encoding="utf-8"),
)
def string_upper(input, encoding="", name=None):
    """Return every string in upper case: ASCII letters only, unless `encoding` is "utf-8"."""


@export("string_strip", "strings.strip")
@define(
    "StringStrip",
    "input: string -> output: string",
    infer=infer.same_as(0),
    kernel=string_kernels.string_strip,
    samples=_TEXTS,
)
def string_strip(input, name=None):
    """Return every string without whitespace at its ends."""


# -- Searching


def _scalar_patterns(c: InferenceContext, texts: TensorShape, *patterns: TensorShape) -> Any:
    for pattern in patterns:
        pattern.with_rank(0)
    return texts


@define(
    "RegexFullMatch",
    "input: string, pattern: string -> output: bool",
    infer=_scalar_patterns,
    kernel=regex.regex_full_match,
    samples=[Sample(*s.inputs, "[a-z ]*") for s in _TEXTS],
)
def regex_full_match_op(input, pattern, name=None):
    """Return which strings match an RE2 pattern as a whole."""


@define(
    "StaticRegexFullMatch",
    "input: string -> output: bool",
    "pattern: string",
    infer=infer.same_as(0),
    kernel=regex.static_regex_full_match,
    samples=_with(_TEXTS, pattern="[a-z ]*"),
)
def static_regex_full_match(input, pattern, name=None):
    """As RegexFullMatch, with a pattern that is known when the graph is built."""


@composed
@dispatched
@export("strings.regex_full_match")
def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Tensor:
    """Return which strings match the RE2 `pattern` as a whole."""
    if isinstance(pattern, str | bytes):
        return static_regex_full_match(input, pattern, name=name)
    return regex_full_match_op(input, pattern, name=name)


@define(
    "RegexReplace",
    "input: string, pattern: string, rewrite: string -> output: string",
    "replace_global: bool = True",
    infer=_scalar_patterns,
    kernel=regex.regex_replace,
    samples=[Sample(*s.inputs, "([a-z])", r"<\1>") for s in _TEXTS]
    + [Sample("aa", "a", "b", replace_global=False)],
)
def regex_replace_op(input, pattern, rewrite, replace_global=True, name=None):
    """Replace the matches of an RE2 pattern."""


@define(
    "StaticRegexReplace",
    "input: string -> output: string",
    "pattern: string; rewrite: string; replace_global: bool = True",
    infer=infer.same_as(0),
    kernel=regex.static_regex_replace,
    samples=_with(_TEXTS, pattern="([a-z])", rewrite=r"<\1>")
    + [Sample("aa", pattern="a", rewrite="b", replace_global=False)],
)
def static_regex_replace(input, pattern, rewrite, replace_global=True, name=None):
    """As RegexReplace, with a pattern and rewrite that are known when the graph is built."""


@composed
@dispatched
@export("regex_replace", "strings.regex_replace")
def regex_replace(
    input: Any,
    pattern: Any,
    rewrite: Any,
    replace_global: bool = True,
    name: str | None = None,
) -> Tensor:
    """Replace every match (or the first) of the RE2 `pattern`; \\1 in `rewrite` is group 1."""
    if isinstance(pattern, str | bytes) and isinstance(rewrite, str | bytes):
        return static_regex_replace(input, pattern, rewrite, replace_global, name=name)
    return regex_replace_op(input, pattern, rewrite, replace_global, name=name)
