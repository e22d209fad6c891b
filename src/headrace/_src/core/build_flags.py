"""`tf.sysconfig`: where a C++ compiler would look for headers and a library, if there were any."""

from __future__ import annotations

from pathlib import Path

from headrace._src.core.export import export
from headrace._src.core.versions_and_text import CXX11_ABI_FLAG

__all__ = ["get_compile_flags", "get_include", "get_lib", "get_link_flags"]


@export("sysconfig.get_lib")
def get_lib() -> str:
    """Return the directory of this package. There is no library to link with: ops are written in
    Python (tf.register_op).
    """
    return str(Path(__file__).parents[2])


@export("sysconfig.get_include")
def get_include() -> str:
    """Return where this package would have headers. There are none, as there is no library."""
    return str(Path(get_lib()) / "include")


@export("sysconfig.get_compile_flags")
def get_compile_flags() -> list[str]:
    """Return the flags for a compiler that say where headers are, and which ABI is used."""
    return [f"-I{get_include()}", f"-D_GLIBCXX_USE_CXX11_ABI={CXX11_ABI_FLAG}"]


@export("sysconfig.get_link_flags")
def get_link_flags() -> list[str]:
    """Return the flags for a linker: the directory of this package, which has no library."""
    return [f"-L{get_lib()}"]
