"""Captured source lines: whose frames, which lines, which text."""

import importlib
import linecache
import os

import pytest

import headrace as tf
from headrace._src.core import source


def run_as(filename, text, **names):
    """Run `text` as if it were the file `filename`; return its variables."""
    exec(compile(text, filename, "exec"), names)
    return names


LIBRARY = os.path.join(source._PACKAGE, "_src", "ops", "imaginary.py")
CALL = "def call(function):\n    return function()\n"


def test_innermost_user_frame_comes_first_and_has_its_line():
    def inner():
        return source.capture()  # the line

    frames = inner()
    assert frames[0].filename == __file__
    assert frames[0].function == "inner"
    assert frames[0].line == "return source.capture()  # the line"
    assert frames[0].lineno == inner.__code__.co_firstlineno + 1
    assert frames[1].function == "test_innermost_user_frame_comes_first_and_has_its_line"


def test_frames_of_the_package_are_skipped():
    through_library = run_as(LIBRARY, CALL)["call"]
    frames = through_library(lambda: through_library(source.capture))
    assert [frame.function for frame in frames[:2]] == [
        "<lambda>",
        "test_frames_of_the_package_are_skipped",
    ]


def test_no_user_frame_gives_nothing(monkeypatch):
    monkeypatch.setattr(source, "_is_user_file", {})
    monkeypatch.setattr(source, "_PACKAGE", os.sep)
    frames = source.capture()
    assert len(frames) == 0
    assert not frames
    assert source.user_line(frames) == ""
    assert source.extract_stack(frames) == []


def test_frozen_modules_are_skipped():
    call = run_as("<frozen runpy>", CALL)["call"]
    assert call(source.capture)[0].function == "test_frozen_modules_are_skipped"


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_limit_counts_user_frames(limit):
    assert len(source.capture(limit)) == limit


def test_line_of_a_call_that_spans_lines():
    frames = [
        source.capture(),
        source.capture(),
    ]
    first, second = (stack[0].lineno for stack in frames)
    assert second == first + 1


def test_user_line_shows_paths_below_the_working_directory_shortly(monkeypatch, tmp_path):
    script = tmp_path / "models" / "train.py"
    script.parent.mkdir()
    script.write_text("def work(f):\n    h = f()\n    return h\n")
    frames = run_as(str(script), script.read_text())["work"](source.capture)
    monkeypatch.chdir(tmp_path)
    assert source.user_line(frames) == f"{os.path.join('models', 'train.py')}:2   h = f()"
    monkeypatch.chdir("/")
    assert source.user_line(frames).endswith("train.py:2   h = f()")


def test_interactive_source_shows_what_there_is(monkeypatch):
    frames = run_as("<stdin>", CALL)["call"](source.capture)
    assert source.user_line(frames) == "<stdin>:2"
    cell = "<ipython-input-1-0>"
    monkeypatch.setitem(linecache.cache, cell, (len(CALL), None, CALL.splitlines(True), cell))
    frames = run_as(cell, CALL)["call"](source.capture)
    assert source.user_line(frames) == f"{cell}:2   return function()"


def test_extract_stack_is_outermost_first():
    frames = source.capture()
    entries = source.extract_stack(frames)
    assert len(entries) == len(frames)
    filename, lineno, function, line = entries[-1]
    assert (filename, function) == (__file__, "test_extract_stack_is_outermost_first")
    assert (lineno, line) == (frames[0].lineno, "frames = source.capture()")


def test_stack_behaves_as_a_tuple_of_frames():
    frames = source.capture(3)
    assert frames[-1] == list(frames)[2]
    assert frames[:2] == tuple(frames)[:2]
    assert len({*frames, *frames}) == 3
    with pytest.raises(IndexError):
        frames[3]


def test_user_lines_leave_out_what_runs_the_program(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # files below it are shown by shorter names
    tool = run_as(os.path.join(os.path.dirname(pytest.__file__), "imaginary.py"), CALL)["call"]
    program = run_as("/home/user/train.py", CALL)["call"]
    frames = tool(lambda: program(lambda: tool(source.capture)))
    inner, outer = (f"{os.path.dirname(pytest.__file__)}/imaginary.py:2", "/home/user/train.py:2")
    lines = source.user_lines(frames, "made at", most=3)
    assert [line.split("   ")[0] for line in lines[:1]] == [f"made at {inner}"]
    assert lines[2] == f"  called from {outer}"
    assert not any("_pytest" in line for line in source.user_lines(frames, "made at", most=20))
    assert source.user_lines([], "made at") == []
    only = [frames[0]]  # an operation that a tool made for itself
    assert source.user_lines(only, "made at") == [f"made at {inner}"]


def test_frames_of_an_exception():
    def fail():
        raise KeyError("a")

    through_library = run_as(LIBRARY, CALL)["call"]
    try:
        through_library(fail)
    except KeyError as error:
        frames = source.captured(error.__traceback__)
    assert [frame.function for frame in frames] == ["fail", "test_frames_of_an_exception"]
    assert frames[0].line == 'raise KeyError("a")'


def test_errors_name_the_functions_that_a_user_passed():
    def body():
        pass

    with pytest.raises(TypeError) as caught, source.naming(body=body, other=3):
        raise TypeError("wrong")
    first, second, third = str(caught.value).splitlines()
    assert first == "wrong" and second.endswith("   def body():")
    assert second.startswith("  body: ") and third.startswith("  called at ")


def test_frames_of_public_modules_are_not_the_users():
    """headrace/python has functions that make operations, outside the private rooms."""
    control_flow_ops = importlib.import_module("headrace.python.ops.control_flow_ops")
    with tf.Graph().as_default():
        x = tf.constant(1.0)
        y = control_flow_ops.with_dependencies([x.op], x)
    assert y.op.traceback[-1][0] == __file__
