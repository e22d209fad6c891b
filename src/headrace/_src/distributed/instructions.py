"""What a machine asks its driver to do. In a cluster, the driver is `server`; under test, a
simulator.

A peer is a process: the name of a task ("/job:ps/replica:0/task:0") or of a client, and its
incarnation. A message to a peer reaches exactly that process or nobody.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace._src.transport.frame import Frame

__all__ = [
    "Build",
    "CancelStep",
    "CloseState",
    "Connect",
    "Deliver",
    "Divide",
    "Drop",
    "Extend",
    "Forget",
    "OpenState",
    "Peer",
    "Post",
    "ResetState",
    "Send",
    "Settle",
    "Start",
    "Stop",
]


class Peer(NamedTuple):
    """A process of the cluster."""

    name: str
    incarnation: int


Post = tuple[Peer, Frame]  # a Send whose message is a frame already


class Send(NamedTuple):
    """Send a message. If the connection is gone, the driver reports the peer as lost."""

    peer: Peer
    message: Any


class Connect(NamedTuple):
    """Connect to a task, until there is a connection; report it as `connected`."""

    task: str
    address: str


class Stop(NamedTuple):
    """End this process: another one has taken its place."""

    reason: str


# -- Of a worker -----------------------------------------------------------------------------------


class OpenState(NamedTuple):
    """Make the state of a session; report its devices as `opened`."""

    session: Any
    request: Any


class CloseState(NamedTuple):
    """Drop the state of a session whose steps have ended."""

    session: Any


class Build(NamedTuple):
    """Make the executable of a registered graph; report it as `built`."""

    graph: Any
    request: Any


class Forget(NamedTuple):
    """Drop the executable of a graph."""

    graph: Any


class Start(NamedTuple):
    """Start a step; report its end as `ended`."""

    step: int
    graph: Any
    request: Any


class CancelStep(NamedTuple):
    """Stop a step with an error; its end is still reported as `ended`. `gentle`: see AbortStep."""

    step: int
    error: BaseException
    gentle: bool = False


class Deliver(NamedTuple):
    """Give a tensor to a step that was started."""

    step: int
    message: Any


class Settle(NamedTuple):
    """Drop the elements that an ended step has taken, or put them back to their queues."""

    step: int
    returns: bool


class ResetState(NamedTuple):
    """Drop the state in named containers."""

    containers: list[str]


# -- Of a master -----------------------------------------------------------------------------------


class Extend(NamedTuple):
    """Add to the graph of a session; report it as `extended`."""

    session: int
    request: Any


class Drop(NamedTuple):
    """Drop the graph of a session."""

    session: int


class Divide(NamedTuple):
    """Place, optimise and cut a step for feeds of these shapes; report it as `divided`."""

    session: int
    graph: int
    step: Any
    shapes: Any
