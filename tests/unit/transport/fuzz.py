"""Malformed frames, made by structured changes of valid ones.

    python -m tests.unit.transport.fuzz 1000000 [seed]

decodes a million of them: each must be refused with a ProtocolError, or be a valid frame, or wait
for more bytes. Prints what happened, and how much the memory of the process grew.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections import Counter

import numpy as np

from headrace._src.transport import frame as form
from headrace._src.transport.decoder import BUFFER, Decoder
from headrace._src.transport.frame import Frame, ProtocolError, encode

INTERESTING = [
    0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 127, 128, 255, 256, 4095, 65535, 65536, 2**31 - 1,
    2**31, 2**32 - 1, 2**32, 2**40, 2**40 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, form.MAX_HEAD,
    form.MAX_HEAD + 1, form.MAX_BODY, form.MAX_BODY + 1, BUFFER, BUFFER - 1, BUFFER - 32,
]  # fmt: skip
HEADER = [(0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 4), (20, 4), (24, 8)]  # offset, size
ENTRY = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 4), (8, 8)]


def seeds() -> list[tuple[bytes, int]]:
    """Valid frames, and where their tables are."""
    strings = np.array([[b"a", b""], [b"long" * 20, b"\xff"]], object)
    frames = [
        Frame(1, 1),
        Frame(2, 2**64 - 1, b"head"),
        Frame(3, 3, b"h", (np.arange(6.0).reshape(2, 3), None, b"text", strings)),
        Frame(4, 4, b"", tuple(np.zeros(i, d) for i, d in enumerate(form.NUMPY_OF_CODE.values()))),
        Frame(5, 5, b"x" * 50, (np.zeros((0, 3)), np.ones(40_000, np.uint8), strings)),
        Frame(6, 6, b"", (np.ones((BUFFER, 2), np.uint8), strings[:1])),
    ]
    placed = form.Placed(1, 64, 1)
    slab = Frame(7, 7, b"", (np.ones(20_000, np.int32), np.ones(3)))
    buffers = [encode(frame) for frame in frames]
    buffers.append(encode(slab, lambda array, nbytes: placed, 0, 65536))
    buffers.append(encode(Frame(0, 0, bytes(8)), None, form.INTERNAL))
    lengths = [len(f.head) for f in (*frames, slab)] + [8]
    return [
        (b"".join(map(bytes, parts)), 32 + head)
        for parts, head in zip(buffers, lengths, strict=True)
    ]


def mutate(data: bytes, table: int, random: np.random.Generator) -> bytes:
    """Change a frame in one to four ways."""
    frame = bytearray(data)

    def pick(n: int) -> int:
        return int(random.integers(max(1, n)))

    def overwrite(at: int, size: int) -> None:
        if at + size <= len(frame):
            value = INTERESTING[pick(len(INTERESTING))] & (256**size - 1)
            frame[at : at + size] = value.to_bytes(size, "little")

    for _ in range(1 + pick(4)):
        match pick(9):
            case 0 | 1:
                overwrite(*HEADER[pick(8)])
            case 2:
                offset, size = ENTRY[pick(6)]
                overwrite(table + offset, size)
            case 3:
                overwrite(table + 8 * pick(12), 8)  # dimensions and later entries
            case 4:
                frame[pick(min(len(frame), 200))] ^= 1 << pick(8)
            case 5:
                del frame[pick(len(frame)) :]
            case 6:
                at = pick(min(len(frame), 300))
                frame[at:at] = random.bytes(pick(20))
            case 7:
                at = pick(min(len(frame), 300))
                del frame[at : at + 1 + pick(20)]
            case _:
                at = pick(min(len(frame), 300))
                frame[at:at] = frame[at : at + pick(64)]
        if not frame:
            break
    return bytes(frame)


def resolve(placed: form.Placed, nbytes: int) -> bytes:
    """A stand-in for slabs: one of 100,000 bytes."""
    if placed.slab != 1 or placed.offset + nbytes > 100_000:
        raise ProtocolError("no such memory")
    return bytes(nbytes)


def run(count: int, seed: int = 0) -> Counter[str]:
    """Decode malformed frames; returns how often each outcome was seen."""
    random = np.random.default_rng(seed)
    originals = seeds()
    outcomes: Counter[str] = Counter()
    decoder = Decoder(resolve, internal=lambda kind, head: None)
    for i in range(count):
        data, table = originals[i % len(originals)]
        changed = mutate(data, table, random)
        step = (len(changed) or 1) if i % 4 else 1 + int(random.integers(len(changed) + 1))
        try:
            frames = [
                frame
                for at in range(0, len(changed), step)
                for frame in decoder.feed(changed[at : at + step])
            ]
        except ProtocolError as error:
            outcomes[re.sub(r"[\d(].*", "…", str(error))] += 1
            decoder = Decoder(resolve, internal=lambda kind, head: None)
            continue
        outcomes["valid" if frames else "waiting"] += 1
        if decoder._end or decoder.large:
            decoder = Decoder(resolve, internal=lambda kind, head: None)
    return outcomes


def memory() -> int:
    """The resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    run(20_000, seed + 1)
    before, start = memory(), time.perf_counter()
    outcomes = run(count, seed)
    seconds = time.perf_counter() - start
    for outcome, times in outcomes.most_common():
        print(f"{times:9d}  {outcome}")
    grown = (memory() - before) / 2**20
    print(f"{count} frames in {seconds:.1f} s, memory grew by {grown:.1f} MB")


if __name__ == "__main__":
    main()
