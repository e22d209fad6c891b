"""Protocol buffer messages with TensorFlow 1.15's names, fields and wire format, loaded lazily.

`from headrace._src.core import proto` gives `proto.GraphDef` and other generated message classes,
enums such as `proto.DataType` and `proto.Code`, and the parts of protobuf itself that are used with
them: `proto.DecodeError`, `proto.text_format`, `proto.json_format`. The messages live in the
protobuf package `headrace`, so TensorFlow's own may be loaded in the same process. The bytes (and
text) of the two are interchangeable.

Importing this package does not import protobuf, which takes long: a name is loaded when it is first
used.
"""

from importlib import import_module
from typing import Any

from headrace._src.core.proto._index import MODULES

__all__ = sorted(MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        value = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    elif name == "DecodeError":
        value = import_module("google.protobuf.message").DecodeError
    elif name in ("json_format", "text_format"):
        value = import_module(f"google.protobuf.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next access bypasses this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
