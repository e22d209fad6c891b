"""Safetensors files: as the safetensors package 0.8.0 writes them, and the errors for damaged ones.

`recorded.safetensors` was made by that package, with a tensor of each type that we have too.
"""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from headrace._src.checkpoint.contents import Stored
from headrace._src.checkpoint.convert_formats import convert_checkpoint, size_of
from headrace._src.checkpoint.open_checkpoint import open_checkpoint
from headrace._src.checkpoint.safetensors import SafeTensors, write_safetensors
from headrace._src.core import dtypes, errors

RECORDED = Path(__file__).parents[2] / "fixtures" / "checkpoints" / "recorded.safetensors"
V2 = RECORDED.with_name("v2")


def write(path, arrays, metadata=None):
    stored = {name: Stored(dtypes.as_dtype(a.dtype), a.shape) for name, a in arrays.items()}
    write_safetensors(path, stored, arrays.__getitem__, metadata)


def test_the_packages_file(tmp_path):
    found = SafeTensors(RECORDED)
    assert found.metadata == {"format": "np"}
    arrays = {name: found.read(name) for name in found.stored}
    assert arrays["scalar"] == 7 and arrays["bool"].tolist() == [True, False, True]
    assert arrays["bf16"].astype(np.float32).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert arrays["naïve/é"].tolist() == [0, 1, 2, 3, 4] and arrays["empty"].shape == (0, 4)
    rng = np.random.default_rng(0)  # as the recording drew them
    for code in ("f32", "f64", "f16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
        assert (arrays[f"a/{code}"] == rng.integers(0, 100, (2, 3))).all(), code
    write(tmp_path / "again.safetensors", arrays, found.metadata)
    assert (tmp_path / "again.safetensors").read_bytes() == RECORDED.read_bytes()


def test_there_and_back_again(tmp_path):
    middle, end = tmp_path / "x.safetensors", tmp_path / "end"
    convert_checkpoint(RECORDED, end)
    told = []
    convert_checkpoint(end, middle, told.append)
    assert sum(told) == size_of(end) == size_of(RECORDED)
    for path in (end, middle):
        with open_checkpoint(path) as found, open_checkpoint(RECORDED) as expected:
            assert found.stored == expected.stored
            for name in expected.stored:
                assert found.read(name).tobytes() == expected.read(name).tobytes()


def test_strings_have_no_place_in_it(tmp_path):
    with pytest.raises(errors.UnimplementedError, match=r"complex128.*\(string\)"):
        convert_checkpoint(V2, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def whole():
    length = struct.unpack("<Q", RECORDED.read_bytes()[:8])[0]
    data = RECORDED.read_bytes()
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def damaged(header, body, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def changed(**entry):
    header, body = whole()
    header["scalar"] |= entry
    return damaged(header, body)


DAMAGED = {
    "nothing": b"",
    "half a length": b"\x02\0\0",
    "a long header": damaged(*whole(), length=1 << 62),
    "no JSON": damaged(b"{]", b""),
    "no text": damaged(b'{"\xff":1}', b""),
    "a list": damaged(b"[]", b""),
    "deep": damaged(b"[" * 100_000, b""),
    "twins": damaged(b'{"a":1,"a":2}', b""),
    "an entry that is none": damaged({"a": 3}, b""),
    "an entry that lacks its shape": damaged({"a": {"dtype": "F32"}}, b""),
    "metadata that are numbers": damaged({"__metadata__": {"a": 1}}, b""),
    "a negative size": changed(shape=[-1]),
    "a size that is no number": changed(shape=["1"]),
    "a truth value as a size": changed(shape=[True]),
    "another shape": changed(shape=[2]),
    "another place": changed(data_offsets=[0, 4]),
    "three offsets": changed(data_offsets=[0, 4, 8]),
    "too little data": damaged(whole()[0], whole()[1][:-1]),
    "too much data": damaged(whole()[0], whole()[1] + b"\0"),
    "a truth value of two": damaged(whole()[0], whole()[1][:-1] + b"\2"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damage_is_told(tmp_path, what):
    path = tmp_path / "x.safetensors"
    path.write_bytes(DAMAGED[what])
    with pytest.raises(errors.DataLossError, match=r"x\.safetensors: "):
        SafeTensors(path).read("bool")


def test_every_truncation_is_told(tmp_path):
    path, data = tmp_path / "x.safetensors", RECORDED.read_bytes()
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(errors.DataLossError):
            SafeTensors(path)


def test_types_that_only_others_have(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(
        damaged({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"x")
    )
    with pytest.raises(errors.UnimplementedError, match="F8_E4M3"):
        SafeTensors(path)
    with pytest.raises(errors.NotFoundError):
        SafeTensors(tmp_path / "none.safetensors")
