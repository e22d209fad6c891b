"""Start from another model. In: a checkpoint, and the variables to take from it. Out: initializers
of these variables that restore them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.estimator.vocab_info import start_from_vocabulary
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.train.saving.checkpoint_init import init_from_checkpoint
from headrace._src.train.saving.saved_model import saved_model_names
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.variable import Variable

__all__ = ["WarmStartSettings", "warm_start", "warm_start_settings"]


class _Fields(NamedTuple):
    ckpt_to_initialize_from: str
    vars_to_warm_start: Any
    var_name_to_vocab_info: dict[str, Any]
    var_name_to_prev_var_name: dict[str, str]


@export("estimator.WarmStartSettings")
class WarmStartSettings(_Fields):
    """The model to start from.

    ckpt_to_initialize_from    a checkpoint, or a directory of checkpoints
    vars_to_warm_start         a regular expression that selects the trainable variables whose names
                               it matches from the start ('.*': all); a list of expressions, which
                               select from all variables; a list of variables; or None
    var_name_to_vocab_info     VocabInfo by name, for tables whose vocabulary has changed
    var_name_to_prev_var_name  names in the checkpoint of variables that have another name there
    """

    __slots__ = ()

    def __new__(
        cls,
        ckpt_to_initialize_from: Any,
        vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Mapping[str, Any] | None = None,
        var_name_to_prev_var_name: Mapping[str, str] | None = None,
    ) -> WarmStartSettings:
        if not ckpt_to_initialize_from:
            raise ValueError("`ckpt_to_initialize_from` MUST be set in WarmStartSettings")
        return super().__new__(
            cls,
            os.fsdecode(ckpt_to_initialize_from),
            vars_to_warm_start,
            dict(var_name_to_vocab_info or {}),
            dict(var_name_to_prev_var_name or {}),
        )


def warm_start_settings(given: Any) -> WarmStartSettings | None:
    """Interpret an estimator's warm_start_from: settings, a checkpoint, or a SavedModel."""
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if not isinstance(given, str | bytes | os.PathLike):
        raise ValueError(
            f"warm_start_from must be a string or a WarmStartSettings, instead got {type(given)}"
        )
    given = os.fsdecode(given)
    variables = os.path.join(
        given, saved_model_names.VARIABLES_DIRECTORY, saved_model_names.VARIABLES_FILENAME
    )
    if os.path.exists(f"{variables}.index"):
        log.info("Warm-starting from a SavedModel")
        return WarmStartSettings(variables)
    return WarmStartSettings(given)


@export("train.warm_start")
def warm_start(
    ckpt_to_initialize_from: Any,
    vars_to_warm_start: Any = ".*",
    var_name_to_vocab_info: Mapping[str, Any] | None = None,
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
) -> None:
    """Initialise variables of the default graph from a checkpoint: see tf.estimator's
    WarmStartSettings.
    """
    before = dict(var_name_to_prev_var_name or {})
    moved = dict(var_name_to_vocab_info or {})
    found = _by_name(_chosen(vars_to_warm_start))
    log.info("Warm-starting from: %s", ckpt_to_initialize_from)
    for name, parts in found.items():
        saved, info = before.pop(name, name), moved.pop(name, None)
        if info is not None:
            start_from_vocabulary(ckpt_to_initialize_from, saved, parts, info)
        else:
            init_from_checkpoint(ckpt_to_initialize_from, {saved: parts})
    for what, unused in (
        ("var_name_to_prev_var_name", before),
        ("var_name_to_vocab_info", moved),
    ):
        if unused:
            raise ValueError(
                f"You provided the following variables in {what} that were not used: "
                f"{unused}. Perhaps you misspelled them? Here is the list of viable variable "
                f"names: {sorted(found)}"
            )


def _chosen(which: Any) -> list[Any]:
    graph = get_default_graph()
    if which is None:
        return []
    if isinstance(which, str):
        return graph.get_collection(GraphKeys.TRAINABLE_VARIABLES, which)
    if not isinstance(which, list):
        raise ValueError(
            "If `vars_to_warm_start is a list, it must be all `Variable` or all `str`.  Given "
            f"types are {type(which)}"
        )
    if all(isinstance(item, str) for item in which):
        everything = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
        return [v for v in everything if any(re.match(pattern, v.name) for pattern in which)]
    if not all(isinstance(item, Variable | PartitionedVariable) for item in which):
        raise ValueError(
            "If `vars_to_warm_start` is a list, it must be all `Variable` or all `str`.  Given "
            f"types are {[type(item) for item in which]}"
        )
    return [
        part
        for item in which
        for part in (list(item) if isinstance(item, PartitionedVariable) else [item])
    ]


def _by_name(variables: list[Any]) -> dict[str, list[Any]]:
    """Return variables by their names in checkpoints; parts of one variable are grouped."""
    found: dict[str, list[Any]] = {}
    for variable in variables:
        info = variable._get_save_slice_info()
        name = variable.op.name if info is None else info.full_name
        found.setdefault(name, []).append(variable)
    return found
