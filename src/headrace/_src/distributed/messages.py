"""What the processes of a cluster say to each other. In: a message. Out: its frame; and back.

Messages of every step have fixed binary heads; the others have JSON ones. Bytes such as GraphDefs
travel as tensors, after the message's own. Nothing is ever unpickled.

An answer has the number of its request. Numbers of steps are unique in a cluster (see step_ids).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from headrace._src.core import errors
from headrace._src.distributed.causes import causes_of, described, rebuilt
from headrace._src.runtime import ShapesChanged
from headrace._src.transport.frame import Frame

__all__ = [
    "DONE_AND_NO_MORE",
    "FAILED",
    "GRAPHS",
    "HELD",
    "RUN_GRAPH",
    "RUN_GRAPH_HEAD",
    "RUN_STEP",
    "RUN_STEP_HEAD",
    "SENT_TENSOR",
    "SHAPES_CHANGED",
    "STEP_DONE",
    "STEP_RAN",
    "TIMES",
    "UNTRACED_RAN",
    "USED",
    "AbortStep",
    "CancelRun",
    "CloseSession",
    "CloseWorkerSession",
    "DeregisterGraph",
    "Done",
    "ExtendGraph",
    "Failed",
    "Fenced",
    "Goodbye",
    "Notice",
    "OpenSession",
    "OpenWorkerSession",
    "AdvanceRun",
    "FetchedPiece",
    "Prepare",
    "Prepared",
    "StepRan",
    "RegisterGraph",
    "ResetContainers",
    "RunStep",
    "RunGraph",
    "SessionOpened",
    "SettleStep",
    "Spec",
    "StepDone",
    "StepFailed",
    "SentTensor",
    "WorkerSessionOpened",
    "decode",
    "encode",
    "error_of",
    "failed",
    "step_ids",
    "steps_of",
]

Tensors = tuple[Any, ...]

TIMES, GRAPHS = 1, 2  # what a run records
HELD, USED = 1, 2  # what became of elements that a step has taken
SHAPES_CHANGED = -1  # the code of a step that found another shape than it is specialised for


class Goodbye(NamedTuple):
    """The sender ends by itself: what follows on this connection is not a failure."""

    number: int = 0


class Done(NamedTuple):
    """A request was carried out; there is nothing to return."""

    number: int


class Failed(NamedTuple):
    """A request failed. `operation`: the name of the operation that failed, or "". `causes`: the
    errors behind it (see distributed.causes).
    """

    number: int
    code: int
    message: str
    operation: str = ""
    details: str = ""
    causes: list[Any] = []  # noqa: RUF012  (never changed)


class Fenced(NamedTuple):
    """The receiver was replaced by a newer process of its task, and has to end."""

    number: int
    reason: str


class Notice(NamedTuple):
    """What a request waits for, for the user to read. Its number is 0: it is no answer. `races`:
    the variable, the read and the write of each race in a step (see optimize.races).
    """

    number: int
    text: str
    races: list[Any] = []  # noqa: RUF012  (never changed)


class Spec(NamedTuple):
    """The addresses that the sender knows of tasks; the first message between two tasks."""

    number: int
    tasks: list[str]
    addresses: list[str]


# -- From a client to its master, and back ---------------------------------------------------------


class OpenSession(NamedTuple):
    """Open a session with a ConfigProto."""

    number: int
    config: bytes


class SessionOpened(NamedTuple):
    """`devices`: of all tasks of the session, each as [name, type, memory limit, incarnation]."""

    number: int
    session: int
    devices: list[list[Any]]


class ExtendGraph(NamedTuple):
    """Add the nodes and functions of a GraphDef to the session's graph. `anew`: they replace it."""

    number: int
    session: int
    anew: int
    graph: bytes


class Prepare(NamedTuple):
    """Make a step of fetches, targets and feeds, all by name. `mixed`: its contractions compute in
    bfloat16. `piecewise`: it is for AdvanceRun, not for RunStep. The answer is Prepared.
    """

    number: int
    session: int
    fetches: list[str]
    targets: list[str]
    feeds: list[str]
    mixed: int
    piecewise: int = 0


class Prepared(NamedTuple):
    """`step`: the handle of the step in RunStep."""

    number: int
    step: int


class RunStep(NamedTuple):
    """Run a prepared step with the values of its feeds. `timeout`: in milliseconds; 0: none.
    `traced`: what the answer is to tell about the run: TIMES, GRAPHS or both.
    """

    number: int
    session: int
    step: int
    timeout: int
    traced: int
    tensors: Tensors


class AdvanceRun(NamedTuple):
    """Continue a partial run of a piecewise step, or begin it: feed these tensors and return those,
    once the targets have run. `run`: the client's name of the partial run. A fetch that is dead is
    None in the answer, StepRan.
    """

    number: int
    session: int
    step: int
    run: str
    feeds: list[str]
    fetches: list[str]
    targets: list[str]
    tensors: Tensors


class StepRan(NamedTuple):
    """The fetches of a step. `traced`: so many tensors at the end are RunMetadata of workers."""

    number: int
    traced: int
    tensors: Tensors


