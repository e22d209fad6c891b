"""Call users' functions. In: an input_fn or a model_fn, and the arguments it may take. Out: its
checked result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace._src.core import log
from headrace._src.estimator.estimator_spec import EstimatorSpec
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.train.sessions.session_run_hook import SessionRunHook

__all__ = [
    "Batch",
    "argument_names",
    "call_input_fn",
    "call_model_fn",
    "check_model_fn",
    "is_endless",
]

_MODEL_ARGUMENTS = {"features", "labels", "mode", "params", "self", "config"}


def argument_names(function: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments that a function accepts, without those that a partial
    binds.
    """
    bound = set(function.keywords) if isinstance(function, partial) else set()
    parameters = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in parameters if p.kind in named} - bound


def check_model_fn(model_fn: Any, params: Any) -> None:
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    names = argument_names(model_fn)
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is "
            "passed to Estimator."
        )
    if params is None and "params" in names:
        log.warning(
            "Estimator's model_fn (%s) includes params argument, but params are not passed to "
            "Estimator.",
            model_fn,
        )
    if unknown := names - _MODEL_ARGUMENTS:
        raise ValueError(
            f"model_fn ({model_fn}) has following not expected args: {sorted(unknown)}"
        )


def call_model_fn(model_fn: Callable[..., Any], features: Any, labels: Any, **known: Any) -> Any:
    """Call a model_fn with those of mode, params and config that it takes."""
    names = argument_names(model_fn)
    if "labels" in names:
        known["labels"] = labels
    elif labels is not None:
        raise ValueError("model_fn does not take labels, but input_fn returns labels.")
    log.info("Calling model_fn.")
    spec = model_fn(features=features, **{k: v for k, v in known.items() if k in names})
    log.info("Done calling model_fn.")
    if not isinstance(spec, EstimatorSpec):
        raise ValueError(f"model_fn should return an EstimatorSpec, but returned {spec!r:.200}.")
    return spec


class Batch:
    """The result of an input_fn: features, labels (or None), and hooks that it needs."""

    def __init__(self, result: Any) -> None:
        self.hooks: list[SessionRunHook] = []
        self.from_dataset = hasattr(result, "make_initializable_iterator")
        if self.from_dataset:
            iterator = result.make_initializable_iterator()
            self.hooks.append(_Initializer(iterator))
            result = iterator.get_next()
        self.features, self.labels = result, None
        if isinstance(result, list | tuple):
            if len(result) != 2:
                raise ValueError("input_fn should return (features, labels) as a len 2 tuple.")
            self.features, self.labels = result


class _Initializer(SessionRunHook):
    """Initializes a dataset's iterator in each new session."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


def call_input_fn(input_fn: Callable[..., Any], **known: Any) -> Batch:
    """Call an input_fn with those of mode, params and config that it takes."""
    if not callable(input_fn):
        raise TypeError(f"input_fn has to be a function that makes the input, given: {input_fn!r}")
    names = argument_names(input_fn)
    with get_default_graph().device("/cpu:0"):
        return Batch(input_fn(**{key: value for key, value in known.items() if key in names}))


def is_endless(inputs: Batch) -> bool:
    """Return whether nothing in an input's graph can end the input."""
    runners = get_default_graph().get_collection(GraphKeys.QUEUE_RUNNERS)
    return not (inputs.from_dataset or runners)
