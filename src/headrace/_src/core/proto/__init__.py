"""Protocol buffer messages with TensorFlow 1.15's names, fields and wire format, loaded lazily.

`from headrace._src.core.proto import GraphDef` gives a generated message class; enums such as
`DataType` and `Code` are here too. The messages live in the protobuf package `headrace`, so
TensorFlow's own may be loaded in the same process. The bytes (and text) of the two are
interchangeable.

Importing this package does not import protobuf: a class is loaded when it is first asked for.
"""

import importlib

from headrace._src.core.proto._index import MODULES

__all__ = sorted(MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> type:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)
    globals()[name] = value  # the next access bypasses this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
