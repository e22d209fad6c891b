"""A step on a server's devices: nothing finds them by name in the process."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.devices.device import known_devices, new_devices
from headrace._src.devices.resources import Resources
from headrace._src.ops.base.transfers import is_recv, is_send
from headrace._src.pipeline.passes import Options, compile_step
from headrace._src.runtime import Executable, PartitionedExecutable

TASK = "/job:ps/replica:0/task:3"


@pytest.mark.parametrize("jit", ["off", "always"])
def test_two_servers_in_one_process_have_devices_of_equal_names(jit):
    with tf.Graph().as_default():
        with tf.device(f"{TASK}/device:CPU:0"):
            v = tf.get_variable("v", initializer=np.ones((64, 64), np.float32), use_resource=True)
            x = tf.placeholder(tf.float32, [64, 64])
            y = tf.matmul(v.read_value(), x)
        with tf.device(f"{TASK}/device:CPU:1"):
            z = tf.tanh(y) + 1.0
        for incarnation in (77, 78):
            devices = new_devices(TASK, incarnation, {"CPU": 2})
            options = Options(devices, jit=jit)
            resources = Resources(devices)
            init = compile_step([], [v.initializer], [], [], options)
            program = compile_step([z], [], [x], [(64, 64)], options)
            ends = [i.op for i in program.instructions if is_send(i.op) or is_recv(i.op)]
            assert {op.attrs["send_device_incarnation"] for op in ends} == {incarnation}
            Executable(init, resources).run([])
            (found,) = PartitionedExecutable(program, resources).run([np.eye(64, dtype=np.float32)])
            assert found == pytest.approx(np.tanh(1.0) + 1.0, rel=1e-5)
            assert devices[0].allocator.statistics().in_use >= 64 * 64 * 4
    assert not [d for d in known_devices() if d.name.startswith(TASK)]
