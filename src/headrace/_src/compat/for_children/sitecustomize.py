"""Lets `tensorflow` mean Headrace in a child process of `headrace run`.

Python imports this file when it starts, because `headrace run` puts its directory on PYTHONPATH.
Nothing is loaded before the program imports a module that Headrace makes or mends. A
`sitecustomize` of the user's own is imported as well. This file stands alone: the child may be
another Python, without Headrace.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOTS = {"tensorflow", "tensorflow_core", "tensorflow_estimator", "horovod"}
_MENDED = {"numpy", "scipy", "sklearn", "matplotlib", "networkx", "gym", "yaml", "six"}
# Modules of Python 2, and those that Python removed since.
_GONE = "BaseHTTPServer ConfigParser Cookie HTMLParser Queue SimpleHTTPServer SocketServer StringIO"
_GONE += " Tkinter UserDict __builtin__ anydbm cPickle cStringIO commands cookielib copy_reg"
_GONE += " distutils dummy_thread dummy_threading exceptions htmlentitydefs httplib imp md5 repr"
_GONE += " robotparser sets sha thread tkFileDialog tkMessageBox ttk urllib2 urlparse xmlrpclib"
_NAMES = _ROOTS | _MENDED | set(_GONE.split())


class Activator:
    """A finder that turns Headrace's on, once."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] not in _NAMES:
            return None
        cls.activate()
        if fullname in sys.modules:
            # Headrace needs it too, and has just loaded it. Importlib would load it again.
            loader = Loaded(sys.modules.pop(fullname))
            return importlib.machinery.ModuleSpec(fullname, loader)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    @classmethod
    def activate(cls):
        if cls in sys.meta_path:
            sys.meta_path.remove(cls)
            with contextlib.suppress(ImportError):  # a Python without Headrace
                import headrace.as_tensorflow  # noqa: F401


class Loaded(importlib.abc.Loader):
    """Loads a module that is there already."""

    def __init__(self, module):
        self.module = module

    def create_module(self, spec):
        return None  # the usual one, which exec_module replaces

    def exec_module(self, module):
        sys.modules[module.__name__] = self.module


def _next_one():
    """Import the `sitecustomize` that this file hides."""
    paths = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, Activator)
_next_one()
if any("spawn_main" in word for word in sys.orig_argv):  # multiprocessing loads the main program
    Activator.activate()