class CancelRun(NamedTuple):
    """Stop the run that was asked for with the number `run`."""

    number: int
    session: int
    run: int


class CloseSession(NamedTuple):
    number: int
    session: int


class ResetContainers(NamedTuple):
    """Drop the state in these containers on all tasks of `cluster`; in all of them if none is
    named.
    """

    number: int
    containers: list[str]
    filters: list[str]


# -- From a master to its workers, and back --------------------------------------------------------


class OpenWorkerSession(NamedTuple):
    """Open a session on a worker. `isolated`: its state is not shared with other sessions."""

    number: int
    session: int
    isolated: int
    config: bytes


class WorkerSessionOpened(NamedTuple):
    """`devices`: see SessionOpened. `clock`: the worker's time, in microseconds."""

    number: int
    devices: list[list[Any]]
    clock: int


class CloseWorkerSession(NamedTuple):
    """Close a session; all sessions of this master, if `session` is 0. If the number is 0, there is
    no answer.
    """

    number: int
    session: int


class RegisterGraph(NamedTuple):
    """Register a worker's partitions of a step. `tasks`: all that take part, with the incarnations
    that they must have. `about`: see server.registration. `payload`: the partitions.
    """

    number: int
    session: int
    graph: int
    tasks: dict[str, int]
    about: dict[str, Any]
    payload: bytes


class DeregisterGraph(NamedTuple):
    number: int
    session: int
    graph: int


class RunGraph(NamedTuple):
    """Run a worker's part of a step. The answer is StepDone or StepFailed. There is none if another
    task covers this one, and its part ends well and is not traced. `ahead`: by how many
    microseconds the worker's clock is ahead of the master's, for traces.
    """

    number: int
    session: int
    graph: int
    traced: int
    ahead: int
    tensors: Tensors


class StepDone(NamedTuple):
    """A worker's part of a step has ended, with its fetches. `traced`: the last tensor is a
    RunMetadata. `elements`: HELD, if it keeps elements that it has taken from queues until the step
    is settled; USED, if it has made something of elements, its own or another task's.
    """

    number: int
    traced: int
    elements: int
    tensors: Tensors


class StepFailed(NamedTuple):
    """A worker's part of a step has failed, and nothing of it runs any more. `elements`: see
    StepDone.
    """

    number: int
    code: int
    message: str
    operation: str = ""
    details: str = ""
    causes: list[Any] = []  # noqa: RUF012  (never changed)
    elements: int = 0


class SettleStep(NamedTuple):
    """A step that has taken elements is over everywhere. `returns`: it was cancelled, and nothing
    was made of them, so they go back to their queues.
    """

    number: int
    returns: int


class FetchedPiece(NamedTuple):
    """A tensor of a piecewise step that the client fetches, or the end of a target. `edge`: its
    number in the registration.
    """

    number: int
    edge: int
    tensors: Tensors


class AbortStep(NamedTuple):
    """Stop a step. The answer is still StepDone or StepFailed, also of a worker whose part ended
    without one. `gentle`: no part has failed yet, so elements that were taken from queues must
    reach their receivers (see runtime.served).
    """

    number: int
    code: int
    message: str
    gentle: int


# -- Between workers -------------------------------------------------------------------------------


class SentTensor(NamedTuple):
    """A tensor of a step that travels to another task. `edge`: its number in the registration.
    `place`: the frame and iteration, if the edge is in a loop. The tensor None is a dead one.
    """

    number: int
    edge: int
    iteration: int
    frame: str
    tensors: Tensors


_KINDS: list[type[Any]] = [
    *(Goodbye, Done, Failed, Fenced, Notice, OpenSession, SessionOpened, ExtendGraph, Prepare),
    *(Prepared, RunStep, AdvanceRun, StepRan, CancelRun, CloseSession, ResetContainers),
    OpenWorkerSession,
    *(WorkerSessionOpened, CloseWorkerSession, RegisterGraph, DeregisterGraph, RunGraph, StepDone),
    *(StepFailed, AbortStep, SentTensor, FetchedPiece, Spec, SettleStep),
]
_KIND = {message: kind for kind, message in enumerate(_KINDS, 1)}
_EDGE = Struct("<II")  # before the frame's name
_FIXED = {
    RunStep: Struct("<QQIB"),
    StepRan: Struct("<B"),
    RunGraph: Struct("<QQBq"),
    StepDone: Struct("<BB"),
}
# Kinds, heads and forms of heads of what is said in every step (see Master.run_again).
RUN_STEP, RUN_GRAPH, STEP_DONE = _KIND[RunStep], _KIND[RunGraph], _KIND[StepDone]
STEP_RAN, SENT_TENSOR, FAILED = _KIND[StepRan], _KIND[SentTensor], _KIND[Failed]
UNTRACED_RAN = _FIXED[StepRan].pack(0)
DONE_AND_NO_MORE = _FIXED[StepDone].pack(0, 0)
RUN_STEP_HEAD, RUN_GRAPH_HEAD = _FIXED[RunStep], _FIXED[RunGraph]
_HINTS = {message: get_type_hints(message) for message in _KINDS}
_BYTES = {m: [n for n, t in _HINTS[m].items() if t is bytes] for m in _KINDS}
_JSON = {
    m: [n for n, t in _HINTS[m].items() if t is not bytes and n not in ("number", "tensors")]
    for m in _KINDS
}
_new: Any = tuple.__new__  # makes a message of its fields with one call less than its class


