"""Data in strings. In: string tensors, or numbers to format. Out: numbers, columns, hashes, packed
or unpacked bytes; and the reverse.
"""

from __future__ import annotations

import itertools
from typing import Any

from headrace._src.core.dtypes import float32
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.graph.inference import InferenceContext
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import composed, define
from headrace._src.ops.base.dispatch import dispatched
from headrace._src.ops.base.renamed_arguments import renamed_argument
from headrace._src.ops.base.samples import r, unary
from headrace._src.ops.io import decode_text
from headrace._src.ops.strings import fingerprints, printf

__all__ = [
    "as_string",
    "decode_base64",
    "decode_compressed",
    "decode_csv",
    "decode_raw",
    "encode_base64",
    "fingerprint",
    "string_format",
    "string_to_hash_bucket",
    "string_to_hash_bucket_fast",
    "string_to_hash_bucket_strong",
    "string_to_number",
]

_WORDS = [Sample(r(2, 3)), Sample(["", "longer text, of more than a few bytes"]), Sample(r(0))]


# -- Numbers as text


@export("as_string", "dtypes.as_string", "strings.as_string")
@define(
    "AsString",
    "input: T -> output: string",
    "T: {int8|int16|int32|int64|complex64|complex128|float32|float64|bool}; precision: int = -1; "
    "scientific: bool = False; shortest: bool = False; width: int = -1; fill: string = ''",
    infer=infer.same_as(0),
    kernel=printf.as_string,
    samples=[
        *unary(),
        Sample(r(2), T="float32", precision=3, width=9, fill="0"),
        Sample(r(2), T="complex64", scientific=True),
    ],
)
def as_string(
    input,
    precision=-1,
    scientific=False,
    shortest=False,
    width=-1,
    fill="",
    name=None,
):
    """Return every number as text, formatted like printf.

    precision: digits after the decimal point, -1 for the default. scientific: use exponents.
    shortest: choose the shorter notation. width: the least number of characters. fill: a
    printf flag, such as '0' (pad with zeros) or '-' (align left).
    """


@define(
    "StringToNumber",
    "string_tensor: string -> output: out_type",
    "out_type: {float32|float64|int32|int64} = float32",
    infer=infer.same_as(0),
    kernel=decode_text.string_to_number,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([["1", "-23"], [" 4 ", "0"]]),
        Sample("7"),
        Sample(["1.5e3"], out_type="float64"),
    ],
)
def string_to_number_op(string_tensor, out_type=None, name=None):
    """Return every string as a number."""


@composed
@dispatched
@export("string_to_number", "strings.to_number")
def string_to_number(
    string_tensor: Any = None,
    out_type: Any = float32,
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Return every string as a number of type `out_type`."""
    texts = renamed_argument("input", input, "string_tensor", string_tensor)
    return string_to_number_op(texts, out_type, name=name)


def _format_kernel(inputs, *, template, placeholder, summarize):
    return printf.string_format(
        *inputs, template=template, placeholder=placeholder, summarize=summarize
    )


@define(
    "StringFormat",
    "inputs: *T -> output: string",
    "T: list(type) >= 0; template: string = '%s'; placeholder: string = '%s'; summarize: int = 3",
    infer=infer.scalar,
    kernel=_format_kernel,
    samples=[
        Sample([r(2, 9), [b"x"]], T=["float32", "string"], template="%s and %s", summarize=2),
        Sample([], T=[], template="nothing"),
    ],
)
def string_format_op(inputs, template="%s", placeholder="%s", summarize=3, name=None):
    """Write tensors into a template."""


@composed
@export("strings.format")
def string_format(
    template: str,
    inputs: Any,
    placeholder: str = "{}",
    summarize: int = 3,
    name: str | None = None,
) -> Tensor:
    """Return `template` with each `placeholder` replaced by the text of one of the `inputs`.

    summarize: how many elements to show at each end of a dimension, -1 for all.
    """
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    found = template.count(placeholder)
    if found != len(tensors):
        raise ValueError(
            f"{found} placeholder(s) in template does not match {len(tensors)} tensor(s) provided "
            "as input"
        )
    return string_format_op(tensors, template, placeholder, summarize, name=name)


# -- Records and raw bytes


def _csv_kernel(records, record_defaults, *, field_delim, use_quote_delim, na_value, select_cols):
    return decode_text.decode_csv(
        records,
        *record_defaults,
        field_delim=field_delim,
        use_quote_delim=use_quote_delim,
        na_value=na_value,
        select_cols=select_cols,
    )


def _csv_infer(
    c: InferenceContext, records: TensorShape, defaults: list[TensorShape]
) -> list[TensorShape]:
    for default in defaults:
        sizes = default.with_rank_at_most(1).sizes
        if sizes and sizes[0] is not None and sizes[0] > 1:
            raise ValueError(
                "Shape of a default must be a length-0 or length-1 vector, or a scalar"
            )
    return [records] * len(defaults)


@define(
    "DecodeCSV",
    "records: string, record_defaults: *OUT_TYPE -> output: *OUT_TYPE",
    "OUT_TYPE: list{float32|float64|int32|int64|string} >= 1; field_delim: string = ','; "
    "use_quote_delim: bool = True; na_value: string = ''; select_cols: list(int) = []",
    infer=_csv_infer,
    kernel=_csv_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(["1.5,a", ',"b,""c"""'], [[2.0], []], OUT_TYPE=["float32", "string"]),
        Sample(
            [["1|NA|3"]], [7], OUT_TYPE=["int64"], field_delim="|", na_value="NA", select_cols=[1]
        ),
    ],
)
def decode_csv_op(
    records,
    record_defaults,
    field_delim=",",
    use_quote_delim=True,
    na_value="",
    select_cols=None,
    name=None,
):
    """Split CSV records into one tensor per column."""


