"""Long work shows its progress, on a terminal or on request; short work shows nothing."""

import os
import pty
import subprocess
import sys
import textwrap
import threading

import pytest

from headrace._src.core import progress
from headrace._src.core.config import Settings

COMPILING = """
    import headrace as tf
    from headrace._src.core import progress

    progress.PATIENCE = 0.01
    x = tf.placeholder(tf.float32, [64, 64])
    y = x
    for _ in range(20):
        y = tf.tanh(tf.matmul(y, x))
    with tf.Session() as session:
        for _ in range(3):
            session.run(y, {x: [[0.0] * 64] * 64})
"""


@pytest.fixture
def shown(monkeypatch, capsys):
    monkeypatch.setattr(progress, "settings", lambda: Settings(progress="on"))
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    return lambda: capsys.readouterr().err.splitlines()


def wait_for_a_line(work, text):
    for _ in range(500):
        if text in work():
            return
        threading.Event().wait(0.01)
    raise AssertionError(text)


def collected(shown):
    lines = []

    def more():
        lines.extend(line.rpartition(" (")[0] for line in shown())
        return lines

    return more


def test_long_work_tells_its_phases(shown):
    lines = collected(shown)
    with progress.announced("baking"):
        wait_for_a_line(lines, "headrace: baking")
        for item in progress.counted("kneading", "ab"):
            assert list(progress.counted("inside", "xy")) == ["x", "y"]
            wait_for_a_line(lines, f"headrace: baking: kneading {'ab'.index(item)} of 2")
        with progress.announced("another"):  # a part of the work around it
            pass
        assert list(progress.counted("resting", [3])) == [3]
    assert not any("inside" in line or "another" in line for line in lines())


def test_short_work_is_silent(shown, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    with progress.announced("baking"):
        assert list(progress.counted("kneading", [1, 2])) == [1, 2]
    assert shown() == []


@pytest.mark.parametrize("wanted", ["off", "auto"])
def test_nothing_is_shown_unless_asked_for_or_on_a_terminal(shown, monkeypatch, wanted):
    monkeypatch.setattr(progress, "settings", lambda: Settings(progress=wanted))
    with progress.announced("baking"):
        assert not [t for t in threading.enumerate() if t.name == "headrace-progress"]
        assert list(progress.counted("kneading", [1])) == [1]
    assert shown() == []


def test_errors_end_it(shown):
    with pytest.raises(KeyError), progress.announced("baking"):
        for _ in progress.counted("kneading", [1, 2]):
            raise KeyError
    assert not [t for t in threading.enumerate() if t.name == "headrace-progress"]
    with progress.announced("again"):  # nothing is left of the other one
        assert list(progress.counted("kneading", [1])) == [1]


@pytest.mark.needs_llvm
def test_compiling_shows_lines_when_asked_for():
    environment = {**os.environ, "HEADRACE_PROGRESS": "on", "HEADRACE_CACHE": "off"}
    command = [sys.executable, "-c", textwrap.dedent(COMPILING)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "headrace: compiling a step" in done.stderr


@pytest.mark.needs_llvm
def test_compiling_shows_a_bar_on_a_terminal():
    environment = {**os.environ, "HEADRACE_CACHE": "off", "TERM": "xterm"}
    environment.pop("HEADRACE_PROGRESS", None)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", textwrap.dedent(COMPILING)]
    with subprocess.Popen(command, env=environment, stderr=theirs) as process:
        os.close(theirs)
        output = b""
        try:
            while piece := os.read(ours, 4096):
                output += piece
        except OSError:  # Linux's way to say that the other side was closed
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0
    assert b"compiling a step" in output and b"\x1b[" in output
