"""The script of a character. In: code points. Out: codes.

The table beside this file, unicode_scripts.txt, has one line per script: its name, its number in
ICU (the result of the UnicodeScript op) and its ranges of code points in hexadecimal.
scripts/record_strings.py recorded it from TensorFlow 1.15 (Unicode 12.1).
"""

import functools
import pathlib
from typing import Any

import numpy as np

_UNKNOWN, _INVALID = 103, -1
_LAST = 0x10FFFF


@functools.cache
def _scripts() -> dict[str, tuple[int, tuple[tuple[int, int], ...]]]:
    table = {}
    for line in pathlib.Path(__file__).with_suffix(".txt").read_text("ascii").splitlines():
        name, code, *ranges = line.split()
        pairs = (text.split("-") for text in ranges)
        table[name] = int(code), tuple((int(a, 16), int(b, 16)) for a, b in pairs)
    return table


@functools.cache
def _codes() -> np.ndarray:
    """Return the script's number for every code point, and one more entry for invalid ones."""
    codes = np.full(_LAST + 2, _UNKNOWN, np.int32)
    for code, ranges in _scripts().values():
        for first, last in ranges:
            codes[first : last + 1] = code
    codes[-1] = _INVALID
    return codes


def unicode_script(input: Any) -> np.ndarray:
    """Return ICU's number of every code point's script, -1 for invalid code points."""
    points = np.asarray(input)
    return _codes()[np.where((points < 0) | (points > _LAST), _LAST + 1, points)]


KERNELS = {"UnicodeScript": unicode_script}
