"""What a master keeps of its sessions, as data: a session has prepared steps, a step its registered
graphs, and a run belongs to one graph. The machines of the master change it: `master.py`,
`prepared_steps.py` and `runs.py`.

Invariants: a session is `closed` exactly when the master no longer finds it by its number. Only a
graph that is ready has runs, and others may wait for it: `running` counts the former, `waiting`
lists the latter. The `left` of a run are those of its graph's tasks that have neither ended nor
been lost, and whose ends do not follow from others that have come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._src.core import errors
from headrace._src.distributed import instructions as do
from headrace._src.distributed import messages as say
from headrace._src.distributed.instructions import Peer

if TYPE_CHECKING:
    from headrace._src.distributed.piecewise_run import PiecewiseRun

__all__ = [
    "Divided",
    "MasterSession",
    "PreparedStep",
    "RegisteredGraph",
    "RunningStep",
    "gone",
    "no_session",
    "restarted",
    "session_of",
]


class Divided(NamedTuple):
    """A step in partitions. parts: (about, payload) of each task. feeds: for each task, the
    positions of its feeds among the step's. sources: for each fetch of the step, its task and its
    position among that task's fetches. notice: what the client is to show. races: see Notice. Of
    a piecewise step, pieces: for the name of each feed, the tasks that receive it and the edges;
    fetched: the names of the tensors that come back, by their edges. covers: for tasks, the others
    that have ended well when they have (see partition.covers).
    """

    parts: Mapping[str, tuple[dict[str, Any], bytes]]
    feeds: Mapping[str, tuple[int, ...]]
    sources: tuple[tuple[str, int], ...]
    notice: str = ""
    races: Sequence[Any] = ()
    pieces: Mapping[str, list[tuple[str, int]]] = {}
    fetched: Mapping[int, str] = {}
    covers: Mapping[str, tuple[str, ...]] = {}


@dataclass
class MasterSession:
    """missing: the tasks that are not connected, or have not answered yet. until: when the session
    must be open.
    """

    number: int
    client: Peer
    opening: say.OpenSession
    tasks: dict[str, Peer | None]
    missing: set[str]
    addresses: Mapping[str, str]
    since: float
    notice: float
    until: float | None = None
    devices: dict[str, list[list[Any]]] = field(default_factory=dict)
    steps: dict[int, PreparedStep] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)  # of the tasks' clocks, in microseconds
    partials: dict[str, PiecewiseRun] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # tasks that are gone, and the reasons
    closed: bool = False


@dataclass
class PreparedStep:
    """A prepared step. variants: its registrations by the shapes of the feeds. as_is: it is not
    specialised for shapes, since a variable did not have the shape that was declared.
    """

    number: int
    request: say.Prepare
    as_is: bool = False
    variants: OrderedDict[Any, RegisteredGraph] = field(default_factory=OrderedDict)


@dataclass
class RegisteredGraph:
    """A registered step. workers: who takes part, by how much their clocks are ahead, and the
    positions of their feeds. heads: of their RunGraphs if these are not traced, with the feeds.
    tasks: their names; ends: of these, those that have ended well when a worker has. waiting: the
    runs until all workers have registered it.
    """

    number: int
    session: MasterSession
    divided: Divided | None = None
    workers: Sequence[tuple[Peer, int, tuple[int, ...]]] = ()
    heads: Sequence[tuple[Peer, bytes, tuple[int, ...]]] = ()
    tasks: frozenset[str] = frozenset()
    ends: Mapping[Peer, frozenset[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    waiting: list[tuple[Peer, say.RunStep, PiecewiseRun | None]] = field(default_factory=list)
    running: int = 0

    @property
    def is_ready(self) -> bool:
        return self.divided is not None and not self.missing


@dataclass(slots=True)
class RunningStep:
    """A step that runs. results: of the tasks that have ended. stopped: why it was cancelled, as
    long as no part has failed; error: the first failure. held: the tasks that keep elements which
    they have taken; used: whether something was, or may have been, made of elements.
    """

    number: int
    client: Peer
    request: say.RunStep
    graph: RegisteredGraph
    left: set[str]
    deadline: float | None = None
    results: dict[str, Any] = field(default_factory=dict)
    stats: tuple[Any, ...] = ()
    stopped: errors.OpError | None = None
    error: errors.OpError | None = None
    operation: str = ""
    details: str = ""
    partial: PiecewiseRun | None = None
    held: tuple[str, ...] = ()
    used: bool = False


def session_of(
    client: Peer, sessions: Mapping[int, MasterSession], number: int
) -> MasterSession | None:
    """Return a session of this client."""
    session = sessions.get(number)
    return session if session is not None and session.client == client else None


def no_session(peer: Peer, message: Any) -> do.Send:
    """Answer a request for a session that is not there, or not the client's."""
    text = f"there is no session {message.session} here: the server may have been restarted"
    return do.Send(peer, say.Failed(message.number, errors.ABORTED, text))


def gone(task: str, why: str) -> errors.OpError:
    """Return the error of a step that a task took part in when it was lost."""
    return errors.UnavailableError(None, None, f"{task} {why}")


def restarted(session: MasterSession, task: str) -> errors.OpError:
    """Return the error of a step that needs a task which the session has lost before."""
    why = session.lost[task]
    return errors.AbortedError(None, None, f"{task} {why} since the session began: make a new one")
