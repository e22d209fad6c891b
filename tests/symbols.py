"""Describe public symbols: names, arguments, defaults, and the members of classes. Runs under
TensorFlow 1.15.5 (scripts/record_symbols) and under Headrace alike, so it stays valid Python 3.7.

A description is a list of a kind and more:

    ["function", parameters]
    ["class", parameters of its constructor, {member: parameters, or None of an attribute}]
    ["message", names of its fields]
    ["value", its text]

Parameters are texts as in a signature: "x", "name=None", "*args", "*", "**kwargs". Members are the
public methods and properties that a class defines or inherits from classes of the same package.
"""

import enum
import functools
import gzip
import inspect
import json
import os
import types

__all__ = ["coverage", "describe", "disagreement", "recorded"]

HOMES = ("tensorflow", "headrace")  # members of other packages' classes are not counted
PLAIN = (type(None), bool, int, float, str, bytes)


def default_text(value):
    """The text of a default value that is equal in both systems."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return "({})".format(", ".join(map(default_text, value)))
    if hasattr(type(value), "as_datatype_enum"):
        return "tf." + value.name
    if isinstance(value, type) or callable(value):
        return "<{}>".format(getattr(value, "__name__", type(value).__name__).lstrip("_"))
    return "<{}>".format(type(value).__name__.lstrip("_"))


def unwrapped(function):
    return inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))


def full_spec(function):
    """inspect.FullArgSpec of what a user may pass, through the decorators of either system."""
    try:
        from tensorflow.python.util import tf_inspect  # only where TensorFlow is recorded
    except ImportError:
        return inspect.getfullargspec(unwrapped(function))
    spec = tf_inspect.getfullargspec(function)
    if not spec.args and hasattr(function, "__wrapped__"):  # contextlib.contextmanager's wrapper
        return inspect.getfullargspec(unwrapped(function))
    return spec


def parameters(function, bound=False):
    """The parameters of a function as texts, without the first one if it's a method; None if
    Python doesn't know them.
    """
    try:
        spec = full_spec(function)
    except (TypeError, ValueError):
        return None
    defaults = spec.defaults or ()
    names = spec.args
    given = [None] * (len(names) - len(defaults)) + list(map(default_text, defaults))
    texts = [n if d is None else f"{n}={d}" for n, d in zip(names, given)]
    texts = texts[1:] if bound else texts
    if spec.varargs:
        texts.append("*" + spec.varargs)
    elif spec.kwonlyargs:
        texts.append("*")
    for name in spec.kwonlyargs:
        known = spec.kwonlydefaults or {}
        texts.append(f"{name}={default_text(known[name])}" if name in known else name)
    if spec.varkw:
        texts.append("**" + spec.varkw)
    return texts


def constructor(value):
    for base in value.__mro__:
        for name in ("__init__", "__new__"):
            found = base.__dict__.get(name)
            if base is not object and found is not None:
                return parameters(getattr(found, "__func__", found), bound=True)
    return []


def member(found):
    """The parameters of a method, None of any other attribute."""
    if isinstance(found, staticmethod):
        return parameters(found.__func__)
    if isinstance(found, classmethod):
        return parameters(found.__func__, bound=True)
    if isinstance(found, types.FunctionType) or (
        callable(found) and hasattr(found, "__wrapped__") and not isinstance(found, type)
    ):
        return parameters(found, bound=True)
    return None


def members(value):
    """{name: description} of the public members of a class."""
    found = {}
    for base in reversed(value.__mro__):
        if base.__module__.split(".")[0] not in HOMES:
            continue
        names = dict.fromkeys(getattr(base, "__annotations__", ()))
        names.update(base.__dict__)
        for name in names:
            if not name.startswith("_"):
                found[name] = member(base.__dict__.get(name))
    return found


def describe(value):
    """The description of a public symbol."""
    if isinstance(value, type):
        if hasattr(value, "DESCRIPTOR"):
            fields = getattr(value.DESCRIPTOR, "fields_by_name", {})
            return ["message", sorted(fields)]
        return ["class", constructor(value), members(value)]
    if isinstance(value, functools.partial):
        return ["function", None]
    if inspect.isroutine(value) or hasattr(type(value), "__wrapped__"):
        return ["function", parameters(value)]
    return ["value", default_text(value)]


# -- Comparison ------------------------------------------------------------------------------------


def recorded():
    """{namespace: {name: description}} of TensorFlow 1.15.5."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "symbols.json.gz")
    with gzip.open(path, "rt") as file:
        found = json.load(file)
    for names in found.values():
        for name, entry in names.items():
            while entry[0] == "same":
                space, _, leaf = entry[1].rpartition(".")
                entry = found[space][leaf]
            names[name] = entry
    return found


