"""Who takes part: a state machine without I/O. In: processes that join, leave, die, or ask for the
next epoch. Out: messages to them.

An *epoch* is a list of members in the order of their ranks. It begins when enough processes have
joined, and ends for good when a member is lost or when all members ask for the next one.
Collectives of one epoch never meet those of another.

Without `least`, the number of members is fixed: when one is lost, the others are told and that is
all. With it, the survivors ask for the next epoch (Ready), which begins when all of them have asked
and at least `least` members are there. Whoever joins meanwhile becomes a member of the next epoch;
the members of the current one are told that somebody waits.

State: `members` of the epoch, by rank; `_gone`, those that are lost; `_waiting`, who has joined or
asked for the next one, with the rank that it had or wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Begin", "Broken", "RankCoordinator", "Member", "Refused", "Tell", "OthersWait"]


@dataclass(frozen=True, slots=True)
class Member:
    """A process: its number, the address that it listens on, the host that it runs on, and the
    memory that it shares with processes of the same name for it.
    """

    id: int
    address: str
    host: str
    memory: str


@dataclass(frozen=True, slots=True)
class Begin:
    """An epoch begins."""

    epoch: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The epoch has lost a member; `graceful`: it said so itself, after its last collective."""

    epoch: int
    reason: str
    graceful: bool = False


@dataclass(frozen=True, slots=True)
class OthersWait:
    """So many processes wait for the next epoch."""

    count: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A process cannot take part."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """An instruction: send a message to a process."""

    id: int
    message: Any


class RankCoordinator:
    """Decides who takes part.

    size: how many members the first epoch has. least: how many a later one needs; None: there is no
    later one.
    """

    def __init__(self, size: int, least: int | None = None) -> None:
        if size < 1 or (least is not None and not 1 <= least <= size):
            raise ValueError(f"impossible numbers of ranks: {size}, at least {least}")
        self._size, self._least = size, least
        self.epoch = 0
        self.members: tuple[Member, ...] = ()
        self._waiting: dict[int, tuple[Member, int]] = {}
        self._gone: set[int] = set()
        self._ended = False  # whether a member of the epoch has ended by itself

    def joined(self, member: Member, rank: int) -> list[Tell]:
        """A process wants to take part; `rank` is the one that it wants, -1 for any."""
        taken = {wanted for _, wanted in self._waiting.values() if wanted >= 0}
        if self.epoch and self._least is None:
            reason = "all ranks have begun, and the job is not elastic"
        elif not self.epoch and (rank >= self._size or rank in taken):
            reason = (
                f"rank {rank} of {self._size} is taken"
                if rank in taken
                else (f"rank {rank} was given, but there are {self._size} ranks")
            )
        else:
            self._waiting[member.id] = member, rank
            return self._form() or self._tell_waiting()
        return [Tell(member.id, Refused(reason))]

    def ready(self, id: int, epoch: int) -> list[Tell]:
        """A member asks for the epoch after `epoch`."""
        ranks = {m.id: rank for rank, m in enumerate(self.members)}
        if id not in ranks or id in self._gone or epoch != self.epoch:
            return []
        if self._least is None:
            return [
                Tell(id, Refused("the job is not elastic: it has as many ranks as it began with"))
            ]
        self._waiting[id] = self.members[ranks[id]], ranks[id]
        return self._form() or self._refuse_the_last()

    def left(self, id: int, reason: str, graceful: bool = False) -> list[Tell]:
        """A process has ended, or does not answer."""
        ranks = {m.id: rank for rank, m in enumerate(self.members)}
        self._waiting.pop(id, None)
        if id not in ranks or id in self._gone:
            return self._form()
        first = not self._gone
        self._gone.add(id)
        self._ended |= graceful
        said = f"rank {ranks[id]} {reason}"
        broken = Broken(self.epoch, said, graceful)
        told = [Tell(each, broken) for each in self._present()] if first or not graceful else []
        return told + (self._form() or self._refuse_the_last())

    def _refuse_the_last(self) -> list[Tell]:
        """Refuse members that wait for others when these have ended by themselves."""
        present = self._present()
        if not self._ended or len(self._waiting) >= (self._least or 0):
            return []
        if any(id not in self._waiting for id in present):
            return []
        return [
            Tell(id, Refused("too few ranks are left: the others have ended")) for id in present
        ]

    def _present(self) -> list[int]:
        return [m.id for m in self.members if m.id not in self._gone]

    def _tell_waiting(self) -> list[Tell]:
        members = self._present()
        count = len(self._waiting.keys() - set(members))
        return [Tell(id, OthersWait(count)) for id in members]

    def _form(self) -> list[Tell]:
        """Begin the next epoch, if everybody is there."""
        enough = self._size if not self.epoch else self._least
        if enough is None or len(self._waiting) < enough:
            return []
        if any(id not in self._waiting for id in self._present()):
            return []
        old = {m.id for m in self.members}
        # Survivors keep their order, so that the first of them can give the others its state.
        found = sorted(
            self._waiting.values(),
            key=lambda each: (each[0].id not in old, each[1] < 0, each[1], each[0].id),
        )
        self.epoch += 1
        self.members = tuple(member for member, _ in found)
        self._waiting.clear()
        self._gone, self._ended = set(), False
        return [Tell(m.id, Begin(self.epoch, self.members)) for m in self.members]
