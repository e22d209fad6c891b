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
    """Run code, press Ctrl-C once it is at work after it has printed its first line, and wait for
    its end. The line should be printed where an interrupt is expected: Ctrl-C may come at once.
    """
    process = start(code, **environment)
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first:
        return finish(process)
    _wait_until_at_work(process.pid)
    process.send_signal(signal.SIGINT)
    return finish(process)


def _wait_until_at_work(pid: int) -> None:
    """Wait until a process has computed for 0.2 s or sleeps. A busy machine may need long for the
    first, and a process that waits for a processor does not sleep, so neither is a matter of how
    busy the machine is.
    """
    _, began = _state(pid)
    used = began
    while used < began + 0.2:
        before = used
        time.sleep(0.1)
        state, used = _state(pid)
        if state == "Z" or (state == "S" and used == before):
            return


def _state(pid: int) -> tuple[str, float]:
    """Return the state of a process's first thread, and the seconds that all have computed."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(") ")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
