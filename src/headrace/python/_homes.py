"""Names below `tensorflow.python` that have no public name: where Headrace has them.

In: "module.name". Out: "tf." and a chain of attributes, or "package.module:attribute".
"""

__all__ = ["HOMES", "LACKING"]

_OWN = "headrace.python._functions"
_REFERENCES = ["bool", "complex64", "complex128", "float16", "float32", "float64", "int8", "int16"]
_REFERENCES += ["int32", "int64", "string", "uint8", "uint16", "bfloat16"]
_INSPECT = ["currentframe", "getcallargs", "getdoc", "getfile", "getframeinfo"]
_INSPECT += ["getmembers", "getmodule", "getmro", "getsource", "getsourcefile", "getsourcelines"]
_INSPECT += ["isbuiltin", "isclass", "isframe", "isfunction", "isgenerator", "isgeneratorfunction"]
_INSPECT += ["ismethod", "ismodule", "isroutine", "stack"]

HOMES = {
    "client.device_lib.list_local_devices": f"{_OWN}:list_local_devices",
    "client.session.BaseSession": "headrace._src.session.session:BaseSession",
    "client.session.register_session_run_conversion_functions": (
        "headrace._src.session.fetches:register_session_run_conversion_functions"
    ),
    "client.timeline.Timeline": "headrace._src.session.chrome_timeline:Timeline",
    "eager.context.in_eager_mode": "tf.executing_eagerly",
    "framework.device.merge_device": "headrace._src.core.device_names:merge_device",
    "framework.function.Defun": "headrace._src.gradients.function_gradients:Defun",
    "framework.graph_util_impl._bfs_for_reachable_nodes": f"{_OWN}:reachable_nodes",
    "framework.graph_util_impl._extract_graph_summary": f"{_OWN}:graph_summary",
    "framework.op_def_registry.get_registered_ops": f"{_OWN}:get_registered_ops",
    "framework.ops.RegisterShape": f"{_OWN}:RegisterShape",
    "framework.ops.convert_n_to_tensor": "headrace._src.ops.base.to_tensor:convert_n_to_tensor",
    "framework.ops.get_all_collection_keys": f"{_OWN}:get_all_collection_keys",
    "framework.ops.get_name_scope": f"{_OWN}:get_name_scope",
    "framework.sparse_tensor.is_sparse": f"{_OWN}:is_sparse",
    "framework.tensor_shape.as_dimension": f"{_OWN}:as_dimension",
    "framework.tensor_shape.as_shape": f"{_OWN}:as_shape",
    "framework.tensor_shape.matrix": f"{_OWN}:matrix",
    "framework.tensor_shape.scalar": f"{_OWN}:scalar",
    "framework.tensor_shape.unknown_shape": f"{_OWN}:unknown_shape",
    "framework.tensor_shape.vector": f"{_OWN}:vector",
    "framework.tensor_util.constant_value_as_shape": (
        "headrace._src.graph.inference:constant_value_as_shape"
    ),
    "layers.utils.constant_value": "tf.contrib.framework.smart_constant_value",
    "layers.utils.smart_cond": "tf.contrib.framework.smart_cond",
    "lib.io.file_io.FileIO": "tf.gfile.GFile",
    "lib.io.file_io.read_file_to_string": f"{_OWN}:read_file_to_string",
    "lib.io.file_io.write_string_to_file": f"{_OWN}:write_string_to_file",
    "ops.array_ops.newaxis": "tf.newaxis",
    "ops.control_flow_ops.CondContext": "headrace._src.graph.contexts:CondContext",
    "ops.control_flow_ops.ControlFlowContext": "headrace._src.graph.contexts:ControlFlowContext",
    "ops.control_flow_ops.WhileContext": "headrace._src.graph.contexts:WhileContext",
    "ops.control_flow_ops.merge": f"{_OWN}:merge",
    "ops.control_flow_ops.switch": f"{_OWN}:switch",
    "ops.control_flow_ops.with_dependencies": f"{_OWN}:with_dependencies",
    "ops.data_flow_ops.Barrier": "headrace._src.ops.state.barrier_ops:Barrier",
    "ops.data_flow_ops.MapStagingArea": "headrace._src.ops.state.staging_ops:MapStagingArea",
    "ops.data_flow_ops.StagingArea": "headrace._src.ops.state.staging_ops:StagingArea",
    "ops.lookup_ops.index_to_string_table_from_tensor": (
        f"{_OWN}:index_to_string_table_from_tensor"
    ),
    "ops.math_ops._as_indexed_slices_list": f"{_OWN}:as_indexed_slices_list",
    "ops.math_ops.arg_max": "tf.arg_max",
    "ops.math_ops.arg_min": "tf.arg_min",
    "ops.resource_variable_ops.ResourceVariable": (
        "headrace._src.variables.resource_variable:ResourceVariable"
    ),
    "ops.resource_variable_ops.is_resource_variable": f"{_OWN}:is_resource_variable",
    "ops.resources.initialize_resources": f"{_OWN}:initialize_resources",
    "ops.resources.local_resources": f"{_OWN}:local_resources",
    "ops.resources.shared_resources": f"{_OWN}:shared_resources",
    "ops.rnn._transpose_batch_time": "tf.contrib.rnn.transpose_batch_time",
    "ops.rnn_cell_impl.assert_like_rnncell": "headrace._src.layers.recurrent.cell:check_cell",
    "ops.summary_op_util.clean_tag": f"{_OWN}:clean_tag",
    "ops.summary_op_util.collect": f"{_OWN}:collect",
    "ops.summary_op_util.summary_scope": f"{_OWN}:summary_scope",
    "ops.variables.PartitionedVariable": "headrace._src.variables.partition:PartitionedVariable",
    "ops.variables.RefVariable": "headrace._src.variables.ref_variable:RefVariable",
    "ops.variables.Variable": "tf.Variable",
    "ops.weights_broadcast_ops.assert_broadcastable": (
        "headrace._src.layers.weights:assert_broadcastable"
    ),
    "ops.weights_broadcast_ops.broadcast_weights": "headrace._src.layers.weights:broadcast_weights",
    "pywrap_tensorflow_internal.EventsWriter": f"{_OWN}:EventsWriter",
    "summary.writer.event_file_writer.EventFileWriter": (
        "headrace._src.summary.event_writer:EventFileWriter"
    ),
    "training.moving_averages.assign_moving_average": (
        "headrace._src.variables.moving_average:assign_moving_average"
    ),
    "training.saving.saveable_object.SaveSpec": "headrace._src.train.saving.saveables:SaveSpec",
    "training.saving.saveable_object.SaveableObject": (
        "headrace._src.train.saving.saveables:SaveableObject"
    ),
    "training.slot_creator.create_slot": "headrace._src.train.optimizers.slots:create_slot",
    "training.slot_creator.create_slot_with_initializer": (
        "headrace._src.train.optimizers.slots:create_slot_with_initializer"
    ),
    "training.slot_creator.create_zeros_slot": (
        "headrace._src.train.optimizers.slots:create_zeros_slot"
    ),
    "util.deprecation._PRINT_DEPRECATION_WARNINGS": (
        "headrace.python._deprecation:PRINT_DEPRECATION_WARNINGS"
    ),
    "util.deprecation.deprecated": "headrace.python._deprecation:deprecated",
    "util.deprecation.silence": "headrace.python._deprecation:silence",
    "util.tf_contextlib.contextmanager": "contextlib:contextmanager",
    "util.tf_decorator.TFDecorator": f"{_OWN}:TFDecorator",
    "util.tf_decorator.make_decorator": f"{_OWN}:make_decorator",
    "util.tf_decorator.unwrap": f"{_OWN}:unwrap",
    "util.tf_inspect.getargspec": f"{_OWN}:getargspec",
    "util.tf_inspect.getfullargspec": f"{_OWN}:getfullargspec",
    **{f"framework.dtypes.{name}_ref": f"tf.{name}._as_ref" for name in _REFERENCES},
    **{f"util.tf_inspect.{name}": f"inspect:{name}" for name in _INSPECT},
}

# What a program may use instead of a name that isn't here.
LACKING = {
    "ops.data_flow_ops.RecordInput": "read records with tf.TFRecordReader",
}
