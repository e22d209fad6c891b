"""Summaries: numbers, images and sounds about a step, as the protocol buffers of event files. In: a
tag and a tensor. Out: a serialised Summary, a scalar string.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace._src.core import proto
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import show_shape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.ops.base import infer
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.image.png import encode_png
from headrace._src.ops.io.summary_kernels import (
    encode_wav,
    histogram,
    normalized_image,
    tensor_with_content,
)

__all__ = [
    "audio_summary",
    "audio_summary_v2",
    "histogram_summary",
    "image_summary",
    "merge_summary",
    "scalar_summary",
    "tensor_summary",
    "tensor_summary_v2",
]


def _invalid(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def _text(tag: bytes) -> str:
    return tag.decode("utf-8", "replace")


def _one_tag(tag: Any, message: str) -> str:
    if np.shape(tag) != ():
        raise _invalid(message)
    return _text(np.asarray(tag, object).item())


def _parsed(message: type, data: bytes, complaint: str) -> Any:
    try:
        return message.FromString(data)  # type: ignore[attr-defined]
    except proto.DecodeError:
        raise _invalid(complaint) from None


def _serialized(summary: Any) -> np.ndarray:
    return np.array(summary.SerializeToString(), object)


def _numbered(tag: str, kind: str, limit: int, batch: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Return the first `limit` of a batch, each with its tag; a number distinguishes them, unless
    there can only be one.
    """
    for i, item in enumerate(batch[:limit]):
        yield f"{tag}/{kind}/{i}" if limit > 1 else f"{tag}/{kind}", item


# -- Numbers ---------------------------------------------------------------------------------------


def _scalar_kernel(tags, values):
    if np.shape(tags) != np.shape(values):
        tag = f" (tag '{_text(np.ravel(tags)[0])}')" if np.size(tags) == 1 else ""
        raise _invalid(
            f"tags and values not the same shape: {show_shape(np.shape(tags))} != "
            f"{show_shape(np.shape(values))}{tag}"
        )
    summary = proto.Summary()
    with np.errstate(over="ignore"):  # a double beyond float32's range becomes infinite
        numbers = np.asarray(values).astype(np.float32)
    for tag, number in zip(np.ravel(tags).tolist(), np.ravel(numbers).tolist(), strict=True):
        summary.value.add(tag=_text(tag), simple_value=number)
    return _serialized(summary)


@define(
    "ScalarSummary",
    "tags: string, values: T -> summary: string",
    "T: {reals}",
    infer=infer.scalar,
    kernel=_scalar_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(b"a", r()), Sample([b"a", b"b"], r(2))],
)
def scalar_summary(tags, values, name=None):
    """Return a serialised Summary with a number for each tag."""


def _histogram_kernel(tag, values, *, op):
    text = _one_tag(tag, "tags must be scalar")
    numbers = np.asarray(values).astype(np.float64)
    if not np.isfinite(numbers).all():
        first = numbers[~np.isfinite(numbers)][0]
        kind = "Nan" if np.isnan(first) else "Infinity"
        raise _invalid(f"{kind} in summary histogram for: {op.name}")
    summary = proto.Summary()
    summary.value.add(tag=text, histo=histogram(numbers))
    return _serialized(summary)


@define(
    "HistogramSummary",
    "tag: string, values: T -> summary: string",
    "T: {reals} = float32",
    infer=infer.scalar,
    kernel=_histogram_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(b"a", r(3, 4)), Sample(b"b", r()), Sample(b"c", r(0))],
)
def histogram_summary(tag, values, name=None):
    """Return a serialised Summary with a histogram of `values`, which must be finite."""


# -- Tensors ---------------------------------------------------------------------------------------


def _tensor_kernel(tensor, *, op, T):
    summary = proto.Summary()
    summary.value.add(node_name=op.name, tensor=tensor_with_content(np.asarray(tensor), T))
    return _serialized(summary)


@define(
    "TensorSummary",
    "tensor: T -> summary: string",
    "T: type; description: string = ''; labels: list(string) = []; display_name: string = ''",
    infer=infer.scalar,
    kernel=_tensor_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(r(2, 3)), Sample(r(), description="d", labels=["x"], display_name="y")],
)
def tensor_summary(tensor, description="", labels=(), display_name="", name=None):
    """Return a serialised Summary with a tensor, under the operation's own name."""


def _tensor_v2_kernel(tag, tensor, serialized_summary_metadata, *, T):
    text = _one_tag(tag, "tag must be scalar")
    if np.shape(serialized_summary_metadata) != ():
        raise _invalid("serialized_summary_metadata must be scalar")
    data = np.asarray(serialized_summary_metadata, object).item()
    metadata = _parsed(
        proto.SummaryMetadata, data, "serialized_summary_metadata is not a SummaryMetadata"
    )
    summary = proto.Summary()
    content = tensor_with_content(np.asarray(tensor), T)
    summary.value.add(tag=text, tensor=content, metadata=metadata)
    return _serialized(summary)


@define(
    "TensorSummaryV2",
    "tag: string, tensor: T, serialized_summary_metadata: string -> summary: string",
    "T: type",
    infer=infer.scalar,
    kernel=_tensor_v2_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(b"a", r(2, 3), b""), Sample(b"b", r(), b"\x12\x01d")],
)
def tensor_summary_v2(tag, tensor, serialized_summary_metadata, name=None):
    """Return a serialised Summary with a tensor, and the metadata of its tag."""


# -- Images and sounds -----------------------------------------------------------------------------


