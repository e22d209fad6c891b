"""What ranks and their coordinator say to each other. In: messages. Out: frames; and back.

Messages to and from the coordinator are small and rare: their heads are JSON. Messages between
ranks carry tensors, and their heads are structs.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any, Final, NamedTuple

from headrace._src.collectives.membership import Begin, Broken, Member, OthersWait, Refused
from headrace._src.transport.frame import Frame, ProtocolError

__all__ = [
    "ABORT",
    "BELL",
    "BYE",
    "DESK",
    "PART",
    "SEGMENT",
    "JoinRanks",
    "Leave",
    "PartHead",
    "Ready",
    "SegmentHead",
    "decode",
    "encode",
    "number_pair",
    "pair_of",
]

DESK, BELL, SEGMENT, PART, ABORT, BYE = range(32, 38)  # kinds of frames between ranks
_PAIR: Final = struct.Struct("<Qq")
_SEGMENT: Final = struct.Struct("<QQQBII")
_PART: Final = struct.Struct("<QQi")


@dataclasses.dataclass(frozen=True, slots=True)
class JoinRanks:
    """To the coordinator: a process wants to take part."""

    member: Member
    rank: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """To the coordinator: a member asks for the epoch after this one."""

    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Leave:
    """To the coordinator: a member has done its work, or gives up."""

    reason: str


_FORMS: Final = (JoinRanks, Ready, Leave, Begin, Broken, OthersWait, Refused)


class SegmentHead(NamedTuple):
    """Which segment of which collective a frame carries; `signature`: see Reduced."""

    epoch: int
    round: int
    signature: int
    phase: int
    chunk: int
    segment: int

    def pack(self) -> bytes:
        return _SEGMENT.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> SegmentHead:
        return cls(*_unpacked(_SEGMENT, data))


class PartHead(NamedTuple):
    """Whose part of which collective a frame carries; `root`: of a broadcast, else -1."""

    epoch: int
    round: int
    root: int

    def pack(self) -> bytes:
        return _PART.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> PartHead:
        return cls(*_unpacked(_PART, data))


def number_pair(first: int, second: int) -> bytes:
    """Return a head with an epoch and another number."""
    return _PAIR.pack(first, second)


def pair_of(data: bytes) -> tuple[int, int]:
    """Return what number_pair was given."""
    return _unpacked(_PAIR, data)


def _unpacked(form: struct.Struct, data: bytes) -> Any:
    if len(data) != form.size:
        raise ProtocolError(f"a head of {len(data)} bytes, not {form.size}")
    return form.unpack(data)


def encode(message: Any) -> Frame:
    """Return the frame of a message to or from the coordinator."""
    head = json.dumps(dataclasses.asdict(message)).encode()
    return Frame(_FORMS.index(type(message)) + 1, 0, head)


def decode(frame: Frame) -> Any:
    """Return the message in such a frame."""
    try:
        form = _FORMS[frame.kind - 1]
        fields = json.loads(frame.head)
        if form is JoinRanks:
            return JoinRanks(Member(**fields["member"]), int(fields["rank"]))
        if form is Begin:
            return Begin(int(fields["epoch"]), tuple(Member(**m) for m in fields["members"]))
        return form(**fields)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ProtocolError(f"a message to or from the coordinator is malformed: {error}") from None
