"""Helpers that mended files call. In: the operands or arguments that the program wrote. Out: what
the program got at its time.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.compat.notices import notice

__all__ = [
    "METHODS",
    "NUMPY",
    "PYTHON2_METHODS",
    "add",
    "divide",
    "divide_in_place",
    "divide_python2",
    "method",
    "multiply",
    "numpy_array",
    "numpy_asarray",
    "numpy_fromstring",
    "numpy_histogram",
    "numpy_load",
    "numpy_reshape",
    "power",
    "subtract",
]

# -- Operators of NumPy 1 --------------------------------------------------------------------------


def add(a: Any, b: Any) -> Any:
    """Return a + b."""
    result = a + b
    return result if type(result) is not np.ndarray else _typed(result, a, b, add)


def subtract(a: Any, b: Any) -> Any:
    """Return a - b."""
    result = a - b
    return result if type(result) is not np.ndarray else _typed(result, a, b, subtract)


def multiply(a: Any, b: Any) -> Any:
    """Return a * b."""
    result = a * b
    return result if type(result) is not np.ndarray else _typed(result, a, b, multiply)


def divide(a: Any, b: Any) -> Any:
    """Return a / b."""
    result = a / b
    return result if type(result) is not np.ndarray else _typed(result, a, b, divide)


def power(a: Any, b: Any) -> Any:
    """Return a ** b."""
    result = a**b
    return result if type(result) is not np.ndarray else _typed(result, a, b, power)


def _typed(result: np.ndarray, a: Any, b: Any, again: Callable[[Any, Any], Any]) -> Any:
    """Return an array in NumPy 1's type: a scalar does not widen an array of its kind."""
    array, scalar = (a, b) if _is_array(a) else (b, a)
    if not _is_array(array) or not _is_scalar(scalar) or result.dtype == array.dtype:
        return result
    if array.dtype.kind not in "fc" or result.dtype.kind != array.dtype.kind:
        return result
    notice(
        "promotion",
        f"a {array.dtype} array and a {scalar.dtype} scalar give {array.dtype}, as in NumPy 1",
    )
    return again(a.item(), b) if scalar is a else again(a, b.item())


def _is_array(value: Any) -> bool:
    return type(value) is np.ndarray and value.ndim > 0


def _is_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) or (type(value) is np.ndarray and value.ndim == 0)


# -- Functions of NumPy 1 --------------------------------------------------------------------------


def numpy_array(*args: Any, **kwargs: Any) -> Any:
    """Call np.array, whose copy=False may copy."""
    if kwargs.get("copy") is False:
        kwargs["copy"] = None
    return _ragged(np.array, args, kwargs)


def numpy_asarray(*args: Any, **kwargs: Any) -> Any:
    """Call np.asarray."""
    return _ragged(np.asarray, args, kwargs)


