"""Names and arguments that Python's own modules lost, from 3.0 to 3.14."""

from __future__ import annotations

import collections.abc
import functools
import html
import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import itertools
import math
import operator
import os
import re
import shutil
import string
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace._src.compat.mends.lending import lend
from headrace._src.compat.notices import notice

__all__ = ["PATCHES", "any_dbm", "distutils", "imp", "sets", "string_io", "urllib2", "user_dict"]

_GONE = "{} has gone from Python; it is supplied"


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _lender(names: dict[str, Callable[[], Any]]) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        absent = {name: make for name, make in names.items() if name not in vars(module)}
        lend(module, absent, f"{module.__name__}.{_GONE}")

    return patch


_ABCS = {
    name: functools.partial(getattr, collections.abc, name)
    for name in collections.abc.__all__
    if name not in ("Buffer",)
}


def _argspec(function: Any) -> Any:
    found = inspect.getfullargspec(function)
    kind = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
    return kind(found.args, found.varargs, found.varkw, found.defaults)


def _make_string_functions() -> dict[str, Callable[[], Any]]:
    methods = "lower upper strip lstrip rstrip split replace find rfind count join index zfill "
    methods += "rsplit ljust rjust center capitalize swapcase expandtabs title"

    def function(name: str) -> Callable[..., Any]:
        if name == "join":
            return lambda words, sep=" ": sep.join(words)
        return lambda text, *args: getattr(text, name)(*args)

    made: dict[str, Callable[[], Any]] = {
        name: functools.partial(function, name) for name in methods.split()
    }
    letters = {"letters": "ascii_letters", "lowercase": "ascii_lowercase"}
    letters["uppercase"] = "ascii_uppercase"
    made |= {old: functools.partial(getattr, string, new) for old, new in letters.items()}
    made |= {
        "maketrans": _constant(str.maketrans),
        "atoi": _constant(int),
        "atof": _constant(float),
    }
    return made


def _urllib_names() -> dict[str, Callable[[], Any]]:
    """What Python 2's urllib had itself."""
    names = {"parse": "quote quote_plus unquote unquote_plus urlencode", "request": ""}
    names["request"] = "urlopen urlretrieve pathname2url url2pathname URLopener FancyURLopener"

    def find(part: str, name: str) -> Any:
        return getattr(importlib.import_module(f"urllib.{part}"), name)

    return {n: functools.partial(find, part, n) for part, ns in names.items() for n in ns.split()}


# -- Functions with other arguments ----------------------------------------------------------------


