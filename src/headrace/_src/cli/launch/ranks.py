"""`headrace launch --ranks`: start the ranks of an all-reduce on this host. In: a script and a
number. Out: an exit code.

The coordinator of the ranks runs here, beside them, so that it outlives each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.cli.launch.plan import plan_ranks, threads_each
from headrace._src.cli.launch.running import Launch
from headrace._src.collectives.coordinator import CoordinatorService
from headrace._src.devices.target import usable_cores

__all__ = ["launch_ranks"]


def launch_ranks(
    script: Sequence[str],
    arguments: Sequence[str],
    ranks: int,
    least: int | None,
    restarts: int,
    grace: float,
) -> int:
    """Run the script in `ranks` processes; return the exit code. script: what Python runs."""
    service = CoordinatorService("127.0.0.1:0", ranks, least)
    try:
        plans = plan_ranks(script, arguments, ranks, service.address)
        threads = threads_each(usable_cores(), ranks)
        defaults = {"HEADRACE_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        return Launch(plans, defaults, restarts, grace, least=least).run()
    finally:
        service.close()