@composed
@export("decode_csv", "io.decode_csv")
def decode_csv(
    records: Any,
    record_defaults: Any,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Any = None,
) -> list[Tensor]:
    """Return one tensor per column of CSV records.

    record_defaults: one tensor per column, which gives its type and, if not empty, its default.
    field_delim: the separator. use_quote_delim: whether quotes delimit fields. na_value: a text
    that also stands for the default. select_cols: the indices of the columns to return.
    """
    if select_cols is not None:
        if any(a >= z for a, z in itertools.pairwise(select_cols)):
            raise ValueError("select_cols is not strictly increasing.")
        if select_cols and select_cols[0] < 0:
            raise ValueError("select_cols contains negative values.")
        if len(select_cols) != len(record_defaults):
            raise ValueError("Length of select_cols and record_defaults do not match.")
    return decode_csv_op(
        records, record_defaults, field_delim, use_quote_delim, na_value, select_cols, name=name
    )


@define(
    "DecodeRaw",
    "bytes: string -> output: out_type",
    "out_type: {float16|float32|float64|int32|uint16|uint8|int16|int8|int64|complex64|complex128"
    "|bool}; little_endian: bool = True",
    infer=lambda c, texts: texts.concatenate([None]),
    kernel=decode_text.decode_raw,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample([["\0" * 16], ["\1" * 16]]),
        Sample("\1\2\3\4", out_type="int16", little_endian=False),
        Sample([]),
    ],
)
def decode_raw_op(bytes, out_type, little_endian=True, name=None):
    """Read the bytes of strings as numbers."""


@composed
@export("decode_raw", "io.decode_raw")
def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
) -> Tensor:
    """Return the numbers in each string's bytes, as a new last dimension.

    input_bytes: strings of equal size, a multiple of the size of out_type. little_endian: the byte
    order of the data.
    """
    texts = renamed_argument("input_bytes", input_bytes, "bytes", bytes)
    if out_type is None:
        raise ValueError("decode_raw_v1() missing 1 positional argument: 'out_type'")
    return decode_raw_op(texts, out_type, little_endian, name=name)


