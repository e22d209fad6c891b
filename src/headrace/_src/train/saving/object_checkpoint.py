"""tf.train.Checkpoint: object-based checkpoints. In: objects that hold variables. Out: a TensorFlow
checkpoint that also describes how the objects are connected; and back.

A checkpoint is matched to a program when its values are used, not when `restore` is called: so
variables and slots made in between are restored too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace._src.checkpoint.slice_files import no_files
from headrace._src.core import dtypes
from headrace._src.core.export import export
from headrace._src.graph.default import default_session, get_default_graph
from headrace._src.graph.operation import Operation
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.control.grouping import no_op
from headrace._src.train.saving.checkpoint_reader import CheckpointReader
from headrace._src.train.saving.checkpoint_state import has_checkpoint, write_state
from headrace._src.train.saving.object_graph import (
    Holder,
    PythonState,
    is_stored,
    is_trackable,
    matched,
    reach,
    stored_name,
)
from headrace._src.train.saving.object_names import OBJECT_GRAPH, object_graph
from headrace._src.train.saving.saveables import SaveableObject, SaveSpec
from headrace._src.train.saving.saver import Saver
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.variable import Variable

__all__ = ["Checkpoint", "session_for", "write_objects"]


def session_for(session: Any) -> Any:
    """Return the given session, or the default one."""
    found = session or default_session()
    if found is None:
        raise ValueError(
            "the values of variables are in a session: give one, or open one with `with`"
        )
    return found


class _Text(SaveableObject):
    """A string that is fed and saved beside the variables: the message that describes the objects,
    or the state of a Python object.
    """

    def __init__(self, key: str, name: str) -> None:
        with get_default_graph().device("/device:CPU:0"):
            self.fed = placeholder(dtypes.string, shape=[], name=name)
        super().__init__(self.fed, [SaveSpec(self.fed, "", key, dtypes.string)], key)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> Operation:
        return no_op()


@export("train.Checkpoint")
class Checkpoint(Holder):
    """Saves and restores the variables and tables that are reached from its attributes: these,
    layers, optimizers with their slots, other Checkpoints, and lists and dicts of all of them.

    The arguments become attributes. State: the nodes that save, rebuilt when the variables change;
    `save_counter`, the variable that counts the saves, and the operation that increments it.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._save_counter: Any = None
        self._count: Any = None
        self._savers: Savers = {}
        for name, value in sorted(kwargs.items()):
            if not is_trackable(value):
                raise ValueError(
                    "`Checkpoint` was expecting a trackable object (an object derived from "
                    f"`TrackableBase`), got {value}: a variable, a table, a layer, an optimizer or "
                    "another Checkpoint. Lists and dicts of these can be set as attributes."
                )
            setattr(self, name, value)

    def _children(self) -> dict[str, Any]:
        counter = {} if self._save_counter is None else {"save_counter": self._save_counter}
        return super()._children() | counter

    @property
    def save_counter(self) -> Any:
        """The variable that counts calls of `save`; it's created on first use."""
        if self._save_counter is None:
            graph = get_default_graph()
            with graph.control_dependencies(None), graph.device("/device:CPU:0"):
                self._save_counter = ResourceVariable(
                    np.int64(0), name="save_counter", dtype=dtypes.int64, trainable=False
                )
        return self._save_counter

    # -- Saving ------------------------------------------------------------------------------------

    def write(self, file_prefix: str | os.PathLike[str], session: Any = None) -> str:
        """Save to exactly `file_prefix`, without counting; return the prefix."""
        prefix = os.fspath(file_prefix)
        write_objects(self, prefix, session_for(session), self._savers)
        return prefix

    def save(self, file_prefix: str | os.PathLike[str], session: Any = None) -> str:
        """Count this save, save to `file_prefix`-count, and record it as the latest checkpoint of
        its directory; return its prefix.
        """
        session = session_for(session)
        count = self.count_save(session)
        path = self.write(f"{os.fspath(file_prefix)}-{count}", session)
        write_state(os.path.dirname(path), path, [path], None, relative=True)
        return path

    def count_save(self, session: Any) -> int:
        """Increment `save_counter`, which starts at zero; return the new value."""
        is_new = self._save_counter is None
        with session.graph.as_default():
            counter = self.save_counter
            if is_new:
                session.run(counter.initializer)
            if self._count is None:
                self._count = counter.assign_add(1, read_value=True)
        return int(session.run(self._count))

    # -- Restoring ---------------------------------------------------------------------------------

    def restore(self, save_path: str | os.PathLike[str] | None) -> Any:
        """Return a status whose `run_restore_ops` or `initialize_or_restore` restores the
        variables, and whose assertions check that the checkpoint matches. If the path is None,
        there is no checkpoint: the variables can only be initialized.

        A checkpoint of tf.train.Saver is restored by the variables' names.
        """
        counter = self.save_counter
        if save_path is None:
            return InitializationOnlyStatus(self)
        prefix = os.fspath(save_path)
        if not has_checkpoint(prefix):
            raise no_files(prefix)
        status = CheckpointLoadStatus(self, prefix, counter)
        status.restore_python_states()
        return status


