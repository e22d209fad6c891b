"""tf.saved_model.load_v2: objects of a SavedModel. In: a directory that tf.saved_model.save wrote,
here or in TensorFlow. Out: the object that was saved: its variables, lists and dicts, and its
functions.

Variables are restored by their initializers, so tf.global_variables_initializer() restores them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.tensor_proto import make_ndarray
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph_functions import function_named
from headrace._src.graph.import_graph import add_functions
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.to_tensor import constant
from headrace._src.ops.io.checkpoints import restore_v2
from headrace._src.train.saving.checkpoint_reader import CheckpointReader
from headrace._src.train.saving.object_graph import Holder
from headrace._src.train.saving.object_names import object_graph
from headrace._src.train.saving.saved_model import saved_model_names
from headrace._src.train.saving.saved_model.loader import Path, parse_saved_model
from headrace._src.train.saving.saved_model.saved_functions import (
    ConcreteFunction,
    SavedFunction,
    SignatureMap,
)
from headrace._src.train.saving.saved_model.structured_values import from_message
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.resource_variable import ResourceVariable

__all__ = ["SavedObject", "SavedResource", "load_v2"]

_CREATE, _INITIALIZE = "_create_resource", "_initialize"


class SavedObject(Holder):
    """An object of a SavedModel; what it held are its attributes. The object that was saved itself
    also has `signatures`, and the version of TensorFlow that saved it.
    """

    tensorflow_version: str
    tensorflow_git_version: str


class SavedResource:
    """A resource of a SavedModel, such as a table, made by the model's own functions."""

    def __init__(self, handle: Tensor) -> None:
        self.resource_handle = handle


@export("saved_model.load_v2")
def load_v2(export_dir: Path, tags: str | Iterable[str] | None = None) -> Any:
    """Return the object that tf.saved_model.save wrote, in the default graph.

    Its functions add calls to the graph; `signatures` holds those for serving. The initializers of
    its variables restore them. tags: those of the SavedModel, if given.
    """
    directory = os.fsdecode(export_dir)
    saved = parse_saved_model(directory)
    (meta_graph, *others) = saved.meta_graphs
    if others or not meta_graph.object_graph_def.nodes:
        raise ValueError(
            f"The SavedModel at {directory} holds graphs, not objects. Load one of them into a "
            "session: tf.saved_model.load(session, tags, export_dir)"
        )
    wanted = {tags} if isinstance(tags, str) else None if tags is None else set(tags)
    present = list(meta_graph.meta_info_def.tags)
    if wanted is not None and wanted != set(present):
        raise ValueError(
            f"The SavedModel at {directory} has one MetaGraph with tags {present}, but got an "
            f"incompatible argument tags={tags} to tf.saved_model.load. You may omit it, pass "
            "'None', or pass matching tags."
        )
    return _Loader(meta_graph, directory).load()


