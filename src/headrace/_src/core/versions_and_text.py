"""Conversions between bytes and text for TF1 programs, and the version of the API."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from headrace._src.core.export import export, export_value

__all__ = [
    "COMPILER_VERSION",
    "CXX11_ABI_FLAG",
    "GIT_VERSION",
    "HEADRACE_VERSION",
    "MONOLITHIC_BUILD",
    "VERSION",
    "as_bytes",
    "as_str_any",
    "as_text",
]

HEADRACE_VERSION = "0.1.0"
# Programs compare these to decide which of TensorFlow's APIs to use: ours is 1.15's.
VERSION = "1.15.5"
GIT_VERSION = f"v{VERSION}-headrace-{HEADRACE_VERSION}"
COMPILER_VERSION = "none"
CXX11_ABI_FLAG = 0
MONOLITHIC_BUILD = 0
# The GraphDef version that TensorFlow 1.15.5 writes, and the newest that it reads.
GRAPH_DEF_VERSION = 134
GRAPH_DEF_VERSION_MIN_CONSUMER = 0
GRAPH_DEF_VERSION_MIN_PRODUCER = 0
for _name in ("", "_MIN_CONSUMER", "_MIN_PRODUCER"):
    _name = f"GRAPH_DEF_VERSION{_name}"
    export_value(__name__, _name, _name, f"version.{_name}")

# The types that programs test for when they take text or numbers.
bytes_or_text_types = (bytes, str)
integral_types = (numbers.Integral, np.integer)
real_types = (numbers.Real, np.integer, np.floating)
complex_types = (numbers.Complex, np.number)
for _name in ("bytes_or_text_types", "integral_types", "real_types", "complex_types"):
    export_value(__name__, _name, f"compat.{_name}")

for _name in ("VERSION", "GIT_VERSION", "COMPILER_VERSION"):
    export_value(__name__, _name, _name, f"version.{_name}")
for _name in ("CXX11_ABI_FLAG", "MONOLITHIC_BUILD"):
    export_value(__name__, _name, _name, f"sysconfig.{_name}")
export_value(__name__, "HEADRACE_VERSION", "HEADRACE_VERSION")


@export("compat.as_bytes")
def as_bytes(bytes_or_text: str | bytes, encoding: str = "utf-8") -> bytes:
    """Return text encoded, and bytes unchanged."""
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export("compat.as_text", "compat.as_str")
def as_text(bytes_or_text: str | bytes, encoding: str = "utf-8") -> str:
    """Return bytes decoded, and text unchanged."""
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    if isinstance(bytes_or_text, str):
        return bytes_or_text
    raise TypeError(f"Expected binary or unicode string, got {bytes_or_text!r}")


@export("compat.as_str_any")
def as_str_any(value: Any) -> str:
    """Return bytes decoded, and the `str` of anything else."""
    return value.decode() if isinstance(value, bytes) else str(value)