class Malformed(Exception):
    """A frame is not a message."""


def encode(message: Any) -> Frame:
    """Return the frame of a message."""
    form = type(message)
    fixed = _FIXED.get(form)
    if fixed is not None:
        return _new(Frame, (_KIND[form], message[0], fixed.pack(*message[1:-1]), message[-1]))
    if form is SentTensor:
        number, edge, iteration, frame, tensors = message
        head = _EDGE.pack(edge, iteration) + frame.encode()
        return _new(Frame, (_KIND[form], number, head, tensors))
    head = json.dumps([getattr(message, name) for name in _JSON[form]]).encode()
    tensors = getattr(message, "tensors", ())
    blobs = [np.frombuffer(getattr(message, name), np.uint8) for name in _BYTES[form]]
    return Frame(_KIND[form], message.number, head, (*tensors, *blobs))


def decode(kind: int, number: int, head: bytes, tensors: Tensors) -> Any:
    """Return the message of a frame; Malformed if it is none."""
    if not 1 <= kind <= len(_KINDS):
        raise Malformed(f"there is no message of kind {kind}")
    form = _KINDS[kind - 1]
    fixed = _FIXED.get(form)
    try:
        if fixed is not None:
            return _new(form, (number, *fixed.unpack(head), tensors))
        if form is SentTensor:
            edge, iteration = _EDGE.unpack_from(head)
            frame = head[_EDGE.size :].decode()
            return _new(form, (number, edge, iteration, frame, tensors))
        return _from_json(form, number, json.loads(head), tensors)
    except (StructError, ValueError, TypeError, KeyError) as error:
        raise Malformed(f"not a {form.__name__}: {error}") from None


def _from_json(form: type[Any], number: int, values: Any, tensors: Tensors) -> Any:
    names, blobs = _JSON[form], _BYTES[form]
    if not isinstance(values, list) or len(values) != len(names) or len(tensors) < len(blobs):
        raise Malformed(f"a {form.__name__} has {len(names)} fields")
    fields = dict(zip(names, values, strict=True))
    for name, value in fields.items():
        _check(form, name, value)
    own = len(tensors) - len(blobs)
    for name, blob in zip(blobs, tensors[own:], strict=True):
        if not isinstance(blob, np.ndarray) or blob.dtype != np.uint8:
            raise Malformed(f"{name} of a {form.__name__} has to be bytes")
        fields[name] = blob.tobytes()
    if "tensors" in _HINTS[form]:
        fields["tensors"] = tuple(tensors[:own])
    elif own:
        raise Malformed(f"a {form.__name__} has no tensors")
    return form(number=number, **fields)


def _check(form: type[Any], name: str, value: Any) -> None:
    """Raise Malformed if a field has another type than declared."""
    hint: Any = _HINTS[form][name]
    wanted = getattr(hint, "__origin__", hint)
    inner: Any = ()
    if hint == list[str]:
        inner = str, value
    elif hint == dict[str, int] and isinstance(value, dict):
        inner = int, value.values()
    good = isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))
    good = good and (not inner or all(isinstance(each, inner[0]) for each in inner[1]))
    if not good:
        raise Malformed(f"{name} of a {form.__name__} is {value!r}")


def step_ids(incarnation: int) -> Iterator[int]:
    """Return the numbers of a master's steps. Workers refuse a master whose numbers are those of
    another one (see steps_of).
    """
    first = steps_of(incarnation) << 40
    return iter(range(first + 1, first + (1 << 40)))


def steps_of(incarnation: int) -> int:
    """Return the upper 24 bits of the numbers of a master's steps."""
    return incarnation * 0x9E3779B97F4A7C15 >> 20 & 0xFFFFFF


def failed(number: int, error: BaseException, form: type[Any] = Failed) -> Any:
    """Return the message for an error."""
    if isinstance(error, errors.OpError):
        operation = getattr(error.op, "name", "") or ""
        details = "\n".join([*error.details, error.hint or ""]).strip()
        code, causes = error.error_code, causes_of(error)
        return form(number, code, error.message, operation, details, causes)
    if isinstance(error, ShapesChanged):
        return form(number, SHAPES_CHANGED, f"a variable has changed its shape: {error}")
    text = f"{type(error).__name__}: {error}"
    return form(number, errors.INTERNAL, text, causes=described([error]))


def error_of(message: Any, operation: Any = None) -> errors.OpError:
    """Return the error of a message that reports one; `operation`: the one that it names."""
    error = _error(message.code, message.message, operation)
    error.__cause__ = rebuilt(getattr(message, "causes", ()))
    return error


def _error(code: int, text: str, operation: Any) -> errors.OpError:
    try:
        form: Any = errors.exception_type_from_error_code(code)
    except KeyError:
        form = errors.UnknownError
    return form(None, operation, text)
