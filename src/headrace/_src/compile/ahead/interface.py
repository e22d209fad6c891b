"""The interface of a compiled model. In: its name and ports. Out: a C header.

A Port is one input or output: the tensor's name, its element type and its sizes, which are all
known. Arrays are row-major. Names of tensors become C identifiers here and nowhere else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from headrace._src.devices.target import SIZES, Target

__all__ = ["ALIGNMENT", "Interface", "Port", "c_header", "c_identifier"]

ALIGNMENT = 64  # of the workspace, in bytes: a cache line, and the widest vector

C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t",
    "uint16": "uint16_t", "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t",
    "uint64": "uint64_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double",
}  # fmt: skip

# Of C11 and C++20, and what the header itself uses.
_RESERVED = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "char8_t", "char16_t", "char32_t", "class", "co_await",
    "co_return", "co_yield", "compl", "concept", "const", "const_cast", "consteval",
    "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for",
    "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept",
    "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
    "register", "reinterpret_cast", "requires", "restrict", "return", "short", "signed",
    "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union",
    "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
    "NULL", "size_t", "workspace", "main",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a compiled model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in C_TYPES:
            raise ValueError(f"{self.name!r} is of type {self.dtype}, which C has no type for")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """In bytes."""
        return self.elements * SIZES[self.dtype]

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Interface:
    """The function that a model becomes: `int name(inputs…, outputs…, workspace)`."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspace: int  # bytes

    def __post_init__(self) -> None:
        if c_identifier(self.name) != self.name:
            raise ValueError(f"{self.name!r} can't be a function's name in C")

    @property
    def ports(self) -> tuple[Port, ...]:
        return self.inputs + self.outputs

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The ports' names in C, each its own."""
        found: list[str] = []
        for port in self.ports:
            base = name = c_identifier(port.name)
            count = 1
            while name.upper() in {f.upper() for f in found}:  # macros are upper case
                count += 1
                name = f"{base}_{count}"
            found.append(name)
        return tuple(found)


def c_identifier(name: str) -> str:
    """A tensor's name as an identifier of C and C++."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")
    if not name or name[0].isdigit():
        name = f"model_{name}" if name else "model"
    return f"{name}_" if name in _RESERVED else name


def c_header(interface: Interface, target: Target, origin: str) -> str:
    """The text of the header; `origin` is the model's file, for its readers."""
    name, macro = interface.name, interface.name.upper()
    ports = list(zip(interface.ports, interface.identifiers, strict=True))
    inputs, outputs = ports[: len(interface.inputs)], ports[len(interface.inputs) :]
    parameters = [f"const {C_TYPES[p.dtype]}* {i}" for p, i in inputs]
    parameters += [f"{C_TYPES[p.dtype]}* {i}" for p, i in outputs]
    lines = [
        f"/* {_comment(origin)}, compiled by Headrace for {target.triple} ({target.cpu}). */",
        f"#ifndef {macro}_H",
        f"#define {macro}_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for heading, group in (("Inputs", inputs), ("Outputs", outputs)):
        lines += [f"/* {heading}: row-major arrays, aligned as their elements are. */"]
        for port, identifier in group:
            lines += _port_macros(port, f"{macro}_{identifier.upper()}")
        lines.append("")
    lines += [
        "/* Memory to work in, for one call at a time; it needs no initialisation. */",
        f"#define {macro}_WORKSPACE_SIZE {interface.workspace}",
        f"#define {macro}_WORKSPACE_ALIGNMENT {ALIGNMENT}",
        f"size_t {name}_workspace_size(void);",
        "",
        "/* Compute the outputs from the inputs. Arrays must not overlap. Threads may call this at",
        " * the same time, each with a workspace of its own. Returns 0; or, having done nothing, 1",
        " * if a pointer is null and 2 if the workspace isn't aligned; or 3 if an index among the",
        " * inputs was outside of its range, and what the outputs hold then means nothing. */",
        f"int {name}(",
        *(f"    {p}," for p in parameters),
        "    void* workspace);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {macro}_H */",
        "",
    ]
    return "\n".join(lines)


def _port_macros(port: Port, macro: str) -> list[str]:
    dimensions = ", ".join(map(str, port.shape)) or "1"
    return [
        f"/* {_comment(str(port))} */",
        f"#define {macro}_ELEMENTS {port.elements}",
        f"#define {macro}_RANK {len(port.shape)}",
        f"#define {macro}_SHAPE {{{dimensions}}}",
    ]


def _comment(text: str) -> str:
    """Text that can't end the comment it's in."""
    return text.replace("*/", "* /").replace("\n", " ").rstrip("\\")
