"""Initializers by the names that layers take for them: `kernel_initializer="he_normal"`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace._src.variables import initializers

__all__ = ["get_initializer"]


def _random_normal(mean: float = 0.0, stddev: float = 0.05, **others: Any) -> Any:
    return initializers.RandomNormal(mean, stddev, **others)


def _random_uniform(minval: float = -0.05, maxval: float = 0.05, **others: Any) -> Any:
    return initializers.RandomUniform(minval, maxval, **others)


def _truncated_normal(mean: float = 0.0, stddev: float = 0.05, **others: Any) -> Any:
    return initializers.TruncatedNormal(mean, stddev, **others)


# The random ones have other defaults here than under their own names in tf.
_MAKERS: dict[tuple[str, ...], Callable[..., Any]] = {
    ("zeros", "Zeros", "zero"): initializers.Zeros,
    ("ones", "Ones", "one"): initializers.Ones,
    ("constant", "Constant"): initializers.Constant,
    ("random_normal", "RandomNormal", "normal"): _random_normal,
    ("random_uniform", "RandomUniform", "uniform"): _random_uniform,
    ("truncated_normal", "TruncatedNormal"): _truncated_normal,
    ("VarianceScaling",): initializers.VarianceScaling,
    ("glorot_uniform", "GlorotUniform"): initializers.GlorotUniform,
    ("glorot_normal", "GlorotNormal"): initializers.GlorotNormal,
    ("he_normal",): initializers.he_normal,
    ("he_uniform",): initializers.he_uniform,
    ("lecun_normal",): initializers.lecun_normal,
    ("lecun_uniform",): initializers.lecun_uniform,
    ("orthogonal", "Orthogonal"): initializers.Orthogonal,
    ("identity", "Identity"): initializers.Identity,
}
_BY_NAME = {name: make for names, make in _MAKERS.items() for name in names}


def get_initializer(identifier: Any) -> Any:
    """Return the initializer of a name, or of a dict with `class_name` and `config`; a function
    and None unchanged.
    """
    if identifier is None or callable(identifier):
        return identifier
    config = {}
    if isinstance(identifier, dict):
        identifier, config = identifier["class_name"], identifier["config"]
    if not isinstance(identifier, str):
        raise ValueError(f"Could not interpret initializer identifier: {identifier}")
    if identifier not in _BY_NAME:
        raise ValueError(f"Unknown initializer:{identifier}")
    return _BY_NAME[identifier](**config)