class _Loader:
    """One call of `load_v2`. State: the objects made so far, by the numbers of their nodes; the
    names that the functions have here; the keys of variables in the checkpoint.
    """

    def __init__(self, meta_graph: Any, directory: str) -> None:
        self._meta_graph = meta_graph
        self._message = meta_graph.object_graph_def
        self._directory = directory
        self._prefix = os.path.join(
            directory, saved_model_names.VARIABLES_DIRECTORY, saved_model_names.VARIABLES_FILENAME
        )
        self._made: dict[int, Any] = {}
        self._functions: dict[str, ConcreteFunction] = {}
        self._names: dict[str, str] = {}
        self._keys: dict[int, str] = {}

    def load(self) -> Any:
        graph = get_default_graph()
        library, self._names = _renamed(self._meta_graph.graph_def.library, graph._functions)
        add_functions(graph, library)
        if any(node.WhichOneof("kind") == "variable" for node in self._message.nodes):
            self._keys = _checkpoint_keys(self._message, self._prefix)
        root = self._object(0)
        if isinstance(root, SavedObject):
            info = self._meta_graph.meta_info_def
            root.tensorflow_version = info.tensorflow_version
            root.tensorflow_git_version = info.tensorflow_git_version
        return root

    def _object(self, number: int) -> Any:
        """Return a node's object, and make what it reaches."""
        if number in self._made:
            return self._made[number]
        node = self._message.nodes[number]
        kind = node.WhichOneof("kind")
        if kind != "user_object":
            found = self._made[number] = getattr(self, f"_{kind}")(number, node)
            return found
        identifier = node.user_object.identifier
        if identifier == "signature_map":
            functions = {c.local_name: self._object(c.node_id) for c in node.children}
            found = self._made[number] = SignatureMap(functions)
            return found
        return self._holder(number, node, identifier)

    def _holder(self, number: int, node: Any, identifier: str) -> Any:
        if identifier == "trackable_list_wrapper":
            found: Any = []
            self._made[number] = found
            indexed = {int(c.local_name): c for c in node.children if c.local_name.isdigit()}
            found.extend(self._object(indexed[i].node_id) for i in sorted(indexed))
        elif identifier == "trackable_dict_wrapper":
            found = self._made[number] = {}
            found.update((c.local_name, self._object(c.node_id)) for c in node.children)
        else:
            found = self._made[number] = SavedObject()
            for child in node.children:
                setattr(found, child.local_name, self._object(child.node_id))
        return found

    # -- Nodes by kind -----------------------------------------------------------------------------

    def _variable(self, number: int, node: Any) -> Any:
        saved = node.variable
        if number not in self._keys:
            raise ValueError(
                f"The checkpoint {self._prefix} has no value for the variable '{saved.name}'"
            )
        graph = get_default_graph()
        key, shape = self._keys[number], TensorShape(saved.shape)

        def restored() -> Tensor:
            (value,) = restore_v2(constant(self._prefix), [key], [""], [saved.dtype])
            value.set_shape(shape)
            return value

        made = ResourceVariable(
            restored,
            trainable=saved.trainable,
            name=saved.name or None,
            dtype=saved.dtype,
            validate_shape=shape.is_fully_defined(),
            synchronization=VariableSynchronization(saved.synchronization),
            aggregation=VariableAggregation(saved.aggregation),
        )
        # As in TensorFlow, a loaded variable is trained only where a program lists it.
        listed = graph.get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        listed[:] = [v for v in listed if v is not made]
        return made

    def _function(self, number: int, node: Any) -> SavedFunction:
        functions = [self._concrete(name) for name in node.function.concrete_functions]
        spec = from_message(node.function.function_spec.fullargspec)
        return SavedFunction(functions, spec, node.function)

    def _bare_concrete_function(self, number: int, node: Any) -> ConcreteFunction:
        saved = node.bare_concrete_function
        function = self._concrete(saved.concrete_function_name)
        return function.take_names(saved.argument_keywords, saved.allowed_positional_arguments)

    def _concrete(self, name: str) -> ConcreteFunction:
        if name not in self._functions:
            saved = self._message.concrete_functions[name]
            self._functions[name] = ConcreteFunction(
                function_named(get_default_graph(), self._names[name]),
                [(found := self._object(n), _tensor(found)) for n in saved.bound_inputs],
                from_message(saved.canonicalized_input_signature),
                from_message(saved.output_signature),
            )
        return self._functions[name]

    def _asset(self, number: int, node: Any) -> Tensor:
        file = self._meta_graph.asset_file_def[node.asset.asset_file_def_index].filename
        folder = os.path.join(self._directory, saved_model_names.ASSETS_DIRECTORY)
        made = constant(os.path.join(folder, file), name="asset_path")
        get_default_graph().add_to_collection(GraphKeys.ASSET_FILEPATHS, made)
        return made

    def _constant(self, number: int, node: Any) -> Tensor:
        name = node.constant.operation
        value = next(n for n in self._meta_graph.graph_def.node if n.name == name).attr["value"]
        return constant(make_ndarray(value.tensor), name=name)

    def _resource(self, number: int, node: Any) -> SavedResource:
        """Call the function that makes the resource; the one that fills it is run by
        tf.tables_initializer().
        """
        children = {c.local_name: c.node_id for c in node.children}
        with get_default_graph().device(node.resource.device or None):
            made = self._made[number] = SavedResource(self._object(children[_CREATE])())
            if _INITIALIZE in children:
                (function,) = self._object(children[_INITIALIZE]).concrete_functions
                get_default_graph().add_to_collection(
                    GraphKeys.TABLE_INITIALIZERS, function.add([])
                )
        return made


def _tensor(value: Any) -> Tensor:
    """Return the tensor that a function captures of an object."""
    if isinstance(value, Tensor):
        return value
    return value.resource_handle if isinstance(value, SavedResource) else value.handle


def _renamed(library: Any, taken: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """Return a library whose functions have names that aren't taken, and the names here by those in
    the file.
    """
    names: dict[str, str] = {}
    used = set(taken)
    for function in library.function:
        name, count = function.signature.name, 0
        while name in used:
            count += 1
            name = f"{function.signature.name}_{count}"
        used.add(name)
        names[function.signature.name] = name
    result: Any = proto.FunctionDefLibrary()
    result.CopyFrom(library)
    for function in result.function:
        function.signature.name = names[function.signature.name]
        for node in function.node_def:
            node.op = names.get(node.op, node.op)
            for value in node.attr.values():
                is_list = value.WhichOneof("value") == "list"
                for called in value.list.func if is_list else [value.func]:
                    if called.name in names:
                        called.name = names[called.name]
    for pair in result.gradient:
        pair.function_name = names.get(pair.function_name, pair.function_name)
        pair.gradient_func = names.get(pair.gradient_func, pair.gradient_func)
    return result, names


def _checkpoint_keys(saved: Any, prefix: str) -> dict[int, str]:
    """Return the key of each variable's value, by the number of its node: both messages are
    followed from their roots by the names of attributes.
    """
    message = object_graph(CheckpointReader(prefix))
    if message is None:
        raise ValueError(f"The checkpoint {prefix} doesn't describe the objects that it holds")
    pairs = {0: 0}
    waiting = [0]
    for number in waiting:  # which grows
        names = {c.local_name: c.node_id for c in message.nodes[pairs[number]].children}
        for child in saved.nodes[number].children:
            if child.local_name in names and child.node_id not in pairs:
                pairs[child.node_id] = names[child.local_name]
                waiting.append(child.node_id)
    for number in waiting:
        there = message.nodes[pairs[number]].slot_variables
        slots = {(s.original_variable_node_id, s.slot_name): s for s in there}
        for slot in saved.nodes[number].slot_variables:
            match = slots.get((pairs.get(slot.original_variable_node_id), slot.slot_name))
            if match is not None:
                pairs[slot.slot_variable_node_id] = match.slot_variable_node_id
    attributes = {number: message.nodes[other].attributes for number, other in pairs.items()}
    return {number: found[0].checkpoint_key for number, found in attributes.items() if found}