def split(texts):
    """Parameters as (positional texts, {keyword-only name: text}, has *args, has **kwargs)."""
    positional, keywords, starred = [], {}, False
    for text in texts:
        if text.startswith("**"):
            return positional, keywords, starred is True, True
        if text.startswith("*"):
            starred = None if text == "*" else True
        elif starred is False:
            positional.append(text)
        else:
            keywords[text.partition("=")[0]] = text
    return positional, keywords, starred is True, False


def accepts(ours, theirs):
    """Whether all calls that `theirs` allows mean the same with the parameters `ours`. Ours may
    have keyword-only parameters besides, and name what theirs takes as *args or **kwargs.
    """
    if ours is None or theirs is None:
        return True
    positional, keywords, starred, more = split(theirs)
    if starred and more and not positional:
        return True
    found, found_keywords, _, found_more = split(ours)
    named = dict({t.partition("=")[0]: t for t in found}, **found_keywords)
    same = [t == "_" or t == f for t, f in zip(positional, found)]
    if len(same) < len(positional) or not all(same):
        return False
    if len(found) > len(positional) and not (starred or more):
        return False
    return found_more or all(named.get(name) == text for name, text in keywords.items())


def disagreement(full, theirs, ours):
    """Yield (name, theirs, ours) wherever the descriptions of a symbol disagree."""
    if theirs[0] != ours[0] and {theirs[0], ours[0]} != {"class", "function"}:
        yield full, theirs[:2], ours[:2]
        return
    if theirs[0] == "message":
        if set(theirs[1]) - set(ours[1]):
            yield full, sorted(set(theirs[1]) - set(ours[1])), []
    elif theirs[0] == "value":
        if theirs[1] != ours[1]:
            yield full, theirs[1], ours[1]
    elif not accepts(ours[1], theirs[1]):
        yield full, theirs[1], ours[1]
    if theirs[0] == ours[0] == "class":
        for name, parameters_of in theirs[2].items():
            found = ours[2].get(name)
            if (
                parameters_of is not None
                and found is not None
                and not accepts(found, parameters_of)
            ):
                yield full + "." + name, parameters_of, found


class Coverage:
    """How many of a namespace's names and its classes' members are here, and which are not."""

    def __init__(self):
        self.names = self.members = 0
        self.missing_names, self.missing_members, self.disagreements = [], [], []


def coverage(tf):
    """{namespace: Coverage} of the symbols of `tf`."""
    result = {}
    for space, names in sorted(recorded().items()):
        found = result[space] = Coverage()
        for name, theirs in sorted(names.items()):
            full = space + "." + name
            of_class = theirs[2] if theirs[0] == "class" else {}
            found.names += 1
            found.members += len(of_class)
            try:
                value = tf
                for part in full.split(".")[1:]:
                    value = getattr(value, part)
            except (AttributeError, ImportError):
                found.missing_names.append(full)
                found.missing_members += [full + "." + member for member in of_class]
                continue
            ours = describe(value)
            here = ours[2] if ours[0] == "class" else {}
            found.missing_members += [
                full + "." + m for m in of_class if m not in here and not hasattr(value, m)
            ]
            found.disagreements += disagreement(full, theirs, ours)
    return result
