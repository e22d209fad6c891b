"""TensorFlow's own module paths, `tensorflow.python.…`, under `headrace.python`."""

import importlib
import pickle
import subprocess
import sys

import headrace.python.ops.nn_ops as nn_ops
import numpy as np
import pytest
from headrace.python.client import device_lib, timeline
from headrace.python.framework import dtypes, function, ops, tensor_shape, tensor_util, test_util
from headrace.python.framework.ops import Graph, convert_to_tensor
from headrace.python.layers import utils as layer_utils
from headrace.python.lib.io import file_io
from headrace.python.ops import array_ops, control_flow_ops, gen_math_ops, math_ops, rnn_cell_impl
from headrace.python.ops import variable_scope as vs
from headrace.python.platform import flags, gfile
from headrace.python.platform import tf_logging as logging
from headrace.python.training import moving_averages
from headrace.python.util import compat, nest, tf_decorator, tf_inspect

import headrace as tf
import headrace.python
from headrace.python import _homes, _modules, _table, pywrap_tensorflow

SAME = {
    "client.session.Session": tf.Session,
    "framework.constant_op.constant": tf.constant,
    "framework.dtypes.float32": tf.float32,
    "framework.errors.OutOfRangeError": tf.errors.OutOfRangeError,
    "framework.errors_impl.NotFoundError": tf.errors.NotFoundError,
    "framework.graph_util.convert_variables_to_constants": (
        tf.graph_util.convert_variables_to_constants
    ),
    "framework.ops.GraphKeys": tf.GraphKeys,
    "framework.ops.IndexedSlices": tf.IndexedSlices,
    "framework.ops.NotDifferentiable": tf.NotDifferentiable,
    "framework.ops.RegisterGradient": tf.RegisterGradient,
    "framework.ops.Tensor": tf.Tensor,
    "framework.ops.get_default_graph": tf.get_default_graph,
    "framework.ops.name_scope": tf.name_scope,
    "framework.tensor_shape.TensorShape": tf.TensorShape,
    "framework.tensor_util.make_tensor_proto": tf.make_tensor_proto,
    "ops.array_ops.concat": tf.concat,
    "ops.array_ops.newaxis": tf.newaxis,
    "ops.control_flow_ops.cond": tf.cond,
    "ops.init_ops.zeros_initializer": tf.zeros_initializer,
    "ops.losses.losses.mean_squared_error": tf.losses.mean_squared_error,
    "ops.math_ops.matmul": tf.matmul,
    "ops.math_ops.reduce_sum": tf.reduce_sum,
    "ops.math_ops.sigmoid": tf.sigmoid,
    "ops.nn.softmax": tf.nn.softmax,
    "ops.nn_ops.softmax": tf.nn.softmax,
    "ops.rnn.dynamic_rnn": tf.nn.dynamic_rnn,
    "ops.rnn_cell.GRUCell": tf.nn.rnn_cell.GRUCell,
    "ops.standard_ops.matmul": tf.matmul,
    "ops.variables.Variable": tf.Variable,
    "platform.flags.FLAGS": tf.flags.FLAGS,
    "platform.gfile.FastGFile": tf.gfile.FastGFile,
    "platform.test.TestCase": tf.test.TestCase,
    "saved_model.signature_constants.PREDICT_INPUTS": (
        tf.saved_model.signature_constants.PREDICT_INPUTS
    ),
    "training.optimizer.Optimizer": tf.train.Optimizer,
    "training.saver.Saver": tf.train.Saver,
    "training.training_util.get_global_step": tf.train.get_global_step,
    "estimator.estimator.Estimator": tf.estimator.Estimator,
}