Savers = dict[Any, tuple[Saver, dict[str, _Text]]]


def write_objects(
    root: Any, prefix: str, session: Any, savers: Savers, without_values: Iterable[str] = ()
) -> dict[str, Any]:
    """Save what an object reaches to exactly `prefix`; return it by its keys. `savers` keeps the
    nodes that save for the next time, as long as it reaches the same. without_values: names of
    further attributes, which hold no variables but are mentioned.
    """
    with session.graph.as_default():
        reached = reach(root)
        saver, texts = _saver(session.graph, reached.variables, savers)
    for name in without_values:
        number = len(reached.message.nodes)
        reached.message.nodes[0].children.add(node_id=number, local_name=name)
        reached.message.nodes.add()
    states = python_states(reached.variables)
    values: dict[str, Any] = {key: state.serialize() for key, state in states.items()}
    values[OBJECT_GRAPH] = reached.message.SerializeToString(deterministic=True)
    definition = saver.saver_def
    feeds = {text.fed: values[key] for key, text in texts.items()}
    session.run(definition.save_tensor_name, {definition.filename_tensor_name: prefix, **feeds})
    return reached.variables


def _saver(graph: Any, variables: dict[str, Any], savers: Savers) -> tuple[Saver, dict[str, _Text]]:
    key = graph, *variables, *map(id, variables.values())
    if key not in savers:
        texts = {OBJECT_GRAPH: _Text(OBJECT_GRAPH, "object_graph")}
        texts |= {name: _Text(name, "py_state") for name in python_states(variables)}
        saver = Saver({**variables, **texts}, name="save_objects")
        savers.clear()
        savers[key] = (saver, texts)
    return savers[key]


def python_states(stored: Mapping[str, Any]) -> dict[str, PythonState]:
    """Return the Python states among stored objects, by their keys."""
    return {key: value for key, value in stored.items() if isinstance(value, PythonState)}


class _RestorePlan(NamedTuple):
    """How a checkpoint matches the current program: variables by key, variables without a value in
    it, and values in it without a variable.
    """

    variables: dict[str, Any]
    unbound: list[Any]
    unused: list[str]


def _initializers(stored: Iterable[Any]) -> list[Any]:
    """Return the initializers of variables; mutable tables start empty."""
    return [v.initializer for v in stored if isinstance(v, Variable)]


def _keys(name: str, stored: Any) -> list[str]:
    """Return the names under which a name-based saver stores a variable or a table."""
    return [name] if isinstance(stored, Variable) else [f"{name}-keys", f"{name}-values"]


class InitializationOnlyStatus:
    """The result of `restore(None)`: nothing to restore, but variables to initialize."""

    def __init__(self, root: Checkpoint) -> None:
        self._root = root

    def assert_consumed(self) -> Any:
        """Fail: there is no checkpoint."""
        raise AssertionError("No checkpoint specified (save_path=None); nothing is being restored.")

    assert_existing_objects_matched = assert_consumed
    assert_nontrivial_match = assert_consumed

    def expect_partial(self) -> Any:
        """Return this status."""
        return self

    def run_restore_ops(self, session: Any = None) -> None:
        """Fail: there is no checkpoint."""
        raise AssertionError(
            "No checkpoint specified, so no restore ops are available (save_path=None to "
            "Saver.restore)."
        )

    def initialize_or_restore(self, session: Any = None) -> None:
        """Initialize all variables that the Checkpoint reaches."""
        session = session_for(session)
        with session.graph.as_default():
            session.run(_initializers(reach(self._root).variables.values()))


