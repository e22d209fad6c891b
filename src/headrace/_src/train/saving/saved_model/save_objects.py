"""tf.saved_model.save: objects as a SavedModel. In: an object that holds variables, and the default
session, which has their values. Out: a directory that tf.saved_model.load_v2 reads, here and in
TensorFlow, as does tf.saved_model.load.

Functions come from SavedModels: an object that was loaded can be saved again, with its functions
and signatures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.graph_io import write_message
from headrace._src.graph.import_graph import add_functions
from headrace._src.ops.array.constants_and_placeholders import placeholder
from headrace._src.ops.base.define import b
from headrace._src.ops.control.grouping import no_op
from headrace._src.train.saving.object_checkpoint import session_for, write_objects
from headrace._src.train.saving.object_graph import children, is_stored, is_trackable
from headrace._src.train.saving.saved_model import saved_model_names
from headrace._src.train.saving.saved_model.saved_functions import (
    ConcreteFunction,
    SavedFunction,
    SignatureMap,
)
from headrace._src.train.saving.saved_model.signatures import (
    build_signature_def,
    build_tensor_info,
)
from headrace._src.train.saving.saved_model.structured_values import to_message
from headrace._src.train.saving.saver import Saver
from headrace._src.variables.resource_variable import ResourceVariable
from headrace._src.variables.variable import Variable

__all__ = ["save"]

_SIGNATURES = "signatures"
_KINDS = {
    list: "trackable_list_wrapper",
    dict: "trackable_dict_wrapper",
    SignatureMap: "signature_map",
}


@export("saved_model.save", "saved_model.experimental.save")
def save(obj: Any, export_dir: str | os.PathLike[str], signatures: Any = None) -> None:
    """Write an object that holds variables, such as a tf.Module or a tf.train.Checkpoint, with
    their values in the default session.

    signatures: functions for serving: one, or a dict of them, out of a loaded SavedModel's
    `signatures`.
    """
    if not is_trackable(obj):
        raise ValueError(f"Expected a Trackable object for export, got {obj}.")
    session = session_for(None)
    listed = _signatures(signatures)
    directory = os.fspath(export_dir)
    for folder in (saved_model_names.VARIABLES_DIRECTORY, saved_model_names.ASSETS_DIRECTORY):
        os.makedirs(os.path.join(directory, folder), exist_ok=True)
    with session.graph.as_default():
        nodes = _Nodes(obj, listed)
        message = nodes.message()
    prefix = os.path.join(
        directory, saved_model_names.VARIABLES_DIRECTORY, saved_model_names.VARIABLES_FILENAME
    )
    mentioned = [_SIGNATURES] if listed else []  # TensorFlow looks for them in the checkpoint
    stored = write_objects(obj, prefix, session, {}, mentioned)
    meta_graph = _serving_graph(session.graph, stored, listed)
    meta_graph.object_graph_def.CopyFrom(message)
    saved = proto.SavedModel(
        saved_model_schema_version=saved_model_names.SAVED_MODEL_SCHEMA_VERSION
    )
    saved.meta_graphs.append(meta_graph)
    path = os.path.join(directory, saved_model_names.SAVED_MODEL_FILENAME_PB)
    write_message(path, saved, as_text=False)


def _signatures(given: Any) -> SignatureMap:
    """Return the signatures by name."""
    if given is None:
        return SignatureMap({})
    if not isinstance(given, Mapping):
        given = {saved_model_names.DEFAULT_SERVING_SIGNATURE_DEF_KEY: given}
    for function in given.values():
        if not isinstance(function, ConcreteFunction) or not isinstance(
            function.structured_outputs, dict
        ):
            raise ValueError(
                f"Expected a TensorFlow function to generate a signature for, but got {function}. "
                "Signatures are those of a SavedModel that tf.saved_model.load_v2 loaded; "
                "tf.saved_model.simple_save writes tensors of a graph for serving."
            )
    return SignatureMap(given)


class _Nodes:
    """The objects that an object reaches, functions included, each with its children by name.

    State: the objects, nearest first; their numbers; their children.
    """

    def __init__(self, root: Any, signatures: SignatureMap) -> None:
        self._objects: list[Any] = [root]
        self._numbers = {id(root): 0}
        self._links: list[list[tuple[str, int]]] = []
        for value in self._objects:  # which grows
            found = self._children(value)
            if value is root:
                found.pop(_SIGNATURES, None)  # those of the model that it was loaded from
                found |= {_SIGNATURES: signatures} if signatures else {}
            self._links.append([(name, self._number(child)) for name, child in found.items()])

    def _children(self, value: Any) -> dict[str, Any]:
        if isinstance(value, SignatureMap):
            return dict(value)
        functions = {
            name: v
            for name, v in getattr(value, "__dict__", {}).items()
            if isinstance(v, SavedFunction | SignatureMap)
        }
        return children(value) | functions

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return self._numbers[id(value)]

    def message(self) -> Any:
        """Return the SavedObjectGraph."""
        result: Any = proto.SavedObjectGraph()
        for value, links in zip(self._objects, self._links, strict=True):
            node = result.nodes.add()
            for name, number in links:
                node.children.add(node_id=number, local_name=name)
            self._describe(node, value, result.concrete_functions)
        return result

    def _describe(self, node: Any, value: Any, functions: Any) -> None:
        if isinstance(value, Variable):
            node.variable.dtype = value.dtype.base_dtype.as_datatype_enum
            node.variable.shape.CopyFrom(value.shape.as_proto())
            node.variable.trainable = bool(value.trainable)
            node.variable.synchronization = value.synchronization.value
            node.variable.aggregation = value.aggregation.value
            node.variable.name = value.op.name
        elif isinstance(value, SavedFunction):
            node.function.CopyFrom(value.message)
            del node.function.concrete_functions[:]
            for function in value.concrete_functions:
                node.function.concrete_functions.append(function.name)
                self._describe_function(functions[function.name], function)
        elif isinstance(value, ConcreteFunction):
            node.bare_concrete_function.concrete_function_name = value.name
            node.bare_concrete_function.argument_keywords.extend(value.keywords)
            node.bare_concrete_function.allowed_positional_arguments = value.positional
            self._describe_function(functions[value.name], value)
        elif is_stored(value):
            raise ValueError(
                f"{value} can't be part of a SavedModel: its functions can't be saved. Use "
                "tf.train.Checkpoint, or tf.saved_model.simple_save"
            )
        else:
            kinds = (name for kind, name in _KINDS.items() if isinstance(value, kind))
            node.user_object.identifier = next(kinds, "_generic_user_object")
            node.user_object.version.producer = 1
            node.user_object.version.min_consumer = 1

    def _describe_function(self, message: Any, function: ConcreteFunction) -> None:
        for captured, _ in function.captures:
            if id(captured) not in self._numbers:
                raise AssertionError(
                    "Tried to export a function which references untracked object "
                    f"{captured}. TensorFlow objects (e.g. tf.Variable) captured by functions "
                    "must be tracked by assigning them to an attribute of a tracked object or "
                    "assigned to an attribute of the main object directly."
                )
            message.bound_inputs.append(self._numbers[id(captured)])
        message.canonicalized_input_signature.CopyFrom(
            to_message(function.structured_input_signature)
        )
        message.output_signature.CopyFrom(to_message(function.structured_outputs))


def _serving_graph(source: Graph, stored: Mapping[str, Any], signatures: SignatureMap) -> Any:
    """Return the MetaGraphDef of a graph that has the variables, nodes that save and restore them,
    and a call of each signature's function.
    """
    with Graph().as_default() as graph:
        add_functions(graph, source.as_graph_def().library)
        handles: dict[int, Any] = {}
        saved = {}
        for key, variable in stored.items():
            with graph.device(variable.device or None):
                saved[key] = _copied(variable)
            handles[id(variable)] = saved[key].handle
        described = {
            name: _served(name, function, handles) for name, function in signatures.items()
        }
        init = no_op(name="NoOp")
        graph.add_to_collection(saved_model_names.MAIN_OP_KEY, init)
        saver = Saver(saved, allow_empty=True, sharded=True)
        meta_graph = saver.export_meta_graph(strip_default_attrs=False)
    meta_graph.meta_info_def.tags.append(saved_model_names.SERVING)
    for name, signature in described.items():
        meta_graph.signature_def[name].CopyFrom(signature)
    return meta_graph


def _copied(variable: Any) -> Any:
    """Return a variable of the same name, type and shape in the default graph."""
    sizes = [0 if size is None else size for size in variable.shape.as_list()]
    return ResourceVariable(
        lambda: b.zeros(sizes, variable.dtype.base_dtype),
        trainable=variable.trainable,
        name=variable.op.name,
        validate_shape=variable.shape.is_fully_defined(),
    )


def _served(name: str, function: ConcreteFunction, handles: Mapping[int, Any]) -> Any:
    """Add a call with placeholders; return its SignatureDef."""
    (_, keywords) = function.structured_input_signature
    inputs = {
        key: placeholder(keywords[key].dtype, keywords[key].shape, name=f"{name}_{key}")
        for key in sorted(keywords)
    }
    captures = [(value, handles[id(value)]) for value, _ in function.captures]
    called = ConcreteFunction(
        get_default_graph()._functions[function.name],
        captures,
        function.structured_input_signature,
        function.structured_outputs,
    ).call(list(inputs.values()))
    return build_signature_def(
        {key: build_tensor_info(tensor) for key, tensor in inputs.items()},
        {key: build_tensor_info(tensor) for key, tensor in called.items()},
        saved_model_names.PREDICT_METHOD_NAME,
    )
