"""Printing: tf.print of tensors and of structures that contain them."""

from __future__ import annotations

import collections
import pprint
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.composite import IndexedSlices, SparseTensor
from headrace._src.graph.definition import Effect, Sample
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.conversion_registry import is_tensor
from headrace._src.ops.base.define import b, composed, define
from headrace._src.ops.base.to_tensor import convert_to_tensor

__all__ = ["print_tensors"]

_STREAMS = {
    "stdout": lambda: sys.stdout,
    "stderr": lambda: sys.stderr,
    "log(info)": lambda: sys.stderr,
    "log(warning)": lambda: sys.stderr,
    "log(error)": lambda: sys.stderr,
}


def _print_v2_kernel(text, *, output_stream, end):
    text = np.asarray(text, object).item()
    line = text.decode(errors="replace") + (end if isinstance(end, str) else end.decode())
    if output_stream.startswith("file://"):
        with open(output_stream.removeprefix("file://"), "a") as file:
            file.write(line)
    elif output_stream in _STREAMS:
        stream = _STREAMS[output_stream]()
        stream.write(line)
        stream.flush()
    else:
        raise ValueError(f"Unknown output stream '{output_stream}'")


def _print_v2_infer(c: Any, text: Any) -> list[Any]:
    text.with_rank(0)
    return []


@define(
    "PrintV2",
    "input: string ->",
    "output_stream: string = 'stderr'; end: string = '\\n'",
    infer=_print_v2_infer,
    kernel=_print_v2_kernel,
    effect=Effect.WRITES,
    samples=[Sample(b"", end="")],
)
def print_v2(input, output_stream="stderr", end="\n", name=None):
    """Print a string."""


@composed
@export("print")
def print_tensors(*inputs: Any, **kwargs: Any) -> Operation:
    """Return an operation that prints `inputs`, separated by `sep`; tensors show `summarize`
    elements at each end.

    Keywords: output_stream (sys.stdout, sys.stderr, "file://path", "log(info)", ...), summarize,
    sep, end, name.
    """
    stream = _stream_name(kwargs.pop("output_stream", sys.stderr))
    name = kwargs.pop("name", None)
    summarize = kwargs.pop("summarize", 3)
    sep = kwargs.pop("sep", " ")
    end = kwargs.pop("end", "\n")
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {kwargs}")
    if len(inputs) == 1 and _is_text(inputs[0]):
        text = inputs[0]
    else:
        form = None if name is None else f"{name}_format"
        text = _formatted(inputs, sep, summarize, form)
    return print_v2(text, output_stream=stream, end=end, name=name)


def _is_text(value: Any) -> bool:
    """Whether a value is certainly a single string tensor, which is printed unquoted."""
    return isinstance(value, Tensor) and value.dtype == dtypes.string and value.shape.ndims == 0


def _formatted(inputs: tuple[Any, ...], sep: str, summarize: int, name: str | None) -> Tensor:
    """Return the inputs as one string, with tensors written as StringFormat writes them."""
    plain = " ".join(_Printer().pformat(_replaced(value, lambda leaf: "")) for value in inputs)
    mark = "{}"
    while mark in plain:  # text from users must not be mistaken for a tensor's placeholder
        mark += "9"
    tensors: list[Tensor] = []

    def place(leaf: Any) -> str:
        if isinstance(leaf, SparseTensor):
            tensors.extend(leaf.components())
            return f"SparseTensor(indices={mark}, values={mark}, shape={mark})"
        tensors.append(convert_to_tensor(leaf))
        return mark

    texts = [
        value if isinstance(value, str) else _Printer().pformat(_replaced(value, place))
        for value in inputs
    ]
    template = sep.join(texts).replace(f"'{mark}'", mark)  # tensors in structures are not quoted
    return b.string_format(template, tensors, placeholder=mark, summarize=summarize, name=name)


class _Printer(pprint.PrettyPrinter):
    """pprint, with ordered dictionaries as lists of pairs, as Python wrote them before 3.12."""

    def format(self, object: Any, context: Any, maxlevels: int, level: int) -> Any:
        if type(object) is not collections.OrderedDict or not object:
            return super().format(object, context, maxlevels, level)
        pairs = list(object.items())
        text, readable, recursive = super().format(pairs, context, maxlevels, level)
        return f"OrderedDict({text})", readable, recursive


def _replaced(value: Any, replace: Callable[[Any], str]) -> Any:
    """Return a structure with its tensors replaced, in the order in which pprint shows them."""
    if isinstance(value, IndexedSlices):
        return str(value)
    if is_tensor(value):
        return replace(value)
    if isinstance(value, Mapping):
        ordered = value if isinstance(value, collections.OrderedDict) else sorted(value)
        pairs = [(key, _replaced(value[key], replace)) for key in ordered]
        return collections.OrderedDict(pairs) if ordered is value else dict(pairs)
    if isinstance(value, list | tuple):
        items = [_replaced(item, replace) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _stream_name(stream: Any) -> str:
    if stream is sys.stdout:
        return "stdout"
    if stream is sys.stderr:
        return "stderr"
    if isinstance(stream, str) and (stream.startswith("file://") or stream in _STREAMS):
        return stream
    names = {20: "log(info)", 30: "log(warning)", 40: "log(error)"}
    if isinstance(stream, int) and stream in names:
        return names[stream]
    raise ValueError(f"tf.print: Unrecognized output stream: {stream!r}")
