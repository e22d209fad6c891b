"""The shares of tasks in a step. In: Partitions, and the task of each device. Out: for each task,
its partitions, the feeds that it needs and the fetches that it returns.

    shares(step: Partitions, task_of: Callable[[str], str]) -> tuple[Share, ...]

A task takes its feeds and returns its fetches in an order that both sides derive from the
partitions alone: `feeds_of`, and the fetches of one partition after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace._src.graph.dataflow import Dataflow, Feed
from headrace._src.graph.partition import Partition, Partitions

__all__ = ["Share", "feeds_of", "shares"]


@dataclass(frozen=True)
class Share:
    """The partitions of a step that one task runs.

    feeds: the positions, among the step's feeds, of those that it takes, in its order. fetches: the
    positions, among the step's fetches, of those that it returns, in its order.
    """

    task: str
    parts: tuple[Partition, ...]
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]

    def __str__(self) -> str:
        devices = ", ".join(part.device for part in self.parts)
        return f"{self.task}: {devices}; feeds {self.feeds}, fetches {self.fetches}"


def shares(step: Partitions, task_of: Callable[[str], str]) -> tuple[Share, ...]:
    """Return the share of each task, in the order of their first partitions. task_of: returns the
    task of a device.
    """
    numbers: dict[str, list[int]] = {}
    for i, part in enumerate(step.parts):
        numbers.setdefault(task_of(part.device), []).append(i)
    position = {feed.value.name: i for i, feed in enumerate(step.feeds)}
    fetch_of = {source: i for i, source in enumerate(step.sources)}
    found = []
    for task, mine in numbers.items():
        parts = tuple(step.parts[i] for i in mine)
        feeds = feeds_of(part.flow for part in parts)
        fetches = [fetch_of[i, k] for i in mine for k in range(len(step.parts[i].flow.fetches))]
        found.append(
            Share(task, parts, tuple(position[f.value.name] for f in feeds), tuple(fetches))
        )
    return tuple(found)


def feeds_of(flows: Iterable[Dataflow]) -> tuple[Feed, ...]:
    """Return the feeds of partitions, one of each name, in the order of their first use."""
    found: dict[str, Feed] = {}
    for flow in flows:
        for feed in flow.feeds:
            found.setdefault(feed.value.name, feed)
    return tuple(found.values())
