"""Link one WebAssembly object into a module. In: LLVM's object. Out: a module that runs.

The formats are the WebAssembly specification's and, for the "linking" and "reloc.*" sections, the
tool conventions' (Linking.md). A single object that needs no others is simple to link: functions
and types keep their numbers, and LLVM pads relocated numbers to five bytes, so that code is patched
in place. What remains is to lay out memory:

    0 … STACK          the stack, which grows down: an overflow leaves memory and traps
    STACK … heap base  data, segment by segment
    heap base …        the caller's

The module has no imports. It exports `memory`, the immutable global `__heap_base` and the functions
that are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["STACK", "WasmObject", "link_module"]

STACK = 256 * 1024
PAGE = 65536
_ALIGNMENT = 64

# Sections by number, in the order in which a module has them.
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _MEMORY, _GLOBAL, _EXPORT, _CODE, _DATA = (
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    10,
    11,
)
_I32, _CONST_I32, _END = 0x7F, 0x41, 0x0B
_UNDEFINED, _EXPLICIT_NAME = 0x10, 0x40  # flags of symbols
_SEGMENT_INFO, _SYMBOL_TABLE = 5, 8  # parts of the linking section


class _Reader:
    """Reads numbers and names, from `at` on."""

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def more(self) -> bool:
        return self.at < len(self.data)

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if byte & 0x40 else value

    def take(self, count: int) -> bytes:
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def name(self) -> str:
        return self.take(self.unsigned()).decode()


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _signed(value: int) -> bytes:
    out = bytearray()
    while not -0x40 <= value < 0x40:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value & 0x7F)
    return bytes(out)


def _padded(value: int, signed: bool) -> bytes:
    """Five bytes for 32 bits, as LLVM leaves room for."""
    if signed and value >= 2**31:
        value -= 2**32
    digits = [(value >> 7 * i) & 0x7F for i in range(5)]
    if not signed:
        digits[4] &= 0x0F
    return bytes([d | 0x80 for d in digits[:4]] + [digits[4]])


def _named(name: str) -> bytes:
    raw = name.encode()
    return _unsigned(len(raw)) + raw


@dataclass(frozen=True, slots=True)
class _Symbol:
    kind: int  # 0 function, 1 data, 2 global, …
    name: str
    defined: bool
    index: int = 0  # of the function or global; of the data's segment
    offset: int = 0  # of data in its segment


@dataclass(frozen=True, slots=True)
class _Relocation:
    type: int
    offset: int
    index: int
    addend: int


@dataclass
class _Segment:
    name: str = ""
    alignment: int = 1
    data: bytes = b""
    start: int = 0  # of its bytes in the data section, which relocations count from
    address: int = 0


@dataclass
class WasmObject:
    """An object's parts that matter for linking."""

    sections: dict[int, bytes] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)  # where sections are in the file
    functions: list[str] = field(default_factory=list)  # that are imported
    segments: list[_Segment] = field(default_factory=list)
    symbols: list[_Symbol] = field(default_factory=list)
    relocations: dict[int, list[_Relocation]] = field(default_factory=dict)  # by section

    @classmethod
    def parse(cls, data: bytes | bytearray) -> WasmObject:
        if data[:8] != b"\0asm\x01\0\0\0":
            raise ValueError("not a WebAssembly file of version 1")
        found = cls()
        order: list[int] = []  # numbers of sections as relocations name them
        reader = _Reader(memoryview(data), 8)
        customs: list[bytes] = []
        while reader.more:
            number = reader.byte()
            size = reader.unsigned()
            found.starts[number] = reader.at
            payload = reader.take(size)
            order.append(number)
            if number == _CUSTOM:
                customs.append(payload)
            else:
                found.sections[number] = payload
        found._read_imports()
        found._read_segments()
        for payload in customs:
            found._read_custom(_Reader(payload), order)
        return found

    def _read_imports(self) -> None:
        r = _Reader(self.sections.get(_IMPORT, b"\0"))
        for _ in range(r.unsigned()):
            r.name()
            name, kind = r.name(), r.byte()
            if kind == 0:
                r.unsigned()
                self.functions.append(name)
            elif kind in (1, 2):  # a table or memory: its limits
                if kind == 1:
                    r.byte()
                for _ in range(1 + (r.byte() & 1)):
                    r.unsigned()
            else:  # a global: type and mutability
                r.take(2)

    def _read_segments(self) -> None:
        r = _Reader(self.sections.get(_DATA, b"\0"))
        for _ in range(r.unsigned()):
            if r.unsigned() != 0 or r.byte() != _CONST_I32:
                raise ValueError("the object has a data segment of a kind that isn't linked here")
            r.signed()
            r.byte()
            size = r.unsigned()
            self.segments.append(_Segment(start=r.at, data=r.take(size)))

    def _read_custom(self, r: _Reader, order: list[int]) -> None:
        name = r.name()
        if name == "linking":
            if r.unsigned() != 2:
                raise ValueError("the object's linking section is of an unknown version")
            while r.more:
                part = r.byte()
                body = _Reader(r.take(r.unsigned()))
                if part == _SEGMENT_INFO:
                    self._read_segment_info(body)
                elif part == _SYMBOL_TABLE:
                    self.symbols = [_read_symbol(body) for _ in range(body.unsigned())]
        elif name.startswith("reloc."):
            section = order[r.unsigned()]
            if section in (_CODE, _DATA):
                self.relocations[section] = [_read_relocation(r) for _ in range(r.unsigned())]

    def _read_segment_info(self, r: _Reader) -> None:
        for segment in self.segments[: r.unsigned()]:
            segment.name, segment.alignment = r.name(), 1 << r.unsigned()
            r.unsigned()

    def symbol(self, name: str) -> _Symbol:
        """The defined symbol of that name."""
        for s in self.symbols:
            if s.name == name and s.defined:
                return s
        raise ValueError(f"the object doesn't define {name}")

    def position(self, name: str) -> int:
        """Return the position of a data symbol's bytes in the file."""
        symbol = self.symbol(name)
        return self.starts[_DATA] + self.segments[symbol.index].start + symbol.offset

    @property
    def undefined(self) -> set[str]:
        """Functions that the object needs from elsewhere."""
        return set(self.functions)


