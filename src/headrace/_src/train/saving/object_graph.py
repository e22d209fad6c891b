"""The graph of objects that hold variables. In: an object. Out: everything it reaches, by attribute
names; the message that describes it in a checkpoint; and the objects that a checkpoint's message
refers to.

Object-based checkpoints find a variable by the path that leads to it (`model/layers/0/kernel`), not
by its own name: so a program may rename it, or create it later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.layers.layer import Layer
from headrace._src.ops.state.table_classes import ChangeableTable, LookupInterface
from headrace._src.train.optimizers.optimizer import Optimizer
from headrace._src.variables.module import OwnerModule
from headrace._src.variables.variable import Variable

__all__ = [
    "Holder",
    "PythonState",
    "Reached",
    "children",
    "is_stored",
    "is_trackable",
    "matched",
    "reach",
    "stored_name",
]

# The attribute of a checkpoint under which the value of an object is stored.
_VALUE = "VARIABLE_VALUE"
_TABLE = "table"
_STATE = "py_state"


class Holder:
    """An object whose attributes are followed because they may hold variables."""

    def _children(self) -> dict[str, Any]:
        return {name: v for name, v in vars(self).items() if name[0] != "_" and holds(v)}


@export("train.experimental.PythonState")
class PythonState(ABC):
    """State of a Python object that a tf.train.Checkpoint stores as a string. Saving calls
    `serialize`; `Checkpoint.restore` calls `deserialize` at once.
    """

    @abstractmethod
    def serialize(self) -> str | bytes:
        """Return the state as a string."""

    @abstractmethod
    def deserialize(self, string_value: bytes) -> None:
        """Take the state that `serialize` returned."""


def is_trackable(value: Any) -> bool:
    """Return whether an object can be part of a checkpoint."""
    kinds = Holder | OwnerModule | Variable | Optimizer | Layer | LookupInterface | PythonState
    return isinstance(value, kinds)


def is_stored(value: Any) -> bool:
    """Return whether a checkpoint stores a value for an object: a variable, a mutable table or a
    Python state.
    """
    return isinstance(value, Variable | ChangeableTable | PythonState)


def stored_name(value: Any) -> str:
    """Return the name under which name-based savers store an object."""
    if isinstance(value, PythonState):
        return ""  # they have none
    return value.op.name if isinstance(value, Variable) else value.name


def holds(value: Any) -> bool:
    """Return whether a value may hold variables."""
    return is_trackable(value) or isinstance(value, list | tuple | dict)


def children(value: Any) -> dict[str, Any]:
    """Return the objects reached from an object in one step, by name."""
    if isinstance(value, Holder):
        return value._children()
    if isinstance(value, OwnerModule):
        return {name: v for name, v in vars(value).items() if holds(v)}
    if isinstance(value, Optimizer):
        graph = get_default_graph()
        return {name: v for (name, owner), v in value._non_slots.items() if owner is graph}
    if isinstance(value, Layer):
        attributes = {k: v for k, v in vars(value).items() if isinstance(v, Layer)}
        return _weights(value) | attributes
    if isinstance(value, Mapping):
        return {str(key): v for key, v in value.items() if holds(v)}
    if isinstance(value, list | tuple):
        return {str(i): v for i, v in enumerate(value) if holds(v)}
    return {}


def _weights(layer: Layer) -> dict[str, Any]:
    if layer._scope is None:
        return {}
    start = f"{layer.scope_name}/"
    weights = layer._trainable_weights + layer._non_trainable_weights
    return {variable.op.name.removeprefix(start): variable for variable in weights}


def _escaped(name: str) -> str:
    return name.replace(".", "..").replace("/", ".S")


class Reached(NamedTuple):
    """The objects that an object reaches, nearest first; the variables and tables to save, by their
    keys in the checkpoint; and the message that describes how they are connected.
    """

    objects: list[Any]
    variables: dict[str, Any]
    message: Any


def reach(root: Any) -> Reached:
    """Follow an object's attributes, breadth first; slots of optimizers come last."""
    objects, paths, links = [root], {id(root): ""}, []
    numbers = {id(root): 0}
    for value in objects:  # which grows
        links.append([])
        for name, child in children(value).items():
            if id(child) not in numbers:
                numbers[id(child)] = len(objects)
                start = paths[id(value)]
                paths[id(child)] = f"{start}/{_escaped(name)}" if start else _escaped(name)
                objects.append(child)
            links[-1].append((name, numbers[id(child)]))
    message: Any = proto.TrackableObjectGraph()
    variables: dict[str, Any] = {}
    for value, found in zip(objects, links, strict=True):
        node = message.nodes.add()
        for name, number in found:
            node.children.add(node_id=number, local_name=name)
        if is_stored(value):
            _describe(node, value, paths[id(value)], variables)
    count = len(objects)
    for number, optimizer in enumerate(objects[:count]):
        for name, original, slot in _slots(optimizer, objects[:count]):
            path = f"{paths[id(original)]}/.OPTIMIZER_SLOT/{paths[id(optimizer)]}/{_escaped(name)}"
            message.nodes[number].slot_variables.add(
                original_variable_node_id=numbers[id(original)],
                slot_name=name,
                slot_variable_node_id=len(objects),
            )
            objects.append(slot)
            _describe(message.nodes.add(), slot, path, variables)
    return Reached(objects, variables, message)


def _describe(node: Any, stored: Any, path: str, variables: dict[str, Any]) -> None:
    kinds = {Variable: _VALUE, PythonState: _STATE}
    attribute = next((name for kind, name in kinds.items() if isinstance(stored, kind)), _TABLE)
    key = f"{path}/.ATTRIBUTES/{attribute}"
    node.attributes.add(name=attribute, full_name=stored_name(stored), checkpoint_key=key)
    variables[key] = stored


def _slots(optimizer: Any, objects: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    if not isinstance(optimizer, Optimizer):
        return
    for name in optimizer.get_slot_names():
        for value in objects:
            slot = optimizer.get_slot(value, name) if isinstance(value, Variable) else None
            if slot is not None:
                yield name, value, slot


def matched(root: Any, message: Any) -> dict[int, Any]:
    """Return the object that each node of a message refers to, where it exists."""
    found = {0: root}
    waiting = [0]
    for number in waiting:  # which grows
        here = children(found[number])
        for child in message.nodes[number].children:
            if child.local_name in here and child.node_id not in found:
                found[child.node_id] = here[child.local_name]
                waiting.append(child.node_id)
    for number, optimizer in list(found.items()):
        if not isinstance(optimizer, Optimizer):
            continue
        for slot in message.nodes[number].slot_variables:
            original = found.get(slot.original_variable_node_id)
            value = None if original is None else optimizer.get_slot(original, slot.slot_name)
            if value is not None:
                found[slot.slot_variable_node_id] = value
    return found
