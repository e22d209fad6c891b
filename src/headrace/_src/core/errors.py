"""The tree of errors, with TensorFlow's names and codes. In: what happened to which op. Out: text.

`str(error)` is at most four kinds of line, in this order:

    matmul 'layer1/mul': inner dimensions differ: float32[?,784] x float32[128,10]
      made at layers.py:12   h = tf.matmul(x, w2)
        called from train.py:41   logits = dense(images)   (the user's calls, at most five)
      inputs: x:0 float32[32,784], w2:0 float32[128,10]  (details of the step that failed)
      for 'layer1/sum', made at train.py:40   ...       (a gradient's forward op)
      x.shape[1] must equal y.shape[0]

Invariants: `code -> class` and `class -> code` are inverse to each other; an error survives
pickling with its whole text, but loses `op`, since a graph does not travel between processes.
"""

from typing import Any, Final

from headrace._src.core import source

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
DATA_LOSS: Final = 15
UNAUTHENTICATED: Final = 16


class OpError(Exception):
    """An operation failed, or could not be started."""

    def __init__(
        self, node_def: Any, op: Any, message: str, error_code: int, *, hint: str | None = None
    ):
        super().__init__(message)
        self._node_def = node_def
        self._op = op
        self._message = message
        self._error_code = error_code
        self._hint = hint
        self._details: list[str] = []
        # Set only in a copy that was unpickled, where `op` is gone.
        self._origin: list[str] | None = None

    @property
    def op(self) -> Any:
        """The Operation that failed, None if unknown or in another process."""
        return self._op

    @property
    def node_def(self) -> Any:
        """The NodeDef of the operation that failed, None if unknown."""
        if self._node_def is None:
            return getattr(self._op, "node_def", None)
        return self._node_def

    @property
    def message(self) -> str:
        """What happened, in one line, without the source location and the hint."""
        return self._message

    @property
    def error_code(self) -> int:
        """The canonical code, such as `INVALID_ARGUMENT`."""
        return self._error_code

    @property
    def hint(self) -> str | None:
        """What to do about it, None if nothing useful can be said."""
        return self._hint

    @property
    def details(self) -> tuple[str, ...]:
        """The inputs of the failing step, line by line."""
        return tuple(self._details)

    def add_detail(self, line: str) -> None:
        """Add a line about the failing step's inputs to the text."""
        self._details.append(line)

    def __str__(self) -> str:
        origin = _origin_lines(self._op) if self._origin is None else self._origin
        hint = [self._hint] if self._hint else []
        return "\n  ".join([self._message, *origin, *self._details, *hint])

    def __reduce__(self) -> tuple[Any, ...]:
        origin = _origin_lines(self._op) if self._origin is None else self._origin
        state = {
            "_node_def": self.node_def,
            "_op": None,
            "_message": self._message,
            "_error_code": self._error_code,
            "_hint": self._hint,
            "_details": self._details,
            "_origin": origin,
        }
        # Not through __init__: the constructors of this tree differ.
        return _restore, (type(self), self._message), state


def _restore(cls: type[OpError], message: str) -> OpError:
    error = cls.__new__(cls, message)
    error.args = (message,)
    return error


def _origin_lines(op: Any) -> list[str]:
    """Where the user's program made `op`, and the ops that it was derived from (a gradient's)."""
    lines = []
    prefix = ""
    while op is not None:
        lines += source.user_lines(getattr(op, "traceback_frames", ()), f"{prefix}made at")
        op = getattr(op, "_original_op", None)
        prefix = f"for {getattr(op, 'name', '')!r}, "
    return lines


class _CodedError(OpError):
    """An error whose class determines its code."""

    _code: int

    def __init__(self, node_def: Any, op: Any, message: str, *, hint: str | None = None):
        super().__init__(node_def, op, message, self._code, hint=hint)


class CancelledError(_CodedError):
    """The step or the operation was cancelled before it finished."""

    _code = CANCELLED