def _ragged(make: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Make an array; rows of different lengths make an array of objects, as in NumPy 1."""
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        if "inhomogeneous" not in str(error) or kwargs.get("dtype") is not None or len(args) > 1:
            raise
        notice("ragged arrays", "rows of different lengths make an array of objects, as in NumPy 1")
        return make(*args, **{**kwargs, "dtype": object})


def numpy_reshape(*args: Any, **kwargs: Any) -> Any:
    """Call np.reshape, whose argument `shape` was `newshape`."""
    if "newshape" in kwargs:
        notice("newshape", "np.reshape's newshape is shape now")
        kwargs["shape"] = kwargs.pop("newshape")
    return np.reshape(*args, **kwargs)


def numpy_load(*args: Any, **kwargs: Any) -> Any:
    """Call np.load, which unpickled objects unless it was told not to."""
    if len(args) > 2 or "allow_pickle" in kwargs:
        return np.load(*args, **kwargs)
    kwargs.setdefault("encoding", "latin1")  # of strings that Python 2 pickled
    try:
        found = np.load(*args, **kwargs)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        _rewind(args[0] if args else kwargs.get("file"))
        notice("np.load", "np.load unpickles objects, as it did by default before NumPy 1.16.3")
        return np.load(*args, allow_pickle=True, **kwargs)
    if hasattr(found, "allow_pickle"):
        found.allow_pickle = True  # an archive reads its arrays later
    return found


def _rewind(file: Any) -> None:
    if hasattr(file, "seek"):
        file.seek(0)


def numpy_fromstring(string: Any, dtype: Any = float, count: int = -1, sep: str = "") -> Any:
    """Call np.fromstring, which read bytes too."""
    if sep:
        return np.fromstring(string, dtype, count, sep=sep)
    data = string.encode("latin-1") if isinstance(string, str) else string
    return np.frombuffer(data, dtype, count).copy()


def numpy_histogram(*args: Any, **kwargs: Any) -> Any:
    """Call np.histogram, whose argument `density` was `normed`."""
    if "normed" in kwargs:
        notice("normed", "np.histogram's normed is density now")
        kwargs["density"] = kwargs.pop("normed")
    return np.histogram(*args, **kwargs)


# The functions of NumPy that are called through the helpers above.
NUMPY = frozenset({"array", "asarray", "fromstring", "histogram", "load", "reshape"})

# -- Python 2's division ---------------------------------------------------------------------------


def divide_python2(a: Any, b: Any) -> Any:
    """Return a / b, which is a whole number for whole numbers."""
    if _is_whole(a) and _is_whole(b):
        return a // b
    return divide(a, b)


def divide_in_place(a: Any, b: Any) -> Any:
    """Return `a` after a /= b."""
    if _is_whole(a) and _is_whole(b):
        a //= b
    else:
        a /= b
    return a


def _is_whole(value: Any) -> bool:
    if isinstance(value, int | np.integer):
        return True
    dtype = getattr(value, "dtype", None)  # of arrays and tensors
    if isinstance(dtype, np.dtype):
        return dtype.kind in "iub"
    return bool(getattr(dtype, "is_integer", False))


# -- Methods that have gone ------------------------------------------------------------------------


def method(owner: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method, or what stands for it if it has gone."""
    if name in PYTHON2_METHODS:
        return PYTHON2_METHODS[name](owner, *args, **kwargs)
    try:
        found = getattr(owner, name)
    except AttributeError:
        stand_in, new = METHODS[name]
        try:
            result = stand_in(owner, *args, **kwargs)
        except (AttributeError, TypeError):
            result = NotImplemented
        if result is NotImplemented:
            raise
        notice(f".{name}", f"{type(owner).__name__}.{name} has gone; {new} is called")
        return result
    return found(*args, **kwargs)


def _itemset(owner: Any, *args: Any) -> None:
    if len(args) == 1:
        owner[...] = args[0]
    else:
        owner[args[0] if len(args) == 2 else args[:-1]] = args[-1]


# Name -> (what is called instead, its name).
METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    "as_matrix": (lambda o, columns=None: (o if columns is None else o[columns]).values, ".values"),
    "assertEquals": (lambda o, *a, **k: o.assertEqual(*a, **k), "assertEqual"),
    "assertItemsEqual": (lambda o, *a, **k: o.assertCountEqual(*a, **k), "assertCountEqual"),
    "assertNotEquals": (lambda o, *a, **k: o.assertNotEqual(*a, **k), "assertNotEqual"),
    "assertRegexpMatches": (lambda o, *a, **k: o.assertRegex(*a, **k), "assertRegex"),
    "assert_": (lambda o, *a, **k: o.assertTrue(*a, **k), "assertTrue"),
    "getchildren": (lambda o: list(o), "list()"),
    "has_key": (lambda o, key: key in o, "in"),
    "isAlive": (lambda o: o.is_alive(), "is_alive"),
    "itemset": (_itemset, "an assignment"),
    "iteritems": (lambda o: iter(o.items()), "items"),
    "iterkeys": (lambda o: iter(o.keys()), "keys"),
    "itervalues": (lambda o: iter(o.values()), "values"),
    "ptp": (lambda o, *a, **k: np.ptp(o, *a, **k), "np.ptp"),
    "tostring": (lambda o, *a, **k: o.tobytes(*a, **k), "tobytes"),
    "viewitems": (lambda o: o.items(), "items"),
    "viewkeys": (lambda o: o.keys(), "keys"),
    "viewvalues": (lambda o: o.values(), "values"),
}

# -- Methods that had another meaning in Python 2 --------------------------------------------------

_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


def _listed(name: str) -> Callable[..., Any]:
    def listed(owner: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(owner, name)(*args, **kwargs)
        return list(result) if isinstance(result, _VIEWS) else result

    return listed


def _next(owner: Any, *args: Any) -> Any:
    found = getattr(owner, "next", None)
    return next(owner) if found is None and not args else owner.next(*args)


def _decode(owner: Any, encoding: str = "utf-8", *args: Any) -> Any:
    if not isinstance(owner, str):
        return owner.decode(encoding, *args)
    if encoding in ("hex", "base64"):
        data = owner.encode("ascii")
        return bytes.fromhex(owner) if encoding == "hex" else base64.decodebytes(data)
    return owner  # text already


def _encode(owner: Any, encoding: str = "utf-8", *args: Any) -> Any:
    if encoding in ("hex", "base64"):
        data = owner.encode("utf-8") if isinstance(owner, str) else owner
        return data.hex() if encoding == "hex" else base64.encodebytes(data).decode("ascii")
    # Python 2's bytes were its text: a file, a socket or print takes text here as well.
    return owner if isinstance(owner, str) else owner.encode(encoding, *args)


def _sort(owner: Any, *args: Any, **kwargs: Any) -> Any:
    cmp = kwargs.pop("cmp", None)
    if args and isinstance(owner, list):
        cmp, args = args[0], args[1:]
    if cmp is not None:
        key, ordered = kwargs.get("key"), functools.cmp_to_key(cmp)
        kwargs["key"] = ordered if key is None else lambda value: ordered(key(value))
    return owner.sort(*args, **kwargs)


PYTHON2_METHODS: dict[str, Callable[..., Any]] = {
    "decode": _decode,
    "encode": _encode,
    "items": _listed("items"),
    "keys": _listed("keys"),
    "next": _next,
    "sort": _sort,
    "values": _listed("values"),
}
