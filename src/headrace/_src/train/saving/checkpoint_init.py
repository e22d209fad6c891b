"""Initialize variables from a checkpoint. In: a map from names in the checkpoint to variables. Out:
initializers that restore them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headrace._src.checkpoint.missing_names import nearest, story
from headrace._src.core import log
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.ops.io.checkpoints import restore_v2
from headrace._src.ops.state import ref_variable_ops, resource_variable_ops
from headrace._src.train.saving.checkpoint_reader import checkpoint_in, load_checkpoint
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.variable import Variable

__all__ = ["init_from_checkpoint", "initialize_with"]

Parts = list[Any]  # a variable, or the parts of a partitioned one
_HOMES = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES, GraphKeys.MODEL_VARIABLES)


@export("train.init_from_checkpoint")
def init_from_checkpoint(
    ckpt_dir_or_file: str | os.PathLike[str], assignment_map: Mapping[str, Any]
) -> None:
    """Replace the initializers of variables so that they restore from a checkpoint.

    assignment_map: from names in the checkpoint to variables (also partitioned ones, or lists of
    their parts) or their names; a scope, `{"old/": "new/"}`, stands for all variables in it, "/"
    for the whole checkpoint.
    """
    prefix = checkpoint_in(ckpt_dir_or_file)
    shapes = load_checkpoint(prefix).get_variable_to_shape_map()
    # Sorted: the names of the graph's nodes must not depend on the order in the dict.
    for saved, target in sorted(assignment_map.items(), key=lambda pair: pair[0]):
        for name, parts in _assignments(saved, target, shapes, prefix):
            _check_shape(name, parts, shapes[name])
            for part in parts:
                _restore_initially(part, prefix, name)


@export("contrib.framework.init_from_checkpoint")
def contrib_init_from_checkpoint(
    checkpoint_dir: str | os.PathLike[str], assignment_map: Mapping[str, Any]
) -> None:
    """Replace the initializers of variables; train.init_from_checkpoint explains the arguments."""
    init_from_checkpoint(checkpoint_dir, assignment_map)


def _assignments(
    saved: str, target: Any, shapes: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Parts]]:
    """Return the names and their variables for one entry of the map."""
    if isinstance(target, str):
        known = _variables_by_name()
        if target not in known:
            yield from _scope_assignments(saved, target, known, shapes, prefix)
            return
        parts = known[target]
    else:
        parts = list(target) if isinstance(target, PartitionedVariable | list) else [target]
    if not all(isinstance(part, Variable) for part in parts):
        raise TypeError(f"assignment_map['{saved}'] is not a variable: {target!r}")
    if saved not in shapes:
        raise ValueError(
            f"Tensor {saved} is not found in {prefix} checkpoint {dict(shapes)}"
            f"{_near(saved, shapes, 'in the checkpoint')}"
        )
    yield saved, parts


def _scope_assignments(
    saved: str, target: str, known: Mapping[str, Parts], shapes: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Parts]]:
    scope = target.rstrip("/")
    if not (saved.endswith("/") and (target.endswith("/") or target == "")):
        raise ValueError(
            f"Assignment map with scope only name {scope} should map to scope only {saved}. "
            "Should be 'scope/': 'other_scope/'."
        )
    inside = {n: parts for n, parts in known.items() if not scope or n.startswith(f"{scope}/")}
    if not inside:  # TensorFlow is silent here
        scopes = {f"{name.rpartition('/')[0]}/" for name in known if "/" in name}
        near = _near(target, scopes, "in the graph")
        log.warning("There is no variable in the scope %r%s", target, near)
    rests = {name: name.removeprefix(f"{scope}/") if scope else name for name in inside}
    names = {name: rest if saved == "/" else saved + rest for name, rest in rests.items()}
    missing = [name for name in names if names[name] not in shapes]
    if missing:
        name, rest = names[missing[0]], rests[missing[0]]
        unused = [n for n in shapes if n not in names.values()]
        raise ValueError(
            f"Tensor {name} ({rest} in {saved}) is not found in {prefix} checkpoint\n  "
            f"{story([names[n] for n in missing], unused)}"
        )
    for name, parts in inside.items():
        yield names[name], parts


def _near(name: str, others: Collection[str], where: str) -> str:
    found = nearest(name, others)
    return f"\n  nearest to {name} {where}: {', '.join(found)}" if found else ""


def _variables_by_name() -> dict[str, Parts]:
    graph = get_default_graph()
    found: dict[str, Parts] = {}
    for variable in dict.fromkeys(v for key in _HOMES for v in graph.get_collection(key)):
        if isinstance(variable, Variable):
            info = variable._get_save_slice_info()
            name = variable.op.name if info is None else info.full_name or ""
            found.setdefault(name, []).append(variable)
    return found


def _check_shape(name: str, parts: Parts, saved: list[int]) -> None:
    info = parts[0]._get_save_slice_info()
    shape = parts[0].shape if info is None else info.full_shape
    if list(shape) != saved if info is not None else not shape.is_compatible_with(saved):
        raise ValueError(
            f"Shape of variable {parts[0].name} ({shape}) doesn't match with shape of tensor "
            f"{name} ({saved}) from checkpoint reader."
        )


def _restore_initially(variable: Any, prefix: str, name: str) -> None:
    """Replace a variable's initializer by one that restores."""
    info = variable._get_save_slice_info()
    spec = "" if info is None else info.spec
    graph = variable.graph
    dtype = variable.dtype.base_dtype
    with graph.as_default(), graph.device(variable.device), graph.device("/device:CPU:0"):
        (value,) = restore_v2(prefix, [name], [spec], [dtype], name="checkpoint_initializer")
        value.set_shape(variable.shape)
    initialize_with(variable, value)


def initialize_with(variable: Any, value: Any) -> None:
    """Replace a variable's initializer by one that assigns a value."""
    graph = variable.graph
    with graph.as_default(), graph.colocate_with(variable.op):
        if isinstance(variable, ResourceVariable):
            made = resource_variable_ops.assign_variable_op(variable.handle, value)
        else:
            made = ref_variable_ops.assign_op(variable._as_graph_element(), value).op
    variable._initializer_op = made
    variable._initial_value = value