class UnknownError(OpError):
    """An error that fits no other class, or that comes from a system with other codes."""

    def __init__(
        self,
        node_def: Any,
        op: Any,
        message: str,
        error_code: int = UNKNOWN,
        *,
        hint: str | None = None,
    ):
        super().__init__(node_def, op, message, error_code, hint=hint)


class InvalidArgumentError(_CodedError):
    """An argument is wrong in itself, independent of the state of the system."""

    _code = INVALID_ARGUMENT


class DeadlineExceededError(_CodedError):
    """The time limit passed before the operation finished."""

    _code = DEADLINE_EXCEEDED


class NotFoundError(_CodedError):
    """The requested file, variable or device does not exist."""

    _code = NOT_FOUND


class AlreadyExistsError(_CodedError):
    """The thing to be created already exists."""

    _code = ALREADY_EXISTS


class PermissionDeniedError(_CodedError):
    """The caller may not do this."""

    _code = PERMISSION_DENIED


class ResourceExhaustedError(_CodedError):
    """Memory, disk space or a quota is used up."""

    _code = RESOURCE_EXHAUSTED


class FailedPreconditionError(_CodedError):
    """The system is not in the state that the operation needs; for example, a variable has no
    value.
    """

    _code = FAILED_PRECONDITION


class AbortedError(_CodedError):
    """The operation conflicted with another one, or its queue was closed."""

    _code = ABORTED


class OutOfRangeError(_CodedError):
    """The input is exhausted, or an index is out of range."""

    _code = OUT_OF_RANGE


class UnimplementedError(_CodedError):
    """The operation is not implemented on this device."""

    _code = UNIMPLEMENTED


class InternalError(_CodedError):
    """A fault of Headrace itself, not of the user's program."""

    _code = INTERNAL


class UnavailableError(_CodedError):
    """A task cannot be reached at the moment; trying again may help."""

    _code = UNAVAILABLE


class DataLossError(_CodedError):
    """Stored data is damaged or cut off."""

    _code = DATA_LOSS


class UnauthenticatedError(_CodedError):
    """The caller could not be authenticated."""

    _code = UNAUTHENTICATED


class ShapeError(InvalidArgumentError, ValueError):
    """Shapes or types that do not fit together, found while the graph is built.

    It is a ValueError, as TensorFlow raises at this point. It needs no operation, since there may
    be none yet.
    """

    def __init__(
        self, message: str, *, node_def: Any = None, op: Any = None, hint: str | None = None
    ):
        super().__init__(node_def, op, message, hint=hint)


class OperatorNotAllowedInGraphError(TypeError):
    """Python's control flow was applied to a tensor that has no value yet."""


class InaccessibleTensorError(ValueError):
    """A tensor was used outside of the branch, loop or function that it belongs to."""


_CLASS_OF_CODE: Final[dict[int, type[OpError]]] = {
    UNKNOWN: UnknownError,
    **{cls._code: cls for cls in _CodedError.__subclasses__()},
}


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """The class of errors with this code; KeyError if there is none (as for OK)."""
    return _CLASS_OF_CODE[error_code]


def error_code_from_exception_type(cls: type[BaseException]) -> int:
    """The code of a class of errors; UNKNOWN for exceptions from outside of this tree."""
    return cls._code if issubclass(cls, _CodedError) else UNKNOWN


class Status:
    """What a call says of its success: a code, OK at first, and a message."""

    def __init__(self) -> None:
        self.code, self.message = OK, ""


class raise_exception_on_not_ok_status:
    """A context that gives a Status, and at its end raises the error of the status' code, unless
    that is OK or the block raised another one.

        with tf.errors.raise_exception_on_not_ok_status() as status:
            status.code, status.message = tf.errors.NOT_FOUND, "no such thing"
    """

    def __enter__(self) -> Status:
        self.status = Status()
        return self.status

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        if kind is None and self.status.code != OK:
            error: Any = exception_type_from_error_code(self.status.code)
            raise error(None, None, self.status.message)
        return False
