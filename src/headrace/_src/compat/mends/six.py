"""The module six, for programs of both Pythons, where it isn't installed."""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import itertools
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = [
    "configurations",
    "make",
    "make_moves",
    "pickles",
    "queues",
    "url_errors",
    "url_parts",
    "url_requests",
    "urls",
]


def _finder(name: str) -> Callable[[], ModuleType]:
    return functools.partial(importlib.import_module, name)


configurations = _finder("configparser")
pickles = _finder("pickle")
queues = _finder("queue")
urls = _finder("urllib")
url_errors = _finder("urllib.error")
url_parts = _finder("urllib.parse")
url_requests = _finder("urllib.request")


def make() -> ModuleType:
    """Make the module."""
    module = ModuleType("six")
    module.__path__ = []
    vars(module).update(
        __version__="1.16.0",
        PY2=False,
        PY3=True,
        PY34=True,
        MAXSIZE=sys.maxsize,
        BytesIO=io.BytesIO,
        StringIO=io.StringIO,
        binary_type=bytes,
        class_types=(type,),
        integer_types=(int,),
        string_types=(str,),
        text_type=str,
        Iterator=object,
        add_metaclass=_add_metaclass,
        b=lambda text: text.encode("latin-1"),
        byte2int=operator.itemgetter(0),
        callable=builtins.callable,
        ensure_binary=lambda s, encoding="utf-8", errors="strict": (
            s.encode(encoding, errors) if isinstance(s, str) else s
        ),
        ensure_str=_text,
        ensure_text=_text,
        get_function_code=operator.attrgetter("__code__"),
        get_method_function=operator.attrgetter("__func__"),
        get_method_self=operator.attrgetter("__self__"),
        indexbytes=operator.getitem,
        int2byte=lambda value: bytes((value,)),
        iterbytes=iter,
        iteritems=lambda d, **kw: iter(d.items(**kw)),
        iterkeys=lambda d, **kw: iter(d.keys(**kw)),
        itervalues=lambda d, **kw: iter(d.values(**kw)),
        next=builtins.next,
        print_=print,
        python_2_unicode_compatible=lambda cls: cls,
        raise_from=_raise_from,
        reraise=_reraise,
        u=lambda text: text,
        unichr=chr,
        viewitems=operator.methodcaller("items"),
        viewkeys=operator.methodcaller("keys"),
        viewvalues=operator.methodcaller("values"),
        with_metaclass=_with_metaclass,
        wraps=functools.wraps,
    )
    return module


def make_moves() -> ModuleType:
    """Make six.moves."""
    module = ModuleType("six.moves")
    module.__path__ = []
    modules = {
        "builtins": "builtins",
        "cPickle": "pickle",
        "configparser": "configparser",
        "copyreg": "copyreg",
        "html_parser": "html.parser",
        "http_client": "http.client",
        "http_cookiejar": "http.cookiejar",
        "queue": "queue",
        "reprlib": "reprlib",
        "socketserver": "socketserver",
        "tkinter": "tkinter",
        "urllib": "urllib",
        "urllib_error": "urllib.error",
        "urllib_parse": "urllib.parse",
        "urllib_request": "urllib.request",
        "xmlrpc_client": "xmlrpc.client",
        "_thread": "_thread",
    }
    names = {
        "StringIO": io.StringIO,
        "cStringIO": io.StringIO,
        "filter": filter,
        "filterfalse": itertools.filterfalse,
        "getcwd": importlib.import_module("os").getcwd,
        "input": input,
        "intern": sys.intern,
        "map": map,
        "range": range,
        "reduce": functools.reduce,
        "reload_module": importlib.reload,
        "shlex_quote": importlib.import_module("shlex").quote,
        "xrange": range,
        "zip": zip,
        "zip_longest": itertools.zip_longest,
    }

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module 'six.moves' has no attribute {name!r}", name=name)
        for part in ("error", "parse", "request") if name == "urllib" else ():
            importlib.import_module(f"urllib.{part}")
        return importlib.import_module(modules[name])

    vars(module).update(names, __getattr__=get)
    return module


def _text(value: Any, encoding: str = "utf-8", errors: str = "strict") -> str:
    return value.decode(encoding, errors) if isinstance(value, bytes) else value


def _raise_from(value: BaseException, cause: BaseException | None) -> None:
    raise value from cause


def _reraise(kind: Any, value: Any, traceback: Any = None) -> None:
    value = kind() if value is None else value
    raise value.with_traceback(traceback) if traceback is not None else value


def _add_metaclass(metaclass: type) -> Callable[[type], type]:
    def wrap(cls: type) -> type:
        names = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        for slot in names.get("__slots__", ()):
            names.pop(slot, None)
        return metaclass(cls.__name__, cls.__bases__, names)

    return wrap


def _with_metaclass(meta: type, *bases: type) -> type:
    class Temporary(type):
        def __new__(cls, name: str, _: Any, names: dict[str, Any]) -> Any:
            return meta(name, bases, names)

    return type.__new__(Temporary, "temporary_class", (), {})
