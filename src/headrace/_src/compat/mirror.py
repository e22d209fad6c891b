"""The modules `tensorflow.…`. In: imports of a program for TensorFlow 1. Out: mirrors of Headrace's
public modules.

A mirror has the names of one public module (`tensorflow.nn` those of `headrace.nn`), and the old
spellings of `old_names`, which Headrace itself lacks as TensorFlow 1.15 does. Its names are found
when they are first used. `tensorflow.python` is served by `headrace.python`, from the mirrors.
Invariant: a TensorFlow that is installed is never found, by an import or by its metadata.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace._src.compat import old_names
from headrace._src.core.missing import area_of, explain, tensorflow_names
from headrace._src.core.versions_and_text import VERSION
from headrace.python import _modules as source_tree

__all__ = ["Alias", "install", "resolve"]

_ROOT = "tensorflow"
_OURS = "headrace"
# Other roots of TensorFlow's, and what they have to be.
_ROOTS = {
    "tensorflow_core": _ROOT,
    "horovod.tensorflow": f"{_OURS}.horovod",
}
# Modules below tensorflow_estimator; each has the names of tf.estimator.
_ESTIMATOR = {"", ".python", ".python.estimator"}
_ESTIMATOR |= {
    f".python.estimator.{name}"
    for name in ("estimator", "estimator_lib", "exporter", "gc", "mode_keys", "model_fn")
    + ("run_config", "training", "util", "export", "export.export", "inputs", "inputs.inputs")
}
_DISTRIBUTIONS = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-estimator")
_PREPROCESSING = f"{_OURS}._src.compat.learn_preprocessing"
# Modules that are here under another name.
_MOVED = {
    "examples.tutorials.mnist.input_data": f"{_OURS}._src.compat.mnist",
    "examples.tutorials.mnist.mnist": f"{_OURS}._src.compat.mnist_model",
    "contrib.learn.datasets": f"{_OURS}._src.compat.learn_datasets",
    "contrib.learn.datasets.base": f"{_OURS}._src.compat.mnist_files",
    "contrib.learn.datasets.mnist": f"{_OURS}._src.compat.mnist",
    "contrib.learn.python.learn.datasets": f"{_OURS}._src.compat.learn_datasets",
    "contrib.learn.python.learn.datasets.mnist": f"{_OURS}._src.compat.mnist",
    "contrib.learn.python.learn.datasets.base": f"{_OURS}._src.compat.mnist_files",
    "contrib.learn.preprocessing": _PREPROCESSING,
    "contrib.learn.python.learn.preprocessing": _PREPROCESSING,
    "contrib.learn.python.learn.preprocessing.categorical_vocabulary": _PREPROCESSING,
    "contrib.learn.python.learn.preprocessing.text": _PREPROCESSING,
    "models.rnn.rnn": f"{_ROOT}.python.ops.rnn",
    "models.rnn.rnn_cell": f"{_ROOT}.nn.rnn_cell",
    "models.rnn.seq2seq": f"{_ROOT}.contrib.legacy_seq2seq",
    "python.debug": f"{_OURS}._src.compat.debuggers",
    "python.tools.freeze_graph": f"{_OURS}._src.compat.graph_tools",
    "python.tools.inspect_checkpoint": f"{_OURS}._src.compat.graph_tools",
    "python.tools.optimize_for_inference_lib": f"{_OURS}._src.compat.graph_tools",
    "python.ops.seq2seq": f"{_ROOT}.contrib.legacy_seq2seq",
}
# Packages of TensorFlow's that only hold modules.
_PACKAGES = {path.rpartition(".")[0] for path in _MOVED}
_PACKAGES |= {space.rpartition(".")[0] for space in _PACKAGES}
_PACKAGES |= {"examples", "examples.tutorials", "models", "contrib.learn.python"}
_PACKAGES |= {"core", "core.framework", "core.protobuf", "core.example", "core.util"}
_PACKAGES -= {"", "python", "python.ops", "contrib", *_MOVED}


class Mirror(ModuleType):
    """A module of TensorFlow's: the names of a module of ours, and old spellings of them."""

    def __init__(self, path: str, real: ModuleType | None) -> None:
        super().__init__(f"{_ROOT}.{path}" if path else _ROOT, getattr(real, "__doc__", None))
        vars(self).update(_mirror_path=path, _mirror_real=real, __path__=[])
        file = getattr(real, "__file__", None)
        if file is not None:
            self.__file__ = file

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [public for public in dir(self) if not public.startswith("_")]
        if name.startswith("__") and not hasattr(vars(self)["_mirror_real"], name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        value = _find(self, name)
        vars(self)[name] = value  # the next access doesn't come here
        return value

    def __dir__(self) -> list[str]:
        real = vars(self)["_mirror_real"]
        path = vars(self)["_mirror_path"]
        own = [name for name in vars(self) if not name.startswith("_")]
        inside = [] if real is None else dir(real)
        return sorted({*inside, *own, *old_names.listing(path), *_inside(path)})


def _find(mirror: Mirror, name: str) -> Any:
    """Return a name of a mirror, an AttributeError if there is none."""
    path, real = vars(mirror)["_mirror_path"], vars(mirror)["_mirror_real"]
    full = f"{path}.{name}" if path else name
    old = old_names.find(full)
    if old is not None:
        return old
    if full in _MOVED or full in _PACKAGES or name in _inside(path):
        return import_module(f"{_ROOT}.{full}")
    if real is None:
        instead = area_of(full).instead
        message = explain(f"tf.{path}", name) or f"tf.{full} is not in Headrace: {instead}"
        raise AttributeError(message, name=name)
    try:
        value = getattr(real, name)
    except AttributeError:
        new = old_names.RENAMED.get(full)
        lacking = new and explain(f"tf.{new}".rpartition(".")[0], new.rpartition(".")[2])
        if not lacking:
            raise
        raise AttributeError(f"tf.{full} is tf.{new} since TensorFlow 1.0: {lacking}") from None
    if isinstance(value, ModuleType) and _is_space(value):
        return import_module(f"{_ROOT}.{full}")
    return value


def _is_space(module: ModuleType) -> bool:
    """Whether a module is one of Headrace's public namespaces."""
    name = module.__name__
    return name == _OURS or (name.startswith(f"{_OURS}.") and not name.startswith(f"{_OURS}._src"))


@cache
def _inside(path: str) -> frozenset[str]:
    """The packages and moved modules right below a path."""
    part = ".".join(path.split(".")[:2])
    listed = _contrib_modules() if part.startswith("contrib.") and _real(part) else ()
    inside = (full.rpartition(".") for full in (*_MOVED, *_PACKAGES, *listed))
    return frozenset(leaf for space, _, leaf in inside if space == path)


def resolve(path: str) -> ModuleType | None:
    """Return the module `tensorflow.<path>`, None if there is none."""
    if path in _MOVED:
        moved = import_module(_MOVED[path])
        return Mirror(path, moved) if _inside(path) else moved
    if path in _PACKAGES:
        return Mirror(path, _real(path))
    if path.startswith("core.") and path.endswith("_pb2"):
        return _messages(path.rpartition(".")[2])
    real = _real(path)
    if real is None:
        return contrib_source(path)
    return sys.modules[_ROOT] if real.__name__ == _OURS and path else Mirror(path, real)


def _real(path: str) -> ModuleType | None:
    """Return Headrace's module of a path."""
    value: Any = import_module(_OURS)
    for name in filter(None, path.split(".")):
        try:
            value = getattr(value, name)
        except AttributeError:
            return None
        if not isinstance(value, ModuleType):
            return None
    return value


def _messages(name: str) -> ModuleType:
    """Return the module of ours that stands for one of TensorFlow's modules of messages."""
    proto = f"{_OURS}._src.core.proto"
    return import_module(f"{proto}.types_pb2" if name == "types_pb2" else proto)


@cache
def _contrib_modules() -> frozenset[str]:
    """The modules of the source trees of tf.contrib: `contrib.layers.python.layers.utils`."""
    text = Path(__file__).with_name("contrib_modules.txt").read_text(encoding="utf-8")
    found, part = set(), ""
    for word in text.partition("\n")[2].split():
        if word.endswith(":"):
            part = f"contrib.{word[:-1]}.python"
            found.add(part)
        else:
            found.add(f"{part}.{word}")
    return frozenset(found)


def contrib_source(path: str) -> ModuleType | None:
    """Return a module of the source tree of a part of tf.contrib, such as
    `contrib.layers.python.layers.utils`: it has the names of the part itself.
    """
    part = path.partition(".python")[0]
    if not path.startswith("contrib.") or path not in _contrib_modules():
        return None
    real = _real(part)
    if real is None:
        return None
    leaf = _real(f"{part}.{path.rpartition('.')[2]}")  # contrib.slim.python.slim.learning
    return Mirror(path, leaf or real)


class Alias(MetaPathFinder, Loader):
    """Finds `tensorflow` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root == _ROOT:
            if rest.startswith("python.") and rest not in _MOVED and rest not in _PACKAGES:
                return None  # the finder of tensorflow.python comes later
        elif root not in ("tensorflow_core", "tensorflow_estimator", "horovod"):
            return None
        module = _load(fullname)
        if module is None:
            if root == "horovod":
                return None
            _refuse(fullname)
            return None
        return ModuleSpec(fullname, self, is_package=True, loader_state=module)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # the usual one, which exec_module replaces

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        found: ModuleType = spec.loader_state
        if isinstance(found, Mirror) and found.__name__ == spec.name:
            found.__spec__ = spec
            found.__loader__ = self
            found.__package__ = spec.name
        sys.modules[spec.name] = found

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        """Answer questions for the version of TensorFlow that is installed."""
        name = getattr(context, "name", None)
        if name is not None and name.lower().replace("_", "-") in _DISTRIBUTIONS:
            yield _Installed(name)


def _load(fullname: str) -> ModuleType | None:
    if fullname == "horovod":
        try:
            import_module(f"{_OURS}.horovod")
        except ModuleNotFoundError:
            return None
        package = ModuleType("horovod")
        package.__path__ = []
        return package
    if fullname == _ROOT:
        return Mirror("", import_module(_OURS))
    for prefix in sorted(_ROOTS, key=len, reverse=True):
        if fullname == prefix or fullname.startswith(f"{prefix}."):
            try:
                return import_module(_ROOTS[prefix] + fullname.removeprefix(prefix))
            except ModuleNotFoundError:
                return None
    if fullname.startswith("tensorflow_estimator"):
        known = fullname.removeprefix("tensorflow_estimator") in _ESTIMATOR
        return import_module(f"{_ROOT}.estimator") if known else None
    if fullname == f"{_ROOT}.python":
        return _python()
    return resolve(fullname.removeprefix(f"{_ROOT}."))


def _python() -> ModuleType:
    package = ModuleType(f"{_ROOT}.python")
    package.__path__ = []
    package.__getattr__, package.__dir__ = source_tree.install(  # type: ignore
        package.__name__, lambda path: old_names.find(f"python.{path}")
    )
    return package


def _refuse(fullname: str) -> None:
    """Raise for a module or name that TensorFlow 1.15 has and Headrace lacks. Without `name=`:
    `from package import name` drops an error that carries its name.
    """
    space, _, name = fullname.rpartition(".")
    public = space.replace(_ROOT, "tf", 1)
    if hasattr(sys.modules.get(space), name):
        return  # it is there, and is no module
    if (message := explain(public, name)) is not None:
        raise ModuleNotFoundError(message)
    if fullname.startswith(f"{_ROOT}.contrib."):
        part = ".".join(fullname.split(".")[1:3])
        known = part.removeprefix("contrib.") in tensorflow_names().get("tf.contrib", ())
        if known and (_real(part) is None or ".python." in fullname or _is_source(part, name)):
            raise ModuleNotFoundError(
                f"{fullname.replace(_ROOT, 'tf', 1)} is not in Headrace yet: "
                f"{area_of(part).instead}"
            )


def _is_source(part: str, name: str) -> bool:
    """Whether TensorFlow's source tree of a part of tf.contrib has a module of that name."""
    within = (m for m in _contrib_modules() if m.startswith(f"{part}."))
    return any(module.rpartition(".")[2] == name for module in within)


class _Installed(Distribution):
    """The metadata of TensorFlow 1.15.5."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        if filename not in ("METADATA", "PKG-INFO"):
            return None
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {VERSION}\n"

    def locate_file(self, path: Any) -> Any:
        return Path(import_module(_OURS).__path__[0]) / path


def install() -> None:
    """Let `tensorflow` mean Headrace in this process. A TensorFlow that is already imported is an
    error: its objects and ours do not go together.
    """
    if any(isinstance(finder, Alias) for finder in sys.meta_path):
        return
    there = sys.modules.get(_ROOT)
    if there is not None and not isinstance(there, Mirror):
        raise ImportError(
            "tensorflow is already imported in this process: import headrace.as_tensorflow first"
        )
    sys.meta_path.insert(0, Alias())