def _patch_pickle(pickle: ModuleType) -> None:
    """Read pickles of Python 2, and from files opened as text."""
    load, loads, dump = pickle.load, pickle.loads, pickle.dump

    def read(file: Any, **kwargs: Any) -> Any:
        data = getattr(file, "buffer", file)  # a file opened as text
        seekable = hasattr(data, "seekable") and data.seekable()  # unlike a pipe
        start = data.tell() if seekable else 0
        try:
            return load(data, **kwargs)
        except UnicodeDecodeError:
            if kwargs or not seekable:
                raise
        data.seek(start)
        notice("pickles", "a pickle of Python 2 is read with the encoding latin1")
        return load(data, encoding="latin1")

    def read_bytes(data: Any, /, **kwargs: Any) -> Any:
        data = data.encode("latin-1") if isinstance(data, str) else data
        try:
            return loads(data, **kwargs)
        except UnicodeDecodeError:
            if kwargs:
                raise
        notice("pickles", "a pickle of Python 2 is read with the encoding latin1")
        return loads(data, encoding="latin1")

    def write(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        return dump(value, getattr(file, "buffer", file), *args, **kwargs)

    pickle.load = functools.wraps(load)(read)  # type: ignore
    pickle.loads = functools.wraps(loads)(read_bytes)  # type: ignore
    pickle.dump = functools.wraps(dump)(write)  # type: ignore


def _without(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Return a function that drops arguments which it no longer has."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in names:
            if kwargs.pop(name, None) is not None:
                notice(f"argument {name}", f"{function.__name__}'s argument {name} has gone")
        return function(*args, **kwargs)

    return call


def _patch_json(json: ModuleType) -> None:
    for name in ("load", "loads", "dump", "dumps"):
        setattr(json, name, _without(getattr(json, name), "encoding"))


def _patch_random(random: ModuleType) -> None:
    sample, shuffle = random.sample, random.shuffle

    def choose(population: Any, k: int, **kwargs: Any) -> Any:
        if isinstance(population, collections.abc.Set | collections.abc.KeysView):
            notice("random.sample", "random.sample takes no sets any more; a list is made of one")
            population = list(population)
        return sample(population, k, **kwargs)

    def mix(x: Any, random: Callable[[], float] | None = None) -> None:
        if random is None:
            return shuffle(x)
        for i in reversed(range(1, len(x))):
            j = int(random() * (i + 1))
            x[i], x[j] = x[j], x[i]
        return None

    random.sample = functools.wraps(sample)(choose)  # type: ignore
    random.shuffle = functools.wraps(shuffle)(mix)  # type: ignore


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "base64": _lender(
        {
            "decodestring": lambda: importlib.import_module("base64").decodebytes,
            "encodestring": lambda: importlib.import_module("base64").encodebytes,
        }
    ),
    "cgi": _lender({"escape": _constant(html.escape)}),
    "collections": _lender(dict(_ABCS)),
    "fractions": _lender({"gcd": _constant(math.gcd)}),
    "inspect": _lender({"getargspec": _constant(_argspec)}),
    "itertools": _lender(
        {
            "ifilter": _constant(filter),
            "ifilterfalse": _constant(itertools.filterfalse),
            "imap": _constant(map),
            "izip": _constant(zip),
            "izip_longest": _constant(itertools.zip_longest),
        }
    ),
    "json": _patch_json,
    "operator": _lender({"div": _constant(operator.truediv), "isCallable": _constant(callable)}),
    "os": _lender(
        {
            "errno": lambda: importlib.import_module("errno"),
            "getcwdu": _constant(os.getcwd),
        }
    ),
    "pickle": _patch_pickle,
    "platform": _lender(
        {
            "dist": _constant(lambda *a, **k: ("", "", "")),
            "linux_distribution": _constant(lambda *a, **k: ("", "", "")),
        }
    ),
    "random": _patch_random,
    "string": _lender(_make_string_functions()),
    "sys": _lender(
        {
            "exc_clear": _constant(lambda: None),
            "maxint": _constant(sys.maxsize),
            "setdefaultencoding": _constant(lambda name: None),
        }
    ),
    "time": _lender({"clock": _constant(time.perf_counter)}),
    "types": _lender(
        {
            "BooleanType": _constant(bool),
            "ClassType": _constant(type),
            "DictType": _constant(dict),
            "FileType": _constant(io.IOBase),
            "FloatType": _constant(float),
            "IntType": _constant(int),
            "ListType": _constant(list),
            "LongType": _constant(int),
            "NoneType": _constant(type(None)),
            "StringType": _constant(str),
            "StringTypes": _constant((str,)),
            "TupleType": _constant(tuple),
            "UnicodeType": _constant(str),
        }
    ),
    "urllib": _lender(_urllib_names()),
}


# -- Modules that have gone ------------------------------------------------------------------------


def _module(name: str, **names: Any) -> ModuleType:
    notice("moved modules", f"module {name} has gone; its names are supplied")
    module = ModuleType(name)
    module.__path__ = []
    vars(module).update(names)
    return module


def string_io() -> ModuleType:
    """Python 2's StringIO and cStringIO, for text and bytes."""

    def make(initial: Any = "") -> Any:
        return io.BytesIO(initial) if isinstance(initial, bytes) else io.StringIO(initial)

    return _module("StringIO", StringIO=make)


def urllib2() -> ModuleType:
    """Python 2's urllib2."""
    request, error = (importlib.import_module(f"urllib.{n}") for n in ("request", "error"))
    parts = importlib.import_module("urllib.parse")
    names = {**vars(error), **vars(request), "quote": parts.quote, "unquote": parts.unquote}
    public = {name: value for name, value in names.items() if not name.startswith("__")}
    return _module("urllib2", **public)


def user_dict() -> ModuleType:
    """Python 2's UserDict."""
    mixin = collections.abc.MutableMapping
    return _module("UserDict", UserDict=collections.UserDict, DictMixin=mixin)


def sets() -> ModuleType:
    """Python 2's sets."""
    return _module("sets", Set=set, ImmutableSet=frozenset)


def any_dbm() -> ModuleType:
    """Python 2's anydbm."""
    return _module("anydbm", **vars(importlib.import_module("dbm")))


def imp() -> ModuleType:
    """The module imp, which Python 3.12 removed."""

    def load_source(name: str, path: str, file: Any = None) -> ModuleType:
        loader = importlib.machinery.SourceFileLoader(name, path)
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
        return module

    def find_module(name: str, path: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            raise ImportError(f"No module named {name!r}", name=name)
        return None, spec.origin, ("", "", 5 if spec.submodule_search_locations else 1)

    return _module(
        "imp",
        load_source=load_source,
        find_module=find_module,
        load_module=lambda name, file, path, about: importlib.import_module(name),
        new_module=ModuleType,
        reload=importlib.reload,
        acquire_lock=lambda: None,
        release_lock=lambda: None,
    )


@functools.total_ordering
class LooseVersion:
    """distutils.version.LooseVersion: numbers and words, compared in order."""

    def __init__(self, vstring: str = "") -> None:
        self.vstring = vstring
        words = re.findall(r"\d+|[a-z]+", str(vstring))
        self.version = [int(word) if word.isdigit() else word for word in words]

    def _key(self, other: Any) -> tuple[list[Any], list[Any]]:
        other = other if isinstance(other, LooseVersion) else LooseVersion(other)
        # A word comes before a number: 1.0rc1 < 1.0.1.
        keys = [[(isinstance(p, int), p) for p in v.version] for v in (self, other)]
        return keys[0], keys[1]

    def __eq__(self, other: object) -> bool:
        mine, others = self._key(other)
        return mine == others

    def __lt__(self, other: Any) -> bool:
        mine, others = self._key(other)
        return mine < others

    def __hash__(self) -> int:
        return hash(tuple(self.version))

    def __str__(self) -> str:
        return self.vstring

    def __repr__(self) -> str:
        return f"LooseVersion ('{self.vstring}')"


def distutils() -> ModuleType:
    """The parts of distutils that programs use, which Python 3.12 removed."""

    def strtobool(value: str) -> int:
        low = value.lower()
        if low in ("y", "yes", "t", "true", "on", "1"):
            return 1
        if low in ("n", "no", "f", "false", "off", "0"):
            return 0
        raise ValueError(f"invalid truth value {value!r}")

    def copy_tree(src: str, dst: str, **kwargs: Any) -> list[str]:
        shutil.copytree(src, dst, dirs_exist_ok=True)
        return [os.path.join(folder, n) for folder, _, names in os.walk(dst) for n in names]

    names = {
        "LooseVersion": LooseVersion,
        "StrictVersion": LooseVersion,
        "strtobool": strtobool,
        "copy_tree": copy_tree,
        "mkpath": lambda name, **kwargs: os.makedirs(name, exist_ok=True),
        "remove_tree": lambda name, **kwargs: shutil.rmtree(name),
        "find_executable": shutil.which,
    }
    module = _module("distutils", **names)
    for part in ("version", "util", "dir_util", "spawn"):
        setattr(module, part, module)
    return module
