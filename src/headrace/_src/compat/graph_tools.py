"""`tensorflow.python.tools`: freeze a graph, and list the tensors of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import text_format

import headrace as tf

__all__ = ["freeze_graph", "optimize_for_inference", "print_tensors_in_checkpoint_file"]


def freeze_graph(
    input_graph: str,
    input_saver: str | None,
    input_binary: bool,
    input_checkpoint: str | None,
    output_node_names: str,
    restore_op_name: str | None,
    filename_tensor_name: str | None,
    output_graph: str,
    clear_devices: bool,
    initializer_nodes: str | None = "",
    variable_names_whitelist: str = "",
    variable_names_blacklist: str = "",
    input_meta_graph: str | None = None,
    input_saved_model_dir: str | None = None,
    saved_model_tags: str = "serve",
    checkpoint_version: Any = None,
) -> Any:
    """Write a graph whose variables are constants, with values of a checkpoint. Return its
    GraphDef.

    restore_op_name, filename_tensor_name: ignored, as in TensorFlow. A saver of its own restores
    the variables of the graph that the checkpoint has.
    """
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        if input_saved_model_dir:
            tf.saved_model.loader.load(session, saved_model_tags.split(","), input_saved_model_dir)
        elif input_meta_graph:
            saver: Any = tf.train.import_meta_graph(input_meta_graph, clear_devices=clear_devices)
            saver.restore(session, input_checkpoint)
        else:
            _import(input_graph, input_binary, clear_devices)
            _restore(session, str(input_checkpoint))
        if initializer_nodes:
            session.run(initializer_nodes.replace(" ", "").split(","))
        frozen = tf.graph_util.convert_variables_to_constants(
            session,
            graph.as_graph_def(),
            output_node_names.replace(" ", "").split(","),
            variable_names_whitelist=_names(variable_names_whitelist),
            variable_names_blacklist=_names(variable_names_blacklist),
        )
    if output_graph:
        Path(output_graph).write_bytes(frozen.SerializeToString())
    return frozen


def _names(text: str) -> list[str] | None:
    return text.replace(" ", "").split(",") if text else None


def _import(path: str, binary: bool, clear_devices: bool) -> None:
    definition = tf.GraphDef()
    if binary:
        definition.ParseFromString(Path(path).read_bytes())
    else:
        text_format.Parse(Path(path).read_text(encoding="utf-8"), definition)
    if clear_devices:
        for node in definition.node:
            node.device = ""
    tf.import_graph_def(definition, name="")


def _restore(session: Any, checkpoint: str) -> None:
    """Assign to the variables of a graph without a saver."""
    reader = tf.train.NewCheckpointReader(checkpoint)
    for name in reader.get_variable_to_shape_map():
        try:
            op = session.graph.get_operation_by_name(name)
        except KeyError:
            continue
        value = reader.get_tensor(name)
        if op.outputs[0].dtype == tf.resource:
            assigned = tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=value)
        else:
            assigned = tf.assign(op.outputs[0], value, validate_shape=False)
        session.run(assigned)


def optimize_for_inference(
    input_graph_def: Any, input_node_names: Any, output_node_names: Any, *rest: Any, **named: Any
) -> Any:
    """Return the part of a graph that its outputs need. Sessions optimise the rest themselves."""
    return tf.graph_util.extract_sub_graph(input_graph_def, list(output_node_names))


def print_tensors_in_checkpoint_file(
    file_name: str,
    tensor_name: str | None = None,
    all_tensors: bool = False,
    all_tensor_names: bool = False,
    count_exclude_pattern: str = "",
) -> None:
    """Print the names of a checkpoint's tensors, the values of one, or those of all."""
    reader = tf.train.NewCheckpointReader(file_name)
    shapes = reader.get_variable_to_shape_map()
    if all_tensors or all_tensor_names:
        for name in sorted(shapes):
            print(f"tensor_name:  {name}")
            if all_tensors:
                print(reader.get_tensor(name))
    elif not tensor_name:
        print(reader.debug_string().decode("utf-8"))
    else:
        print(f"tensor_name:  {tensor_name}")
        print(reader.get_tensor(tensor_name))