# The names below tensorflow.python that public programs for TensorFlow 1 use; "." is the package
# itself.
USED = """\
.: debug pywrap_tensorflow
client: device_lib session timeline
client.device_lib: list_local_devices
client.session: Session
client.timeline: Timeline
compiler.tensorrt: trt_convert
data.ops: multi_device_iterator_ops
data.ops.multi_device_iterator_ops: MultiDeviceIterator
debug: LocalCLIDebugWrapperSession TensorBoardDebugWrapperSession
distribute: all_reduce
distribute.all_reduce: build_nccl_all_reduce build_nccl_then_recursive_hd build_nccl_then_ring
 build_nccl_then_shuffle build_ring_all_reduce build_shuffle_all_reduce build_shuffle_then_shuffle
distribute.v1: all_reduce
eager: context
estimator: estimator
framework: constant_op convert_to_constants device dtypes errors function graph_util
 graph_util_impl importer indexed_slices op_def_registry ops tensor_conversion_registry
 tensor_shape tensor_util
framework.constant_op: constant
framework.convert_to_constants: convert_variables_to_constants
framework.device: DeviceSpec
framework.dtypes: bool int32 int64
framework.errors: OutOfRangeError
framework.function: Defun
framework.graph_util: convert_variables_to_constants
framework.graph_util_impl: _bfs_for_reachable_nodes _extract_graph_summary
framework.importer: import_graph_def
framework.indexed_slices: IndexedSlices
framework.ops: GraphKeys RegisterGradient RegisterShape Tensor colocate_with control_dependencies
 convert_to_tensor device get_collection get_default_graph name_scope reset_default_graph
framework.tensor_conversion_registry: register_tensor_conversion_function
framework.tensor_shape: TensorShape scalar
framework.tensor_util: constant_value
grappler: tf_optimizer
grappler.tf_optimizer: OptimizeGraph
keras: backend
keras.models: Model
layers: base convolutional core pooling utils
layers.convolutional: conv2d
layers.core: dropout
layers.pooling: average_pooling2d max_pooling2d
layers.utils: smart_cond
lib.io: file_io
ops: array_ops check_ops collective_ops control_flow_ops data_flow_ops gen_nn_ops init_ops
 lookup_ops math_ops nn random_ops resource_variable_ops resources rnn_cell state_ops
 summary_op_util tensor_array_ops variable_scope variable_v1 variables
ops.array_ops: concat gather identity reshape shape squeeze where zeros zeros_like
ops.collective_ops: all_reduce broadcast_recv broadcast_send
ops.control_flow_ops: cond group merge switch while_loop with_dependencies
ops.data_flow_ops: RecordInput StagingArea
ops.gen_nn_ops: _max_pool_grad
ops.init_ops: zeros_initializer
ops.lookup_ops: index_table_from_file index_to_string_table_from_file
 index_to_string_table_from_tensor
ops.math_ops: _as_indexed_slices_list add_n cast equal less logical_not logical_or
ops.random_ops: random_uniform
ops.resource_variable_ops: resource_scatter_add
ops.resources: initialize_resources shared_resources
ops.rnn: dynamic_rnn
ops.rnn_cell: BasicLSTMCell DropoutWrapper GRUCell MultiRNNCell
ops.state_ops: assign_add
ops.tensor_array_ops: TensorArray
ops.variable_scope: get_variable variable_scope
ops.variable_v1: VariableV1
platform: flags gfile test tf_logging
platform.flags: DEFINE_bool DEFINE_float DEFINE_integer DEFINE_string FLAGS
platform.gfile: Exists FastGFile GFile Glob MakeDirs Open
platform.tf_logging: error info warning
pywrap_tensorflow: EventsWriter
saved_model: signature_constants
training: basic_session_run_hooks moving_averages optimizer saver session_run_hook training
 training_ops training_util
training.basic_session_run_hooks: SecondOrStepTimer SessionRunArgs
training.moving_averages: assign_moving_average
training.optimizer: Optimizer
training.saver: Saver
training.session_run_hook: SessionRunHook
training.training_util: get_global_step
util: compat nest tf_decorator tf_inspect
util.compat: as_bytes
util.nest: flatten is_sequence map_structure pack_sequence_as
util.tf_decorator: make_decorator
util.tf_inspect: getfullargspec
"""

# Those of them that are not here, and why: modules as a whole, and single names.
LACKING = {
    "compiler.tensorrt": "TensorRT",
    "data": "tf.data",
    "debug": "the debugger of TensorFlow's sessions",
    "distribute.v1": "not in TensorFlow 1.15",
    "distribute": "distribution",
    "framework.convert_to_constants.convert_variables_to_constants": "not in TensorFlow 1.15",
    "grappler": "TensorFlow's graph optimizer",
    "keras": "Keras",
    "ops.collective_ops": "distribution",
    "ops.data_flow_ops.RecordInput": "the op isn't here",
    "ops.gen_nn_ops._max_pool_grad": "not in TensorFlow 1.15",
    "ops.variable_v1": "not in TensorFlow 1.15",
}


