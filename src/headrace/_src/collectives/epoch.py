"""One epoch of a group: who takes part, and where. In: its members. Out: ranks, and the processes
that share memory. Everything here is a pure function of the list of members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace._src.collectives.membership import Member

__all__ = ["Epoch"]


@dataclass(frozen=True)
class Epoch:
    """The members by rank, and which of them this process is."""

    number: int
    members: Sequence[Member]
    rank: int

    @property
    def size(self) -> int:
        return len(self.members)

    @cached_property
    def on_host(self) -> list[int]:
        """The ranks on this process's host."""
        here = self.members[self.rank].host
        return [r for r, m in enumerate(self.members) if m.host == here]

    @cached_property
    def groups(self) -> list[list[int]]:
        """The ranks that share memory, by the first rank of each group."""
        found: dict[str, list[int]] = {}
        for rank, member in enumerate(self.members):
            found.setdefault(member.memory, []).append(rank)
        return list(found.values())

    @cached_property
    def sharing(self) -> list[int]:
        """The ranks that share memory with this process, itself among them."""
        return next(group for group in self.groups if self.rank in group)

    @cached_property
    def place(self) -> int:
        """This process's place among those."""
        return self.sharing.index(self.rank)

    @cached_property
    def owners(self) -> int:
        """How many processes of each group take part in rings: as many as the smallest group has.
        Each of them has a share of the elements, and a ring with those that have the same share.
        """
        return min(map(len, self.groups))

    @cached_property
    def ring(self) -> list[int]:
        """The ranks of this process's ring; none if it has no share or there is one group."""
        if len(self.groups) == 1 or self.place >= self.owners:
            return []
        return [group[self.place] for group in self.groups]
