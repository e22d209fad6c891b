"""`tf.summary.scalar` and the rest: summaries with a name, in a collection of the graph.

The tag of a summary is the name of its operation, including scopes, with `family` as a prefix.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace._src.core import dtypes, proto
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.mode import executing_eagerly
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.io import summary_ops

__all__ = [
    "audio",
    "get_summary_description",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "tensor_summary",
    "text",
]

_log = logging.getLogger("headrace")

_INVALID = re.compile(r"[^-/\w.]")


def _clean(name: str | None) -> str | None:
    """Convert a name to one that is valid for an operation."""
    if name is None:
        return None
    cleaned = _INVALID.sub("_", name).lstrip("/")
    if cleaned != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned


@contextmanager
def _scope(
    name: str | None, family: str | None, values: list[Any], default: str | None = None
) -> Iterator[tuple[str, str]]:
    """Return the tag and the scope of a summary."""
    name, family = _clean(name), _clean(family)
    with name_scope(name if family is None else f"{family}/{name}", default, values) as scope:
        tag = scope.rstrip("/")
        yield tag if family is None else f"{family}/{tag}", scope


def _collected(
    summary: Tensor,
    collections: Iterable[str] | None,
    default: tuple[str, ...] = (GraphKeys.SUMMARIES,),
) -> Tensor:
    for key in default if collections is None else collections:
        get_default_graph().add_to_collection(key, summary)
    return summary


@export("summary.scalar")
def scalar(
    name: str, tensor: Any, collections: Iterable[str] | None = None, family: str | None = None
) -> Tensor:
    """Return a summary of one number: a curve over the steps.

    collections: graph collections to add it to, by default GraphKeys.SUMMARIES. family: a prefix of
    the tag, by which TensorBoard groups summaries.
    """
    with _scope(name, family, [tensor]) as (tag, scope):
        return _collected(summary_ops.scalar_summary(tag, tensor, name=scope), collections)


@export("summary.histogram")
def histogram(
    name: str, values: Any, collections: Iterable[str] | None = None, family: str | None = None
) -> Tensor:
    """Return a summary of the distribution of numbers, which must be finite."""
    with _scope(name, family, [values], "HistogramSummary") as (tag, scope):
        return _collected(summary_ops.histogram_summary(tag, values, name=scope), collections)


@export("summary.image")
def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Iterable[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of the first `max_outputs` of a batch of images: [batch, height, width, 1
    (grey), 3 (RGB) or 4 (RGBA)].

    uint8 is used as it is, other types are scaled, each image separately.
    """
    with _scope(name, family, [tensor]) as (tag, scope):
        made = summary_ops.image_summary(tag, tensor, max_images=max_outputs, name=scope)
        return _collected(made, collections)


@export("summary.audio")
def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Iterable[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """Return a summary of the first `max_outputs` of a batch of sounds: [batch, frames] or [batch,
    frames, channels], within [-1, 1].

    sample_rate: in hertz.
    """
    with _scope(name, family, [tensor]) as (tag, scope):
        rate = convert_to_tensor(sample_rate, dtypes.float32, name="sample_rate")
        made = summary_ops.audio_summary_v2(tag, tensor, rate, max_outputs=max_outputs, name=scope)
        return _collected(made, collections)


@export("summary.text")
def text(name: str, tensor: Any, collections: Iterable[str] | None = None) -> Tensor:
    """Return a summary of strings, which TensorBoard shows as Markdown."""
    if tensor.dtype != dtypes.string:
        raise ValueError(
            f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype!r}"
        )
    plugin = proto.SummaryMetadata.PluginData(plugin_name="text")
    metadata = proto.SummaryMetadata(plugin_data=plugin)
    return tensor_summary(name, tensor, collections=collections, summary_metadata=metadata)


@export("summary.tensor_summary")
def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    collections: Iterable[str] | None = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Tensor:
    """Return a summary that contains a whole tensor, described by its metadata.

    summary_description and display_name: texts for the metadata, in addition to summary_metadata.
    """
    metadata = proto.SummaryMetadata()
    if summary_metadata is not None:
        metadata.CopyFrom(summary_metadata)
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    with _scope(name, family, [tensor]) as (tag, scope):
        made = summary_ops.tensor_summary_v2(tag, tensor, metadata.SerializeToString(), name=scope)
        return _collected(made, collections)


def _refuse_eager() -> None:
    if executing_eagerly():
        raise RuntimeError(
            "Merging tf.summary.* ops is not compatible with eager execution. Use "
            "tf.contrib.summary instead."
        )


@export("summary.merge")
def merge(
    inputs: Iterable[Any], collections: Iterable[str] | None = None, name: str | None = None
) -> Tensor:
    """Return one summary with the values of all `inputs`, whose tags must differ."""
    _refuse_eager()
    if isinstance(inputs, str | bytes | Tensor):
        raise TypeError(f"summary.merge needs a list of summaries, not {inputs!r}")
    inputs = list(inputs)
    name = _clean(name)
    with name_scope(name, "Merge", inputs):
        return _collected(summary_ops.merge_summary(inputs, name=name), collections, ())


@export("summary.merge_all")
def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """Return one summary of all those in a collection, within `scope` if given; None if there are
    none.
    """
    _refuse_eager()
    found = get_default_graph().get_collection(key, scope)
    return merge(found, name=name) if found else None


@export("summary.get_summary_description")
def get_summary_description(node_def: Any) -> Any:
    """Return the SummaryDescription in the `description` of a TensorSummary's NodeDef."""
    if node_def.op != summary_ops.tensor_summary.definition.op_type:  # type: ignore[attr-defined]
        raise ValueError(f"Can't get_summary_description on {node_def.op}")
    return proto.json_format.Parse(node_def.attr["description"].s, proto.SummaryDescription())


# -- Summaries that write by themselves, of which a graph of TensorFlow 1 has none -----------------


@export("summary.all_v2_summary_ops")
def all_v2_summary_ops() -> list[Any]:
    """Return the operations of the graph that write summaries to a default writer."""
    return get_default_graph().get_collection("_SUMMARY_V2")


@export("summary.initialize")
def initialize(graph: Any = None, session: Any = None) -> None:
    """Raise RuntimeError: no default writer of tf.contrib.summary can be made here."""
    del graph, session
    raise RuntimeError(
        "No default tf.contrib.summary.SummaryWriter found: use tf.summary.FileWriter"
    )
