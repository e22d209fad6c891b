"""The dependencies between groups while they are formed. A group is a number, and a set of groups
the bits of an int: a region may have thousands of groups, and most questions ask whether two sets
intersect.

State: for each group, its direct dependencies and all dependencies. A group that was merged into
another one is gone, and its dependents depend on that other group, its heir.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Dependencies", "bits_of"]


def bits_of(numbers: int) -> Iterator[int]:
    """The groups in a set."""
    while numbers:
        low = numbers & -numbers
        yield low.bit_length() - 1
        numbers ^= low


class Dependencies:
    """The direct and indirect dependencies of groups."""

    def __init__(self) -> None:
        self.direct: list[int] = []
        self._ancestors: list[int] = []
        self._heirs: dict[int, int] = {}
        self._gone = 0  # the groups that have heirs

    def add(self, needs: int) -> None:
        """Add a group, with the next number."""
        self._ancestors.append(self._behind(needs))
        self.direct.append(needs)

    def allows(self, group: int, needs: int) -> bool:
        """Return whether a group may depend on others: none of them depends on it."""
        bit = 1 << group
        return not any(self._ancestors[other] & bit for other in bits_of(needs & ~bit))

    def join(self, group: int, needs: int) -> None:
        """Make a group depend on others too."""
        bit = 1 << group
        needs &= ~bit
        new = self._behind(needs)
        self.direct[group] |= needs
        if new & ~self._ancestors[group]:
            self._ancestors[group] |= new
            for other, ancestors in enumerate(self._ancestors):
                if ancestors & bit:
                    self._ancestors[other] = ancestors | new

    def dependents(self, group: int) -> int:
        """The groups that depend on a group."""
        bit = 1 << group
        return sum(1 << i for i, a in enumerate(self._ancestors) if a & bit)

    def absorb(self, group: int, heir: int) -> None:
        """Merge a group without dependents into its heir."""
        self._bury(group, heir)
        self._ancestors[group] = 0

    def merge(self, group: int, heir: int) -> None:
        """Merge a group into its heir, which its dependents then depend on."""
        self._bury(group, heir)
        old, bit = 1 << group, 1 << heir
        for number, direct in enumerate(self.direct):
            if direct & old:
                self.direct[number] = (direct & ~old) | bit
                self.join(number, bit)

    def is_gone(self, group: int) -> bool:
        """Return whether a group was merged into another."""
        return group in self._heirs

    def alive(self, groups: int) -> int:
        """The groups, those that are gone replaced by their heirs."""
        for number in bits_of(groups & self._gone):
            groups = (groups & ~(1 << number)) | self.alive(1 << self._heirs[number])
        return groups

    def _behind(self, needs: int) -> int:
        """These groups and all that they depend on."""
        found = needs
        for number in bits_of(needs):
            found |= self._ancestors[number]
        return found

    def _bury(self, group: int, heir: int) -> None:
        self._heirs[group] = heir
        self._gone |= 1 << group
