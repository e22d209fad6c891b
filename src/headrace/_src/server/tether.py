"""Become another program, which dies with the process that has started it. In: the id of that
process, the program, its arguments.

`python -I -S tether.py PARENT PROGRAM ARGUMENT...` imports nothing of Headrace. It replaces itself
(exec), so that nothing stands between the two processes.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Run `command` in this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before this process asked for the signal
    # A shell lets its background jobs ignore SIGINT, and what is ignored stays so after an exec.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
