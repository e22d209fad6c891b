"""Calls that moved in scikit-learn, NetworkX, PyYAML and pandas."""

from __future__ import annotations

import functools
import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace._src.compat.mends.lending import lend
from headrace._src.compat.notices import notice

__all__ = ["PATCHES", "cross_validation"]

# -- scikit-learn ----------------------------------------------------------------------------------


def cross_validation() -> ModuleType:
    """Make sklearn.cross_validation: model_selection's functions, and splitters that get the
    number of samples, or their labels, when they are made.
    """
    new = importlib.import_module("sklearn.model_selection")
    notice("moved modules", "module sklearn.cross_validation is sklearn.model_selection now")
    module = ModuleType("sklearn.cross_validation")
    public = {name: getattr(new, name) for name in dir(new) if not name.startswith("_")}
    vars(module).update(public)

    def folds(name: str, labelled: bool) -> Callable[..., Any]:
        made = getattr(new, name)

        def split(data: Any, n_folds: int = 3, **kwargs: Any) -> Any:
            if not kwargs.get("shuffle"):
                kwargs.pop("random_state", None)  # an error since 0.24
            splitter = made(n_splits=n_folds, **kwargs)
            if labelled:
                return list(splitter.split([0] * len(data), data))
            return list(splitter.split([0] * data))

        return split

    vars(module).update(
        KFold=folds("KFold", False),
        StratifiedKFold=folds("StratifiedKFold", True),
        LeaveOneOut=lambda n: list(new.LeaveOneOut().split([0] * n)),
        ShuffleSplit=lambda n, n_iter=10, **kw: list(
            new.ShuffleSplit(n_splits=n_iter, **kw).split([0] * n)
        ),
    )
    return module


def _renamed_argument(cls: type, **renamed: str) -> None:
    """Let a class take an argument under its old name too."""
    init = cls.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for old, new in renamed.items():
            if old in kwargs:
                notice(f"{cls.__name__}.{old}", f"{cls.__name__}'s argument {old} is {new} now")
                kwargs[new] = kwargs.pop(old)
        init(self, *args, **kwargs)

    cls.__init__ = __init__


def _patch_manifold(manifold: ModuleType) -> None:
    if "max_iter" in _arguments(manifold.TSNE):
        _renamed_argument(manifold.TSNE, n_iter="max_iter")


def _patch_preprocessing(preprocessing: ModuleType) -> None:
    if "sparse_output" in _arguments(preprocessing.OneHotEncoder):
        _renamed_argument(preprocessing.OneHotEncoder, sparse="sparse_output")
    imputer = functools.partial(importlib.import_module, "sklearn.impute")
    names = {"Imputer": lambda: imputer().SimpleImputer}
    lend(preprocessing, names, "sklearn.preprocessing.{} has moved; it is supplied")


def _arguments(cls: Any) -> list[str]:
    return list(cls.__init__.__code__.co_varnames)


# -- NetworkX --------------------------------------------------------------------------------------


def _patch_networkx(nx: ModuleType) -> None:
    def component_graphs(graph: Any, copy: bool = True) -> Any:
        for component in nx.connected_components(graph):
            part = graph.subgraph(component)
            yield part.copy() if copy else part

    def write_gpickle(graph: Any, path: Any, protocol: int = 4) -> None:
        Path(path).write_bytes(pickle.dumps(graph, protocol))

    names: dict[str, Callable[[], Any]] = {
        "connected_component_subgraphs": lambda: component_graphs,
        "from_numpy_matrix": lambda: nx.from_numpy_array,
        "from_scipy_sparse_matrix": lambda: nx.from_scipy_sparse_array,
        "info": lambda: str,
        "read_gpickle": lambda: lambda path: pickle.loads(Path(path).read_bytes()),
        "to_numpy_matrix": lambda: nx.to_numpy_array,
        "to_scipy_sparse_matrix": lambda: nx.to_scipy_sparse_array,
        "write_gpickle": lambda: write_gpickle,
    }
    absent = {name: make for name, make in names.items() if name not in vars(nx)}
    lend(nx, absent, "networkx.{} has gone or moved; it is supplied")
    for name, new in (("node", "nodes"), ("edge", "adj")):
        if not hasattr(nx.Graph, name):
            setattr(nx.Graph, name, property(lambda self, new=new: getattr(self, new)))
    for name, new in (("nodes_iter", "nodes"), ("edges_iter", "edges")):
        if not hasattr(nx.Graph, name):
            call = lambda self, *a, new=new, **k: iter(getattr(self, new)(*a, **k))  # noqa: E731
            setattr(nx.Graph, name, call)
    for name, new in (("neighbors_iter", "neighbors"), ("degree_iter", "degree")):
        if not hasattr(nx.Graph, name):
            call = lambda self, *a, new=new, **k: iter(getattr(self, new)(*a, **k))  # noqa: E731
            setattr(nx.Graph, name, call)


# -- PyYAML ----------------------------------------------------------------------------------------


def _patch_yaml(yaml: ModuleType) -> None:
    for name in ("load", "load_all"):
        before = getattr(yaml, name)

        def read(stream: Any, Loader: Any = None, before: Any = before) -> Any:
            if Loader is None:
                notice("yaml.load", "yaml.load needs a Loader now; it gets yaml.SafeLoader")
                Loader = yaml.SafeLoader
            return before(stream, Loader=Loader)

        setattr(yaml, name, functools.wraps(before)(read))


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "networkx": _patch_networkx,
    "sklearn.manifold": _patch_manifold,
    "sklearn.preprocessing": _patch_preprocessing,
    "yaml": _patch_yaml,
}