def run(code):
    """What a fresh process prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.parametrize("path", SAME)
def test_name_is_the_public_object(path):
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(f"headrace.python.{module}"), name)
    assert found is SAME[path]
    value = tf.python
    for part in path.split("."):
        value = getattr(value, part)
    assert value is found


def test_spellings_of_an_import():
    assert Graph is ops.Graph is tf.Graph
    assert convert_to_tensor is tf.convert_to_tensor
    assert nn_ops is sys.modules["headrace.python.ops.nn_ops"] is tf.python.ops.nn_ops
    assert headrace.python.ops.array_ops is array_ops
    assert array_ops.__name__ == "headrace.python.ops.array_ops"
    assert (vs.get_variable, dtypes.int32) == (tf.get_variable, tf.int32)
    assert (logging.info, gfile.Exists) == (tf.logging.info, tf.gfile.Exists)
    assert (nest.flatten, compat.as_bytes) == (tf.nest.flatten, tf.compat.as_bytes)
    assert rnn_cell_impl.RNNCell is tf.nn.rnn_cell.RNNCell
    assert flags.DEFINE_string is tf.flags.DEFINE_string
    assert test_util.TensorFlowTestCase is tf.test.TestCase
    assert function.Defun is not None and timeline.Timeline is not None
    assert pywrap_tensorflow.NewCheckpointReader is tf.train.NewCheckpointReader


def test_import_of_everything():
    names = {}
    exec("from headrace.python.ops.math_ops import *", names)
    assert names["reduce_mean"] is tf.reduce_mean
    assert "argmax_v2" not in names and "argmax_v2" not in math_ops.__all__
    assert set(math_ops.__all__) == set(dir(math_ops))


def test_a_module_is_loaded_again_and_pickled_names_are_found():
    assert importlib.reload(array_ops) is array_ops
    assert array_ops.reshape is tf.reshape
    importlib.reload(headrace.python)
    assert sum(isinstance(f, _modules._Finder) for f in sys.meta_path) == 1
    for value in (ops.Graph, tensor_shape.TensorShape, gen_math_ops.mat_mul, dtypes.float32):
        assert pickle.loads(pickle.dumps(value)) is value


def test_another_package_can_stand_for_the_same_modules():
    code = (
        "import sys, types; from headrace.python._modules import install; "
        "package = types.ModuleType('stand_in'); package.__path__ = []; "
        "sys.modules['stand_in'] = package; "
        "package.__getattr__, package.__dir__ = install('stand_in'); "
        "from stand_in.framework import ops; import stand_in.ops.math_ops as m, headrace as tf; "
        "print(ops.Graph is tf.Graph, m.__name__, m.matmul is tf.matmul)"
    )
    assert run(code) == ["True", "stand_in.ops.math_ops", "True"]


def test_nothing_is_loaded_before_it_is_used():
    code = "import headrace, sys; print('headrace.python' in sys.modules)"
    assert run(code) == ["False"]
    code = (
        "from headrace.python.ops import math_ops; import sys; "
        "print('headrace._src.train' in sys.modules, 'headrace.python._functions' in sys.modules)"
    )
    assert run(code) == ["False", "False"]


def test_missing_name_says_so():
    message = "tensorflow.python.ops.array_ops.boolean_mask_v2 is not in Headrace"
    with pytest.raises(AttributeError, match=f"^{message}$"):
        array_ops.boolean_mask_v2  # noqa: B018
    with pytest.raises(ImportError, match=f"^{message}$"):
        from headrace.python.ops.array_ops import boolean_mask_v2  # noqa: F401
    assert not hasattr(array_ops, "boolean_mask_v2")
    with pytest.raises(AttributeError, match=r"module 'headrace.python.ops.array_ops' has no"):
        array_ops.no_such_name  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        from headrace.python.ops.array_ops import no_such_name  # noqa: F401


def test_missing_module_says_so():
    message = "^tensorflow.python.ops.collective_ops is not in Headrace$"
    with pytest.raises(ModuleNotFoundError, match=message):
        import headrace.python.ops.collective_ops
    with pytest.raises(ModuleNotFoundError, match=message):
        from headrace.python.ops import collective_ops  # noqa: F401
    with pytest.raises(AttributeError, match=message):
        tf.python.ops.collective_ops  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'headrace.python.ops.nothing'"):
        import headrace.python.ops.nothing  # noqa: F401


def used_names():
    module = ""
    for line in USED.splitlines():
        names = line
        if not line.startswith(" "):
            module, _, names = line.partition(":")
        yield from (f"{module}.{name}".lstrip(".") for name in names.split())


@pytest.mark.parametrize("path", list(used_names()))
def test_names_that_programs_use_are_here(path):
    module, _, name = path.rpartition(".")
    statement = f"from headrace.python{'.' * bool(module)}{module} import {name}"
    reasons = [why for part, why in LACKING.items() if f"{path}.".startswith(f"{part}.")]
    if not reasons:
        exec(statement, {})
        return
    said = "No module named|cannot import name" if "not in" in reasons[0] else "is not in Headrace"
    with pytest.raises(ImportError, match=said):
        exec(statement, {})


def test_every_home_is_there_and_is_a_name_of_tensorflow():
    for path in _homes.HOMES:
        module, _, name = path.rpartition(".")
        known = _table.section(module)
        assert known is not None, path
        assert name.startswith("_") or name in known.targets, path
        getattr(importlib.import_module(f"headrace.python.{module}"), name)


def test_every_listed_name_can_be_loaded():
    """Every name that a module says it has is there; also, modules load in any order."""
    count = 0
    for short in _table.module_names():
        if not short or not _modules._has_anything(short):
            continue
        module = importlib.import_module(f"headrace.python.{short}")
        for name in dir(module):
            getattr(module, name)
            count += 1
    assert count > 5000


def test_functions_for_ops_take_arguments_by_position():
    x = np.array([[1.0, 2.0]], np.float32)
    with tf.Session(graph=tf.Graph()) as session:
        y = gen_math_ops.mat_mul(x, x, False, transpose_b=True, name="product")
        assert y.op.type == "MatMul" and y.op.name == "product"
        assert session.run(y).tolist() == [[5.0]]
    assert math_ops.mat_mul is gen_math_ops.mat_mul
    with pytest.raises(TypeError, match="multiple values for argument 'a'"):
        gen_math_ops.mat_mul(x, x, a=x)
    with pytest.raises(TypeError, match="takes 5 positional arguments but 6 were given"):
        gen_math_ops.mat_mul(x, x, False, False, None, 1)


def test_control_flow_functions():
    with tf.Session(graph=tf.Graph()) as session:
        pred = tf.placeholder(tf.bool)
        off, on = control_flow_ops.switch(tf.constant(3.0), pred)
        assert (off.name, on.name) == ("Switch:0", "Switch:1")
        merged = control_flow_ops.merge([off + 1.0, on * 2.0])
        assert merged.output.name == "Merge:0"
        assert session.run(merged, {pred: True}) == (6.0, 1)
        assert session.run(merged, {pred: False}) == (4.0, 0)
        v = tf.Variable(1.0)
        session.run(v.initializer)
        after = control_flow_ops.with_dependencies([v.assign_add(1.0)], output_tensor=v)
        assert after.name == "control_dependency:0"
        assert session.run(after) == 2.0
        assert layer_utils.smart_cond(True, lambda: 1, lambda: 2) == 1
        with pytest.raises(ValueError, match="At least one of the merge inputs is None"):
            control_flow_ops.merge([off, None])
        with pytest.raises(TypeError, match="switch takes dense tensors in Headrace, not IndexedS"):
            control_flow_ops.switch(tf.IndexedSlices(tf.ones([1]), tf.constant([0])), pred)


def test_moving_average_and_static_values():
    with tf.Session(graph=tf.Graph()) as session:
        v = tf.Variable(4.0)
        session.run(v.initializer)
        moved = moving_averages.assign_moving_average(v, 2.0, 0.5, zero_debias=False)
        assert session.run(moved) == 3.0
        assert tensor_util.constant_value(tf.constant([1, 2])).tolist() == [1, 2]
    assert tensor_shape.scalar() == tf.TensorShape([])
    assert tensor_shape.vector(3).as_list() == [3]
    assert tensor_shape.matrix(2, None).as_list() == [2, None]
    assert tensor_shape.unknown_shape().ndims is None
    assert tensor_shape.unknown_shape(2).as_list() == [None, None]
    assert dtypes.float32_ref._is_ref_dtype and dtypes.float32_ref.base_dtype is tf.float32


def test_devices_are_listed():
    (device,) = device_lib.list_local_devices()
    assert (device.name, device.device_type) == ("/device:CPU:0", "CPU")
    assert device.memory_limit == 268435456
    assert len(device_lib.list_local_devices(tf.ConfigProto(device_count={"CPU": 2}))) == 2


def test_files_and_events(tmp_path):
    path = str(tmp_path / "note")
    file_io.write_string_to_file(path, "seven")
    assert file_io.read_file_to_string(path) == "seven"
    assert file_io.read_file_to_string(path, binary_mode=True) == b"seven"
    writer = pywrap_tensorflow.EventsWriter(compat.as_bytes(str(tmp_path / "events")))
    writer.WriteEvent(tf.Event(step=3))
    writer.Flush()
    writer.Close()
    name = compat.as_text(writer.FileName())
    assert name.startswith(str(tmp_path / "events.out.tfevents."))
    first, second = tf.train.summary_iterator(name)
    assert (first.file_version, second.step) == ("brain.Event:2", 3)
    with pytest.raises(TypeError, match=r"Expected an event_pb2\.Event proto"):
        writer.WriteEvent("step 3")


def test_decorators_and_arguments():
    def scale(x, by=2):
        """Scale a number."""
        return x * by

    made = tf_decorator.make_decorator(scale, lambda *args: scale(*args) + 1, "plus_one")
    assert (made.__name__, made.__doc__, made(3)) == ("scale", "Scale a number.", 7)
    decorators, function = tf_decorator.unwrap(made)
    assert function is scale and decorators[0].decorator_name == "plus_one"
    assert tf_inspect.getfullargspec(made).args == ["x", "by"]
    assert tf_inspect.getargspec(made) == (["x", "by"], None, None, (2,))
    assert tf_inspect.isfunction(made)


def test_deprecation_notices_can_be_silenced(caplog):
    from headrace.python.util import deprecation

    @deprecation.deprecated("2030-01-01", "Use new.", warn_once=False)
    def old():
        return 3

    tf.get_logger().propagate, before = True, tf.get_logger().propagate
    try:
        with deprecation.silence():
            assert old() == 3
        assert not caplog.records
        deprecation._PRINT_DEPRECATION_WARNINGS = False
        assert old() == 3 and not caplog.records
        deprecation._PRINT_DEPRECATION_WARNINGS = True
        assert old() == 3
        assert "deprecated and will be removed after 2030-01-01." in caplog.text
        assert caplog.text.rstrip().endswith("Use new.")
    finally:
        tf.get_logger().propagate = before
        deprecation._PRINT_DEPRECATION_WARNINGS = True


def test_graph_functions():
    from headrace.python.framework import graph_util_impl, op_def_registry
    from headrace.python.ops import resources, summary_op_util

    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0, name="a")
        with tf.control_dependencies([a]):
            tf.identity(a + 1.0, name="b")
        inputs, nodes, order = graph_util_impl._extract_graph_summary(graph.as_graph_def())
        assert inputs == {"a": [], "add/y": ["a"], "add": ["a", "add/y"], "b": ["add"]}
        assert nodes["b"].op == "Identity" and order == {"a": 0, "add/y": 1, "add": 2, "b": 3}
        reached = graph_util_impl._bfs_for_reachable_nodes(["b"], inputs)
        assert reached == {"a", "add", "add/y", "b"}
        slices = [
            tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])),
            tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0], tf.int64)),
            tf.ones([2, 2]),
        ]
        found = math_ops._as_indexed_slices_list(slices)
        assert [s.indices.dtype for s in found] == [tf.int64] * 3
        assert resources.initialize_resources(resources.shared_resources()).name == "init"
        with summary_op_util.summary_scope("x", "fam", values=[a]) as names:
            assert names == ("fam/fam/x", "fam/x/")
    assert op_def_registry.get_registered_ops()["MatMul"].input_arg[0].name == "a"

    @ops.RegisterShape("Nothing")
    def shape_of(op):
        return [op]

    assert shape_of(1) == [1]