def _read_symbol(r: _Reader) -> _Symbol:
    kind, flags = r.byte(), r.unsigned()
    defined = not flags & _UNDEFINED
    if kind == 1:
        name = r.name()
        if not defined:
            return _Symbol(kind, name, defined)
        segment, offset = r.unsigned(), r.unsigned()
        r.unsigned()
        return _Symbol(kind, name, defined, segment, offset)
    index = r.unsigned()
    named = kind != 3 and (defined or flags & _EXPLICIT_NAME)
    return _Symbol(kind, r.name() if named else "", defined, index)


# Relocations: type -> (what its value is, how that is written).
_RELOCATIONS = {
    0: ("index", "unsigned"),  # of a function
    3: ("address", "unsigned"),
    4: ("address", "signed"),
    5: ("address", "word"),
    6: ("type", "unsigned"),
    7: ("index", "unsigned"),  # of a global
}


def _read_relocation(r: _Reader) -> _Relocation:
    type, offset, index = r.byte(), r.unsigned(), r.unsigned()
    if type not in _RELOCATIONS:
        raise ValueError(f"the object has a relocation of type {type}, which isn't linked here")
    addend = r.signed() if _RELOCATIONS[type][0] == "address" else 0
    return _Relocation(type, offset, index, addend)


def link_module(data: bytes, exports: Sequence[str]) -> bytes:
    """The module that exports these functions of an object."""
    obj = WasmObject.parse(data)
    if obj.undefined:
        raise ValueError(f"the object needs {', '.join(sorted(obj.undefined))} from elsewhere")
    heap_base = _lay_out(obj.segments)
    code = _relocated(obj, _CODE)
    filled = _relocated(obj, _DATA)
    for segment in obj.segments:
        segment.data = bytes(filled[segment.start : segment.start + len(segment.data)])
    sections = [
        (_TYPE, obj.sections[_TYPE]),
        (_FUNCTION, obj.sections[_FUNCTION]),
        (_MEMORY, b"\x01\0" + _unsigned(-(-heap_base // PAGE))),
        (_GLOBAL, b"\x02" + _global(STACK, mutable=True) + _global(heap_base, mutable=False)),
        (_EXPORT, _exports(obj, exports)),
        (_CODE, bytes(code)),
        (_DATA, _data(obj.segments)),
    ]
    parts = [bytes([n]) + _unsigned(len(payload)) + payload for n, payload in sections]
    return b"\0asm\x01\0\0\0" + b"".join(parts)


def _lay_out(segments: Sequence[_Segment]) -> int:
    """Assign an address to every segment; return where the free memory begins."""
    at = STACK
    for s in segments:
        s.address = -(-at // s.alignment) * s.alignment
        at = s.address + len(s.data)
    return -(-at // _ALIGNMENT) * _ALIGNMENT


def _relocated(obj: WasmObject, section: int) -> bytearray:
    """Return the section's bytes with its relocations applied."""
    payload = bytearray(obj.sections.get(section, b""))
    for r in obj.relocations.get(section, ()):
        meaning, form = _RELOCATIONS[r.type]
        value = r.index
        if meaning == "index":
            value = obj.symbols[r.index].index
        elif meaning == "address":
            value = _address(obj, obj.symbols[r.index]) + r.addend
        written = struct.pack("<I", value) if form == "word" else _padded(value, form == "signed")
        payload[r.offset : r.offset + len(written)] = written
    return payload


def _address(obj: WasmObject, symbol: _Symbol) -> int:
    if not symbol.defined:
        raise ValueError(f"the object needs {symbol.name} from elsewhere")
    return obj.segments[symbol.index].address + symbol.offset


def _global(value: int, mutable: bool) -> bytes:
    return bytes([_I32, mutable, _CONST_I32]) + _signed(value) + bytes([_END])


def _exports(obj: WasmObject, functions: Sequence[str]) -> bytes:
    entries = [_named("memory") + b"\x02\0", _named("__heap_base") + b"\x03\x01"]
    entries += [_named(f) + b"\0" + _unsigned(obj.symbol(f).index) for f in functions]
    return _unsigned(len(entries)) + b"".join(entries)


def _data(segments: Sequence[_Segment]) -> bytes:
    parts = [_unsigned(len(segments))]
    for s in segments:
        parts += [b"\0", bytes([_CONST_I32]), _signed(s.address), bytes([_END])]
        parts += [_unsigned(len(s.data)), s.data]
    return b"".join(parts)
