"""Save and resume the state of a session other than its variables. In: a session. Out: arrays by
name; and back.

The state consists of random generators, samplers, queues, local variables (one of them counts
epochs) and the steps that have run. The steps matter because a step is first interpreted and later
compiled, and the results may differ in the last bit. While the state is saved, the threads of queue
runners are stopped between two of their steps. Only the session's own container is saved: named
containers belong to the process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import PurePosixPath

import numpy as np

from headrace._src.core.errors import InvalidArgumentError, UnimplementedError
from headrace._src.core.versions_and_text import as_text
from headrace._src.devices.resources import OPERATION_STATE, without_device
from headrace._src.graph.keys import GraphKeys
from headrace._src.session.session import BaseSession

__all__ = ["gate", "left_over", "resume_state", "saved_state"]

_log = logging.getLogger("headrace")

_STEPS = "steps"
_PATIENCE = 30.0  # seconds to wait for queue runners to stop


def gate(session: BaseSession) -> AbstractContextManager:
    """Return the gate that a queue runner's thread enters for each of its steps."""
    return session._resources.gate


def saved_state(session: BaseSession) -> dict[str, np.ndarray]:
    """Return the state of a session, except the variables that checkpoints hold.

    Call it between steps that change the state: it waits only for the steps of queue runners.
    """
    _check_local(session)
    resources = session._resources
    local = session.graph.get_collection(GraphKeys.LOCAL_VARIABLES)
    with resources.gate.shut(resources.sleepers, _PATIENCE) as quiet:
        if not quiet:
            _log.warning(
                "a queue runner's step takes more than %g s: its elements are not saved, and a "
                "restarted program will not see them",
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
    """Restore the state that `saved_state` returned.

    Raises InvalidArgumentError if the state belongs to other queues or variables.
    """
    _check_local(session)
    parts = _by_name(saved)
    steps = parts.pop("", {}).get(_STEPS, ())
    try:
        session._expect_steps([json.loads(step) for step in steps])
        session._resources.resume(parts)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            None, None, f"the saved state of the session does not fit this graph: {error}"
        ) from None


def _check_local(session: BaseSession) -> None:
    if session._remote is not None:
        raise UnimplementedError(
            None,
            None,
            "exact_resume: the queues, generators and local variables of this session are on the "
            f"tasks of the cluster at {session.sess_str}, and only those of one process can be "
            "saved. Use a saver without exact_resume.",
        )


def left_over(session: BaseSession, saved: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names in a saved state that do not occur in the graph: it is another graph's.

    A known name is an operation's or a `shared_name`; the operations of a function are named after
    its call.
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