class CheckpointLoadStatus:
    """The result of `restore`: the checkpoint, and how it matches the current program.

    State: the nodes that restore, rebuilt when the variables change.
    """

    def __init__(self, root: Checkpoint, prefix: str, counter: Any) -> None:
        self._root = root
        self._prefix = prefix
        self._counter = counter
        self._reader = CheckpointReader(prefix)
        self._savers: dict[Any, Saver] = {}

    def _plan(self) -> _RestorePlan:
        reached = reach(self._root)
        message = object_graph(self._reader)
        return self._by_names(reached) if message is None else self._by_objects(reached, message)

    def _by_objects(self, reached: Any, message: Any) -> _RestorePlan:
        found = matched(self._root, message)
        variables, unused = {}, []
        for number, node in enumerate(message.nodes):
            for attribute in node.attributes:
                if is_stored(found.get(number)):
                    variables[attribute.checkpoint_key] = found[number]
                elif not attribute.optional_restore:
                    way = attribute.checkpoint_key.partition("/.ATTRIBUTES")[0].replace("/", ".")
                    unused.append(f"(root).{way}: {node}")
        return self._planned(reached, variables, unused)

    def _by_names(self, reached: Any) -> _RestorePlan:
        there = self._reader.get_variable_to_shape_map()
        named = {stored_name(v): v for v in reached.variables.values()}
        keys = {name: _keys(name, v) for name, v in named.items()}
        expected = {key for found in keys.values() for key in found}
        unused = [name for name in there if name not in expected]
        bound = {n: v for n, v in named.items() if all(key in there for key in keys[n])}
        return self._planned(reached, bound, unused)

    def _planned(self, reached: Any, variables: dict[str, Any], unused: list[str]) -> _RestorePlan:
        bound = {id(v) for v in (*variables.values(), self._counter)}
        unbound = [v for v in reached.variables.values() if id(v) not in bound]
        return _RestorePlan(variables, unbound, unused)

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Fail unless each variable of the program has a value in the checkpoint, and each value a
        variable; return this status.
        """
        self.assert_existing_objects_matched()
        for unused in self._plan().unused:
            raise AssertionError(f"Unresolved object in checkpoint {unused}")
        return self

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Fail unless each variable of the program has a value in the checkpoint; return this
        status.
        """
        if unbound := self._plan().unbound:
            raise AssertionError(
                "Some Python objects were not bound to checkpointed values, likely due to changes "
                f"in the Python program: {unbound}"
            )
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """Fail if no variable but the counter of saves has a value in the checkpoint; return this
        status.
        """
        if all(v is self._counter for v in self._plan().variables.values()):
            raise AssertionError(
                "Nothing except the root object matched a checkpointed value. Typically this means "
                "that the checkpoint does not match the Python program. The following objects have "
                f"no matching checkpointed value: {self._plan().unbound}"
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Return this status: mismatches are never warned about."""
        return self

    def restore_python_states(self) -> None:
        """Let Python states take their values."""
        for key, state in python_states(self._plan().variables).items():
            state.deserialize(np.asarray(self._reader.get_tensor(key)).item())

    def run_restore_ops(self, session: Any = None) -> None:
        """Restore the variables that are in the checkpoint."""
        session = session_for(session)
        with session.graph.as_default():
            found = self._plan().variables
            variables = {k: v for k, v in found.items() if not isinstance(v, PythonState)}
            if all(v is not self._counter for v in variables.values()):
                session.run(self._counter.initializer)  # for a checkpoint that wasn't counted
            key = session.graph, *variables, *map(id, variables.values())
            if variables and key not in self._savers:
                self._savers = {key: Saver(variables, name="restore_objects")}
        if variables:
            self._savers[key].restore(session, self._prefix)

    def initialize_or_restore(self, session: Any = None) -> None:
        """Restore, and initialize all other variables that the Checkpoint reaches."""
        session = session_for(session)
        with session.graph.as_default():
            session.run(_initializers(self._plan().unbound))
        self.run_restore_ops(session)
