"""Separate processes for tests that may hang, crash or exhaust memory."""

import os
import signal
import subprocess
import sys
import time

LIMIT = 120  # seconds; only a hang takes that long


def start(code: str, **environment: str) -> subprocess.Popen:
    """Begin to run code in a fresh interpreter, away from this one's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_", "GOMP_", "OMP_"))}
    path = os.pathsep.join(p for p in [os.getcwd(), *sys.path] if p)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**kept, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def heed_interrupts() -> None:
    """A process that a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen) -> str:
    """Wait for a process that must end well; returns what it printed."""
    try:
        output, complaints = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, complaints = process.communicate()
        raise AssertionError(f"it hangs, after {output!r} and {complaints}") from None
    assert process.returncode == 0, f"status {process.returncode}, {output!r}: {complaints}"
    return output.strip()


def run(code: str, **environment: str) -> str:
    """Run code in a process that must end well; returns what it printed."""
    return finish(start(code, **environment))


def interrupt(code: str, **environment: str) -> str:
    """Run code, press Ctrl-C a little after it has printed its first line, and wait for its end."""
    process = start(code, **environment)
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first:
        return finish(process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    return finish(process)
