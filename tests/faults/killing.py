"""Processes that die at a given change of the file system.

`core.files` changes files only through functions of `os`. `survey` runs a function in a forked
child whose nth such call doesn't return: the child kills itself with SIGKILL, in a write after half
of its bytes. The process must have only one thread.
"""

import os
import signal
import traceback

from headrace._src.core import files

_CALLS = ("open", "write", "fsync", "replace", "unlink", "rmdir")


class _Deadly:
    """The module `os`, with a counter."""

    def __init__(self, last):
        self._left = last
        self._names, self._dirty = {}, set()  # what each descriptor is; files not on the disk

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in _CALLS:
            return real

        def call(*args):
            self._left -= 1
            if self._left == 0:
                try:
                    if name == "write":
                        os.write(args[0], args[1][: len(args[1]) // 2])
                finally:
                    os.kill(os.getpid(), signal.SIGKILL)
            result = real(*args)
            self._watch(name, args, result)
            return result

        return call

    def _watch(self, name, args, result):
        """A file must be on the disk before it is moved to its final path, or a power cut would
        lose it.
        """
        if name == "open":
            self._names[result] = args[0]
        elif name == "write":
            self._dirty.add(self._names[args[0]])
        elif name == "fsync":
            self._dirty.discard(self._names[args[0]])
        elif name == "replace":
            assert args[0] not in self._dirty, f"{args[0]} was moved before it was on the disk"


def survey(action, stride=1):
    """Run `action` in children that die at call 1, 2, ... (every `stride`th); yield after each
    death, and once after it came through.
    """
    last = 1 - stride
    while True:
        last += stride
        child = os.fork()
        if child == 0:
            status = 1
            try:
                files.os = _Deadly(last)
                files.GATHERED = 256  # many writes, even of small files
                action()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            yield False
        else:
            assert os.WEXITSTATUS(status) == 0, "the action failed"
            yield True
            return
