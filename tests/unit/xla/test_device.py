"""XLA devices: their names, their transfers, and when JAX is imported."""

import os
import subprocess
import sys

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices.device import device_types, devices_on_request, find_device
from headrace._src.graph.definition import lookup
from headrace._src.xla import device as xla_device
from tests.unit.xla.xla_steps import DEVICE


def test_a_session_has_one_of_them():
    assert "XLA" in device_types()
    assert DEVICE in [d.name for d in devices_on_request()]
    with tf.Graph().as_default():
        with tf.Session() as session:
            assert DEVICE not in [d.name for d in session.list_devices()]
        with tf.Session(config=tf.ConfigProto(device_count={"XLA": 1})) as session:
            assert DEVICE in [d.name for d in session.list_devices()]
    assert find_device(DEVICE).compiler == "xla"
    xla_device.register()  # once more changes nothing


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "complex128", "bfloat16"])
def test_values_go_there_and_back(dtype):
    device = find_device(DEVICE)
    value = np.array([[1, 0], [3, 4]]).astype(tf.as_dtype(dtype).as_numpy_dtype)
    put = device.put(value)
    assert put.dtype == value.dtype and put is not value
    back = device.get(put)
    assert type(back) is np.ndarray and back.dtype == value.dtype
    assert np.array_equal(back, value)


def test_strings_stay_on_the_host():
    device = find_device(DEVICE)
    value = np.array([b"a", b"b"], object)
    assert device.put(value) is value and device.get(value) is value


def test_the_table_says_what_can_be_placed_there():
    for op_type in ("MatMul", "Conv2D", "VariableV2", "Enter", "Cholesky", "Assert"):
        assert lookup(op_type).table("XLA")
    for op_type in ("StringJoin", "QueueDequeueV2", "PyFunc", "Unique"):
        assert not lookup(op_type).table("XLA")


def test_a_kernel_of_the_table_takes_arrays_of_both_kinds():
    (kernel,) = lookup("Concat").table("XLA")
    put = find_device(DEVICE).put(np.float32([1, 2]))
    assert kernel.run(np.int32(0), [put, np.float32([3])]).tolist() == [1, 2, 3]


def test_jax_is_imported_by_the_first_region():
    program = """
import sys
import headrace as tf
from headrace._src.graph.definition import lookup
from headrace._src.xla import backend, device
device.register()
assert lookup("MatMul").table("XLA")
with tf.Session() as session:
    assert session.run(tf.constant(1) + 1) == 2
print("jax" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["False"]


def test_a_region_runs_on_its_own_device():
    program = """
import sys
sys.path.insert(0, ".")
from dataclasses import replace
import numpy as np
import headrace as tf
from headrace._src.devices.device import find_device
from headrace._src.xla.backend import compile_region
from headrace._src.xla.device import register
from tests.unit.xla.xla_steps import DEVICE, XlaStep
register()
second = DEVICE[:-1] + "1"
x = tf.placeholder(tf.float32, [2], name="x")
step = XlaStep([x * 2], [x])
node = replace(step.cluster.nodes[0], device=second)
(y,) = compile_region([node], list(node.outputs))([np.float32([1, 2])], ctx=None)
print(y.tolist(), y.devices() == {find_device(second).jax_device})
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert found.stdout.split("\n")[0] == "[2.0, 4.0] True"