def _image_kernel(tag, tensor, *, max_images, bad_color):
    text = _one_tag(tag, "Tags must be a scalar")
    if bad_color.dtype != np.uint8:
        raise _invalid(f"bad_color must be uint8, got {bad_color.dtype}")
    if bad_color.ndim != 1:
        raise _invalid(f"bad_color must be a vector, got shape {show_shape(bad_color.shape)}")
    batch = np.asarray(tensor)
    if batch.ndim != 4 or batch.shape[3] not in (1, 3, 4):
        raise _invalid(
            f"Tensor must be 4-D with last dim 1, 3, or 4, not {show_shape(batch.shape)}"
        )
    if len(batch) and not batch.size:
        raise _invalid(f"input tensor must have non-zero dims. Found: {list(batch.shape)}.")
    summary = proto.Summary()
    height, width, depth = batch.shape[1:]
    for name, image in _numbered(text, "image", max_images, batch):
        pixels = image if image.dtype == np.uint8 else normalized_image(image, bad_color)
        summary.value.add(tag=name).image.MergeFrom(
            proto.Summary.Image(
                height=height,
                width=width,
                colorspace=depth,
                encoded_image_string=encode_png(pixels),
            )
        )
    return _serialized(summary)


@define(
    "ImageSummary",
    "tag: string, tensor: T -> summary: string",
    "max_images: int >= 1 = 3; T: {uint8|float32|float16|float64} = float32; "
    "bad_color: tensor = uint8[255, 0, 0, 255]",
    infer=infer.scalar,
    kernel=_image_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(b"a", r(2, 3, 4, 1)),
        Sample(b"b", r(4, 2, 2, 3, low=0.0), max_images=1),
        Sample(b"c", r(1, 1, 1, 4), bad_color=np.zeros(4, np.uint8)),
        Sample(b"d", r(0, 2, 2, 1)),
    ],
)
def image_summary(tag, tensor, max_images=3, bad_color=None, name=None):
    """Return a serialised Summary with the first `max_images` of a batch of images, as PNGs.

    Pixels that aren't finite get `bad_color`.
    """


def _audio_kernel(tag, tensor, sample_rate, *, max_outputs):
    text = _one_tag(tag, "Tag must be a scalar")
    batch = np.asarray(tensor)
    if batch.ndim not in (2, 3):
        raise _invalid(f"Tensor must be 3-D or 2-D, got: {show_shape(batch.shape)}")
    if np.size(sample_rate) != 1:
        raise _invalid(f"sample_rate must be scalar, got: {show_shape(np.shape(sample_rate))}")
    rate = float(np.asarray(sample_rate).item())
    if not rate > 0:
        raise _invalid("sample_rate must be > 0")
    if rate >= 2**31:
        raise _invalid(f"sample_rate must be below 2^31, got: {rate}")
    if len(batch) and not batch.size:
        raise _invalid(f"audio is empty: {show_shape(batch.shape)}")
    batch = batch[:, :, np.newaxis] if batch.ndim == 2 else batch
    summary = proto.Summary()
    for name, sound in _numbered(text, "audio", max_outputs, batch):
        summary.value.add(tag=name).audio.MergeFrom(
            proto.Summary.Audio(
                sample_rate=rate,
                num_channels=batch.shape[2],
                length_frames=batch.shape[1],
                encoded_audio_string=encode_wav(sound, rate),
                content_type="audio/wav",
            )
        )
    return _serialized(summary)


@define(
    "AudioSummaryV2",
    "tag: string, tensor: float32, sample_rate: float32 -> summary: string",
    "max_outputs: int >= 1 = 3",
    infer=infer.scalar,
    kernel=_audio_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(b"a", r(2, 5), 100.0),
        Sample(b"b", r(4, 5, 2), 44100.0, max_outputs=1),
        Sample(b"c", r(0, 5), 8.0),
    ],
)
def audio_summary_v2(tag, tensor, sample_rate, max_outputs=3, name=None):
    """Return a serialised Summary with the first `max_outputs` of a batch of sounds, as WAVs."""


def _audio_v1_kernel(tag, tensor, *, sample_rate, max_outputs):
    return _audio_kernel(tag, tensor, sample_rate, max_outputs=max_outputs)


@define(
    "AudioSummary",
    "tag: string, tensor: float32 -> summary: string",
    "sample_rate: float; max_outputs: int >= 1 = 3",
    infer=infer.scalar,
    kernel=_audio_v1_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(b"a", r(2, 5), sample_rate=100.0)],
)
def audio_summary(tag, tensor, sample_rate, max_outputs=3, name=None):
    """As `audio_summary_v2`, for old graphs: the rate is an attribute."""


# -- Several in one --------------------------------------------------------------------------------


def _merge_kernel(inputs):
    merged = proto.Summary()
    seen = set()
    for serialized in (text for value in inputs for text in np.ravel(value).tolist()):
        summary = _parsed(proto.Summary, serialized, "Could not parse one of the summary inputs")
        for value in summary.value:
            if value.tag and value.tag in seen:
                raise _invalid(f"Duplicate tag {value.tag} found in summary inputs")
            seen.add(value.tag)
        merged.value.extend(summary.value)
    return _serialized(merged)


@define(
    "MergeSummary",
    "inputs: N*string -> summary: string",
    "N: int >= 1",
    infer=infer.scalar,
    kernel=_merge_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample([b"\x0a\x03\x0a\x01a", b""]), Sample([[b"\x0a\x03\x0a\x01a", b""]])],
)
def merge_summary(inputs, name=None):
    """Return one serialised Summary with the values of all `inputs`, whose tags must differ."""
