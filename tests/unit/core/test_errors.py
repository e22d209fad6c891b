"""Errors: their text, with the place in the user's program, and their way through pickle."""

import pickle
from types import SimpleNamespace

import pytest

from headrace._src.core import errors, source


def make_op(name="layer1/mul", original=None):
    frames = source.capture(1)  # made here
    return SimpleNamespace(
        name=name, traceback_frames=frames, _original_op=original, node_def=f"NodeDef of {name}"
    )


def test_text_is_message_place_hint():
    error = errors.InvalidArgumentError(None, make_op(), "a: b", hint="do c")
    message, place, hint = str(error).splitlines()
    assert message == "a: b"
    assert place.startswith("  made at ")
    assert place.endswith("frames = source.capture(1)  # made here")
    assert hint == "  do c"


def test_gradient_op_names_the_forward_op_and_its_place():
    error = errors.InternalError(None, make_op("gradients/mul", original=make_op()), "a: b")
    _, _, forward = str(error).splitlines()
    assert forward.startswith("  for 'layer1/mul', made at ")


@pytest.mark.parametrize("op", [None, SimpleNamespace(name="no frames")])
def test_text_without_a_known_place_is_the_message(op):
    assert str(errors.AbortedError(None, op, "a: b")) == "a: b"


def test_node_def_comes_from_the_op_unless_given():
    op = make_op()
    assert errors.AbortedError(None, op, "m").node_def == "NodeDef of layer1/mul"
    assert errors.AbortedError("mine", op, "m").node_def == "mine"
    assert errors.AbortedError(None, op, "m").op is op
    assert errors.AbortedError(None, None, "m").node_def is None


def test_shape_error_needs_only_a_message_and_is_a_value_error():
    error = errors.ShapeError("shapes differ: (2,) and (3,)", hint="pad one")
    assert isinstance(error, ValueError)
    assert isinstance(error, errors.InvalidArgumentError)
    assert error.error_code == errors.INVALID_ARGUMENT
    assert error.message == "shapes differ: (2,) and (3,)"
    assert str(error) == "shapes differ: (2,) and (3,)\n  pad one"
    assert errors.error_code_from_exception_type(errors.ShapeError) == errors.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "error",
    [
        errors.OpError(None, make_op(), "m", 7),
        errors.UnknownError(None, make_op(), "m", 99, hint="h"),
        errors.OutOfRangeError("node", None, "m"),
        errors.ShapeError("m", op=make_op(), hint="h"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_pickling_keeps_everything_but_the_op(error):
    # Twice, since an error may pass through more than one process on its way to the client.
    copied = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert type(copied) is type(error)
    assert copied.op is None
    for attribute in ("node_def", "message", "error_code", "hint", "args"):
        assert getattr(copied, attribute) == getattr(error, attribute)
    assert str(copied) == str(error)


def test_exceptions_from_outside_have_the_unknown_code():
    assert errors.error_code_from_exception_type(KeyError) == errors.UNKNOWN
