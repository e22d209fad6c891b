"""What a session needs beside its variables to go on in another process. In: a session. Out: arrays
by name; and back.

That is the state of random generators, samplers and queues, the local variables (epochs are counted
in one), and which steps have run: a step is interpreted first and compiled when it comes back, and
the two may differ in the last bit. While the state is taken, the threads of queue runners are
held up where none is amid a step. Only the session's own container counts: what is in named ones
belongs to the process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import PurePosixPath

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.versions_and_text import as_text
from headrace._src.devices.resources import OPERATION_STATE, without_device
from headrace._src.graph.keys import GraphKeys
from headrace._src.session.session import BaseSession

__all__ = ["gate", "left_over", "resume_state", "saved_state"]

_log = logging.getLogger("headrace")

_STEPS = "steps"
_PATIENCE = 30.0  # seconds for the queue runners to come to rest


def gate(session: BaseSession) -> AbstractContextManager:
    """What a thread that fills queues goes through with each of its steps."""
    return session._resources.gate


def saved_state(session: BaseSession) -> dict[str, np.ndarray]:
    """The state of a session, but for the variables that checkpoints hold.

    Call it between the steps that change it: it only waits for queue runners.
    """
    resources = session._resources
    local = session.graph.get_collection(GraphKeys.LOCAL_VARIABLES)
    with resources.gate.shut(resources.sleepers, _PATIENCE) as quiet:
        if not quiet:
            _log.warning(
                "a queue runner's step takes more than %g s: what it works at isn't saved, and a "
                "restarted program won't see it again",
                _PATIENCE,
            )
        saved = resources.saved({variable.op.name for variable in local})
    found = {
        f"{name}|{part}": array for name, parts in saved.items() for part, array in parts.items()
    }
    steps = [json.dumps(step) for step in session._seen_steps()]
    found[f"|{_STEPS}"] = np.array([step.encode() for step in steps], object)
    return found


def resume_state(session: BaseSession, saved: Mapping[str, np.ndarray]) -> None:
    """Let a session go on from what `saved_state` returned; InvalidArgumentError if that is of
    other queues and variables.
    """
    parts = _by_name(saved)
    steps = parts.pop("", {}).get(_STEPS, ())
    try:
        session._expect_steps([json.loads(step) for step in steps])
        session._resources.resume(parts)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            None, None, f"the saved state of the session doesn't fit this graph: {error}"
        ) from None


def left_over(session: BaseSession, saved: Mapping[str, np.ndarray]) -> list[str]:
    """The names in what `saved_state` returned that nothing in the graph has, neither an operation
    (a function's are named after its call) nor what operations share: they were another graph's.
    """
    operations = session.graph.get_operations()
    known = {op.name for op in operations}
    known |= {as_text(op._attrs["shared_name"]) for op in operations if "shared_name" in op._attrs}
    saved_names = [without_device(name) for name in _by_name(saved) if name]
    names = [PurePosixPath(name.removeprefix(OPERATION_STATE)) for name in saved_names]
    return sorted(
        f"{name}" for name in names if known.isdisjoint(f"{part}" for part in (name, *name.parents))
    )


def _by_name(saved: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    parts: dict[str, dict[str, np.ndarray]] = {}
    for key, array in saved.items():
        name, _, part = key.rpartition("|")
        parts.setdefault(name, {})[part] = array
    return parts
