"""Read ELF object files of 64-bit little-endian machines, and find the place of data in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Elf"]

_MACHINES = {62: "x86_64", 183: "aarch64"}
_SYMBOL_TABLE = 2  # the type of the section that holds the symbol table


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    visible: bool  # from outside of the object
    section: int  # 0: it's defined elsewhere
    value: int  # the offset in its section


class Elf:
    """An object file: its machine, sections and symbols."""

    def __init__(self, data: bytes | bytearray) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self.data = data
        self.machine = _MACHINES.get(struct.unpack_from("<H", data, 18)[0], "unknown")
        (start,) = struct.unpack_from("<Q", data, 40)
        entry_size, count, names = struct.unpack_from("<HHH", data, 58)
        raw = [
            struct.unpack_from("<IIQQQQIIQQ", data, start + i * entry_size) for i in range(count)
        ]
        name_table = raw[names][4]
        self.sections = [
            _Section(self._text(name_table + r[0]), r[1], r[4], r[5], r[6]) for r in raw
        ]

    def _text(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def position(self, name: str) -> int:
        """Return the position of a data symbol's bytes in the file."""
        for symbol in self.symbols:
            if symbol.name == name and symbol.section:
                return self.sections[symbol.section].offset + symbol.value
        raise ValueError(f"the object doesn't define {name}")

    @property
    def undefined(self) -> set[str]:
        """Symbols that the object needs from elsewhere."""
        return {s.name for s in self.symbols if s.visible and not s.section}

    @property
    def exported(self) -> set[str]:
        """Symbols that the object defines for others."""
        return {s.name for s in self.symbols if s.visible and s.section}

    @cached_property
    def symbols(self) -> list[_Symbol]:
        found = []
        for table in (s for s in self.sections if s.type == _SYMBOL_TABLE):
            strings = self.sections[table.link].offset
            for at in range(table.offset + 24, table.offset + table.size, 24):
                name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
                found.append(_Symbol(self._text(strings + name), info >> 4 != 0, section, value))
        return found
