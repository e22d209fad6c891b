"""Frames survive the wire in pieces of any size; malformed ones are refused."""

import ml_dtypes
import numpy as np
import pytest

from headrace._src.core import dtypes
from headrace._src.transport import frame as form
from headrace._src.transport.decoder import BUFFER, Decoder
from headrace._src.transport.frame import Frame, ProtocolError, encode

STRINGS = np.array([[b"", b"a\0b"], [b"c" * 300, b"\xff"]], object)
TENSORS = (
    *[np.ones((2, 3), dtype) for dtype in form.NUMPY_OF_CODE.values()],
    np.arange(12.0).reshape(3, 4).T,
    np.arange(20)[::3],
    np.zeros((0, 7), np.int8),
    np.array(3.5, ml_dtypes.bfloat16),
    np.float32(2.5),
    np.bool_(True),
    STRINGS,
    STRINGS[:0],
    b"scalar",
    None,
)


def same(received, sent):
    if sent is None:
        return received is None
    sent = form.as_array(sent)
    return (
        received.dtype == sent.dtype
        and received.shape == sent.shape
        and np.array_equal(received, sent)
    )


def wire(frame):
    return b"".join(bytes(part) for part in encode(frame))


def check(received, sent):
    assert received[:3] == sent[:3]
    assert len(received.tensors) == len(sent.tensors)
    for got, expected in zip(received.tensors, sent.tensors, strict=True):
        assert same(got, expected), (got, expected)


@pytest.mark.parametrize("step", [1, 13, 31, 4096, 10**9])
def test_frames_survive_any_division_into_pieces(step):
    frames = [Frame(255, 2**64 - 1, b"head", TENSORS), Frame(0), Frame(7, 3, b"x" * 100)]
    data = b"".join(map(wire, frames))
    decoder = Decoder()
    received = [f for i in range(0, len(data), step) for f in decoder.feed(data[i : i + step])]
    for got, sent in zip(received, frames, strict=True):
        check(got, sent)


@pytest.mark.parametrize("step", [1000, BUFFER - 1, BUFFER, BUFFER + 1, 10**9])
def test_large_frames_between_small_ones(step):
    big = np.arange(BUFFER, dtype=np.int32)
    frames = [
        Frame(1, 1, b"before"),
        Frame(2, 2, b"h", (None, big, b"", big[:0], big[1:].reshape(-1, 3), big[::2], STRINGS)),
        Frame(3, 3, b"y" * (BUFFER + 1)),
        Frame(4, 4, b"z" * BUFFER, (np.array([b"s" * 7] * BUFFER, object),)),
        Frame(5, 5, b"after", (np.float64(1),)),
    ]
    data = b"".join(map(wire, frames)) * 2
    decoder = Decoder()
    received = [f for i in range(0, len(data), step) for f in decoder.feed(data[i : i + step])]
    for got, sent in zip(received, frames * 2, strict=True):
        check(got, sent)


def test_every_type_of_the_graph_travels_but_handles():
    travelling = {form.STRING, *form.NUMPY_OF_CODE}
    others = {dtypes.resource.enum, dtypes.variant.enum}
    assert travelling | others == set(range(1, 24))


def test_other_byte_orders_and_text_are_converted():
    frame = Frame(1, 1, b"", (np.arange(3, dtype=">i4"), np.array(["é", "b"]), np.array([b"q"])))
    (received,) = Decoder().feed(wire(frame))
    assert received.tensors[0].tolist() == [0, 1, 2] and received.tensors[0].dtype == np.int32
    assert received.tensors[1].tolist() == ["é".encode(), b"b"]
    assert received.tensors[2].tolist() == [b"q"]


def test_values_that_cannot_travel_are_refused():
    with pytest.raises(TypeError, match="cannot be sent"):
        encode(Frame(1, 1, b"", (np.zeros(2, "M8[s]"),)))
    with pytest.raises(TypeError, match="element of type int"):
        encode(Frame(1, 1, b"", (np.array([1, None], object),)))
    with pytest.raises(ValueError, match="dimensions"):
        encode(Frame(1, 1, b"", (np.zeros([1] * 33),)))
    with pytest.raises(ValueError, match="head"):
        encode(Frame(1, 1, bytes(form.MAX_HEAD + 1)))
    with pytest.raises(ValueError, match="tensors"):
        encode(Frame(1, 1, b"", (None,) * (form.MAX_TENSORS + 1)))


def test_received_arrays_can_be_changed_and_are_independent():
    (received,) = Decoder().feed(wire(Frame(1, 1, b"", (np.zeros(3), np.ones(3)))))
    received.tensors[0][:] = 5
    assert received.tensors[1].tolist() == [1, 1, 1]


def header(count=0, head=0, table=0, body=0, magic=form.MAGIC, flags=0):
    return form.HEADER.pack(magic, 1, flags, count, 1, head, table, body)


def entry(code=1, rank=0, place=0, zero=0, slab=0, nbytes=4, shape=(), body=None):
    table = form.ENTRY.pack(code, rank, place, zero, slab, nbytes)
    table += b"".join(d.to_bytes(8, "little") for d in shape)
    size = nbytes + -nbytes % 16 if body is None else body
    return header(1, 0, len(table), size) + table + bytes(min(size, 1000))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n",
        header(magic=form.MAGIC + (1 << 24)),
        header(flags=2),
        header(head=form.MAX_HEAD + 1),
        header(body=16),
        header(table=16),
        header(count=1, table=15),
        header(count=1, table=form.MAX_ENTRY + 1),
        header(count=1, table=16, body=form.MAX_BODY + 1),
        header(count=1, table=17) + form.ENTRY.pack(0, 0, 0, 0, 0, 0) + b"\0",
        entry(code=99),
        entry(code=20),
        entry(code=101),
        entry(rank=33, shape=(1,) * 33),
        entry(rank=1, shape=(2,)),
        entry(rank=1, nbytes=0, shape=(2**63,)),
        entry(rank=2, nbytes=0, shape=(0, 2**63)),
        entry(rank=2, nbytes=4, shape=(1,)),
        entry(zero=1),
        entry(place=2),
        entry(slab=1),
        entry(body=32),
        entry(code=0, nbytes=4),
        entry(code=7, rank=1, shape=(2,), nbytes=7),
        entry(code=7, rank=1, shape=(2,), nbytes=9),
    ],
)
def test_malformed_frames_are_refused(data):
    with pytest.raises(ProtocolError):
        Decoder().feed(data)