def _padded_infer(c: InferenceContext, texts: TensorShape, length: TensorShape) -> TensorShape:
    length.with_rank(0)
    size = c.value(1)
    width = c.attrs["out_type"].size
    return texts.concatenate([None if size is None else int(size) // width])


@define(
    "DecodePaddedRaw",
    "input_bytes: string, fixed_length: int32 -> output: out_type",
    "out_type: {float16|float32|float64|int32|uint16|uint8|int16|int8|int64}; "
    "little_endian: bool = True",
    infer=_padded_infer,
    kernel=decode_text.decode_padded_raw,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(["\1\2\3", "\1" * 20], 16),
        Sample("", 4, out_type="int16", little_endian=False),
    ],
)
def decode_padded_raw(input_bytes, fixed_length, out_type, little_endian=True, name=None):
    """Read the bytes of strings, truncated or zero-padded to `fixed_length`, as numbers."""


@export("decode_compressed", "io.decode_compressed")
@define(
    "DecodeCompressed",
    "bytes: string -> output: string",
    "compression_type: string = ''",
    infer=infer.same_as(0),
    kernel=decode_text.decode_compressed,
    samples=[
        *_WORDS,
        Sample([b"x\x9cKL\x04\x00\x01\x25\x00\xc3"], compression_type="ZLIB"),
    ],
)
def decode_compressed(bytes, compression_type="", name=None):
    """Decompress every string.

    compression_type: 'ZLIB', 'GZIP' or '' for none.
    """


@export("encode_base64", "io.encode_base64")
@define(
    "EncodeBase64",
    "input: string -> output: string",
    "pad: bool = False",
    infer=infer.same_as(0),
    kernel=decode_text.encode_base64,
    samples=[*_WORDS, Sample(["a"], pad=True)],
)
def encode_base64(input, pad=False, name=None):
    """Encode every string in web-safe base64."""


@export("decode_base64", "io.decode_base64")
@define(
    "DecodeBase64",
    "input: string -> output: string",
    infer=infer.same_as(0),
    kernel=decode_text.decode_base64,
    samples=[Sample(["YQ", "YWI=", ""]), Sample("-_8"), Sample([])],
)
def decode_base64(input, name=None):
    """Decode every string from web-safe base64."""


# -- Hashes


@define(
    "StringToHashBucket",
    "string_tensor: string -> output: int64",
    "num_buckets: int >= 1",
    infer=infer.same_as(0),
    kernel=fingerprints.string_to_hash_bucket,
    samples=[Sample(*s.inputs, num_buckets=100) for s in _WORDS],
)
def string_to_hash_bucket_op(string_tensor, num_buckets, name=None):
    """Hash every string into a bucket."""


@composed
@dispatched
@export("string_to_hash_bucket", "strings.to_hash_bucket")
def string_to_hash_bucket(
    string_tensor: Any = None,
    num_buckets: int | None = None,
    name: str | None = None,
    input: Any = None,
) -> Tensor:
    """Hash every string into one of `num_buckets` buckets."""
    texts = renamed_argument("input", input, "string_tensor", string_tensor)
    return string_to_hash_bucket_op(texts, num_buckets, name=name)


@export("string_to_hash_bucket_fast", "strings.to_hash_bucket_fast")
@define(
    "StringToHashBucketFast",
    "input: string -> output: int64",
    "num_buckets: int >= 1",
    infer=infer.same_as(0),
    kernel=fingerprints.string_to_hash_bucket_fast,
    samples=[Sample(*s.inputs, num_buckets=100) for s in _WORDS],
)
def string_to_hash_bucket_fast(input, num_buckets, name=None):
    """Hash every string into a bucket; fast and stable, but easily attacked."""


@export("string_to_hash_bucket_strong", "strings.to_hash_bucket_strong")
@define(
    "StringToHashBucketStrong",
    "input: string -> output: int64",
    "num_buckets: int >= 1; key: list(int)",
    infer=infer.same_as(0),
    kernel=fingerprints.string_to_hash_bucket_strong,
    samples=[Sample(*s.inputs, num_buckets=100, key=[1, 2]) for s in _WORDS],
)
def string_to_hash_bucket_strong(input, num_buckets, key, name=None):
    """Hash every string into a bucket under a secret key of two integers."""


def _fingerprint_infer(c: InferenceContext, data: TensorShape, method: TensorShape) -> Any:
    method.with_rank(0)
    sizes = data.with_rank_at_least(1).sizes
    known = c.value(1)  # farmhash64 is the only method; another's result may be larger
    return (None if sizes is None else sizes[0], None if known is None else 8)


@define(
    "Fingerprint",
    "data: T, method: string -> fingerprint: uint8",
    "T: type",
    infer=_fingerprint_infer,
    kernel=fingerprints.fingerprint,
    samples=[Sample(r(2, 3), "farmhash64"), Sample(r(2), "farmhash64")],
)
def fingerprint_op(data, method, name=None):
    """Hash every row of `data` to 8 bytes."""


@composed
@export("fingerprint")
def fingerprint(data: Any, method: Any = "farmhash64", name: str | None = None) -> Tensor:
    """Return a fingerprint of 8 bytes for each row of `data`, the same on every machine."""
    return fingerprint_op(data, method, name=name)
