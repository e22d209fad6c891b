"""hvd.init, hvd.rank and so on: this process's place among the ranks. In: the variables that a
launcher has set. Out: a group (devices/collectives.py) and its numbers.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from typing import Any

from headrace._src.collectives.communicator import Communicator, Solo
from headrace._src.core import errors
from headrace._src.core.config import settings
from headrace._src.core.export import export, export_value
from headrace._src.devices import collectives
from headrace._src.devices.collectives import RankLostError
from headrace._src.devices.pending import Pending

__all__ = ["communicator", "init", "is_initialized", "rank", "shutdown", "size", "wait"]

export_value(
    "headrace._src.devices.collectives",
    "RankLostError",
    "horovod.HorovodInternalError",
    "horovod.elastic.HorovodInternalError",
)


@export("horovod.init")
def init(comm: Sequence[int] | None = None) -> None:
    """Join the other ranks; return when all are there. A second call does nothing.

    The ranks find each other by environment variables: `headrace launch --ranks N` sets them, and
    docs/all_reduce.md lists them. Without any, this process is the only rank. comm: None, or the
    list of all ranks.
    """
    if collectives.has_group():
        return
    found = settings()
    ranks = found.ranks or 1
    if comm is not None and sorted(comm) != list(range(ranks)):
        raise NotImplementedError(f"comm must be None or a list of all ranks, not {comm!r}")
    if found.rendezvous is None:
        if ranks > 1:
            raise errors.FailedPreconditionError(
                None,
                None,
                f"there are {ranks} ranks, but nothing says where they meet",
                hint="use `headrace launch script.py --ranks N`, or set HEADRACE_RENDEZVOUS to "
                "host:port, the same for all ranks; rank 0 will listen there",
            )
        collectives.set_group(Solo())
        return
    served = found.rendezvous_served
    number = -1 if found.rank is None else found.rank
    made = Communicator(found.rendezvous, number, ranks, serves=number == 0 and not served)
    collectives.set_group(made)
    atexit.register(shutdown)


@export("horovod.shutdown")
def shutdown() -> None:
    """Leave the other ranks. Collectives of theirs that begin later fail."""
    if collectives.has_group():
        made: Any = collectives.group()
        collectives.set_group(None)
        made.close()
        atexit.unregister(shutdown)


@export("horovod.is_initialized")
def is_initialized() -> bool:
    """Return whether `init` has been called."""
    return collectives.has_group()


def communicator() -> Any:
    """Return this process's group; raise ValueError before `init`, as Horovod does."""
    if not collectives.has_group():
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return collectives.group()


@export("horovod.rank")
def rank() -> int:
    """Return this process's rank."""
    return communicator().rank


@export("horovod.size")
def size() -> int:
    """Return the number of ranks."""
    return communicator().size


@export("horovod.local_rank")
def local_rank() -> int:
    """Return this process's place among the ranks of its host."""
    epoch = communicator().epoch
    return epoch.on_host.index(epoch.rank)


@export("horovod.local_size")
def local_size() -> int:
    """Return the number of ranks on this host."""
    return len(communicator().epoch.on_host)


@export("horovod.bytes_moved")
def bytes_moved() -> dict[str, int]:
    """Return what collectives have cost this rank so far, in bytes: `shared`, read and written in
    the memory of other ranks of the host; `sent` to other ranks by messages; `control`, sent to the
    coordinator.
    """
    moved = communicator().moved
    return {"shared": moved.shared, "sent": moved.sent, "control": moved.control}


@export("horovod.mpi_threads_supported")
def mpi_threads_supported() -> bool:
    """Return False: there is no MPI."""
    communicator()
    return False


@export(
    "horovod.ddl_built",
    "horovod.gloo_built",
    "horovod.gloo_enabled",
    "horovod.mpi_built",
    "horovod.mpi_enabled",
    "horovod.nccl_built",
)
def is_built() -> bool:
    """Return False: Headrace has collectives of its own, and none of these libraries."""
    return False


def wait(found: Any) -> Any:
    """Return the value of a Pending, or the value itself; for calls outside of a step."""
    if not isinstance(found, Pending):
        return found
    over = threading.Event()
    found.then(lambda pending: over.set())
    try:
        while not over.wait(1.0):
            pass
    except BaseException as error:
        found.cancel(RankLostError(None, None, f"interrupted: {error!r}"))
        raise
    return found.result()
