"""Examples written as JSON. In: strings, each an Example in protobuf's JSON form. Out: the same as
serialized protos.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.graph.definition import Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.strings.string_arrays import of_strings, string_array

__all__ = ["decode_json_example"]


def _decoded(text: bytes) -> bytes:
    try:
        message: Any = proto.json_format.Parse(text, proto.Example())
    except (proto.json_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"Error while parsing JSON: {error}") from None
    return message.SerializeToString(deterministic=True)


def _kernel(json_examples: Any) -> np.ndarray:
    texts = string_array(json_examples)
    return of_strings([_decoded(text) for text in texts.ravel().tolist()], texts.shape)


@export("decode_json_example", "io.decode_json_example")
@define(
    "DecodeJSONExample",
    "json_examples: string -> binary_examples: string",
    infer=infer.same_as(0),
    kernel=_kernel,
    samples=[
        Sample(b'{"features": {"feature": {"a": {"int64List": {"value": [1, 2]}}}}}'),
        Sample([[b"{}"], [b'{"features": {}}']]),
    ],
)
def decode_json_example(json_examples, name=None):
    """Return Examples, given as JSON, as serialized protos."""
