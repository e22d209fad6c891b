"""Processes that may not unpickle: an audit hook ends one that does.

Python's hook sees every global that an unpickler looks up, and every use of marshal but that of
imports. What unpickles plain numbers looks nothing up, so the unpicklers are refused as well.
"""

import os
import sys

HOOK = """
import _pickle, os, pickle, signal, sys

def say(what):
    with open(os.path.join({directory!r}, what + "-" + str(os.getpid())), "a") as file:
        file.write(" ".join(sys.orig_argv) + chr(10))

def refuse(*args, **options):
    say("unpickled")
    os.kill(os.getpid(), signal.SIGKILL)

def watch(event, args):
    if event == "pickle.find_class":
        refuse()
    if event in ("marshal.loads", "marshal.load"):
        caller = sys._getframe(1).f_code.co_filename
        if not caller.startswith("<frozen importlib"):
            refuse()

for module in (pickle, _pickle):
    module.load = module.loads = refuse
    module.Unpickler = type("Unpickler", (), dict(__init__=refuse))
sys.addaudithook(watch)
say("watched")
"""


def forbid_unpickling(directory):
    """Return the PYTHONPATH of processes that the hook, in a sitecustomize here, is to watch."""
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text(HOOK.format(directory=str(directory)))
    return os.pathsep.join(filter(None, [str(directory), os.getcwd(), *sys.path]))


def noted(directory, what):
    """The processes that were "watched", or have "unpickled" something."""
    return {int(p.name.rpartition("-")[2]) for p in directory.glob(f"{what}-*")}
