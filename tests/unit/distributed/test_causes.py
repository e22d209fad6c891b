"""The causes of an error travel as JSON, and nobody's classes are looked up."""

import json

import pytest

from headrace._src.core import errors
from headrace._src.distributed.causes import RemoteError, causes_of, rebuilt


class OwnError(Exception):
    pass


def caught(*chain):
    """An error with these causes, each raised."""
    try:
        if len(chain) > 1:
            raise chain[0] from caught(*chain[1:])
        raise chain[0]
    except BaseException as error:
        return error


def sent(*causes):
    error = caught(errors.InternalError(None, None, "outer"), *causes)
    return rebuilt(json.loads(json.dumps(causes_of(error))))


def test_pythons_own_errors_stay_what_they_are():
    first = sent(ValueError("a", 1), KeyError("k"))
    assert type(first) is ValueError and first.args == ("a", 1)
    assert type(first.__cause__) is KeyError and first.__cause__.args == ("k",)
    assert first.__cause__.__cause__ is None
    assert "in caught" in first.__notes__[0]


def test_errors_of_the_tree_keep_their_code():
    found = sent(errors.OutOfRangeError(None, None, "the end"))
    assert type(found) is errors.OutOfRangeError and found.message == "the end"


@pytest.mark.parametrize(
    "error, text",
    [
        (OwnError("own"), "OwnError: own"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "UnicodeDecodeError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_others_become_text(error, text):
    found = sent(error)
    assert type(found) is RemoteError and text in str(found)


@pytest.mark.parametrize(
    "causes",
    [
        None,
        "x",
        3,
        [3],
        [["ValueError"]],
        [["ValueError", 1, "", "x", ""]],
        {"a": 1},
        [[[], 0, 0, -1, 0]],
    ],
)
def test_nonsense_does_no_harm(causes):
    found = rebuilt(causes)
    assert found is None or isinstance(found, RemoteError)


def test_many_causes_are_cut():
    count, found = 0, sent(*(ValueError(i) for i in range(100)))
    while found is not None:
        count, found = count + 1, found.__cause__
    assert count == 8
