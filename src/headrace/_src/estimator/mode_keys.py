"""The modes of model functions."""

from __future__ import annotations

from headrace._src.core.export import export

__all__ = ["ModeKeys"]


@export("estimator.ModeKeys")
class ModeKeys:
    """The modes that a model_fn is called with."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"
