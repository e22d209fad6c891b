"""Device scopes and device functions. The devices are those of TensorFlow 1.15.5's operations."""

from contextlib import ExitStack

import pytest

import headrace as tf


def device_in(*scopes):
    """Return the device of an operation made inside nested scopes."""
    with tf.Graph().as_default(), ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(tf.device(scope))
        return tf.no_op().device


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("/cpu:0", "/device:CPU:0"),
        ("/Cpu:0", "/device:CPU:0"),
        ("cpu:0", "/device:CPU:0"),
        ("CPU", "/device:CPU:*"),
        ("/gpu:*", "/device:GPU:*"),
        ("/device:cpu:1", "/device:CPU:1"),
        ("/device:*:1", "/device:*:1"),
        ("/device:XLA_CPU:0", "/device:XLA_CPU:0"),
        ("/job:localhost/replica:0/task:0/cpu:1", "/job:localhost/replica:0/task:0/device:CPU:1"),
        ("/job:worker/task:3/gpu:*", "/job:worker/task:3/device:GPU:*"),
        ("/job:Worker//cpu:0/", "/job:Worker/device:CPU:0"),
        ("/task:007", "/task:7"),
        ("/job:a/job:b", "/job:b"),
    ],
)
def test_spellings(name, device):
    assert device_in(name) == device


@pytest.mark.parametrize(
    ("scopes", "device"),
    [
        (("/cpu:0", None), ""),
        (("/cpu:0", ""), "/device:CPU:0"),
        (("/job:a/task:1", None, "/cpu:0"), "/device:CPU:0"),
        (("/job:ps", "/cpu:1"), "/job:ps/device:CPU:1"),
        (("/job:ps/cpu:1", "/job:w"), "/job:w/device:CPU:1"),
        (("/gpu:1", "/device:cpu:0"), "/device:CPU:0"),
        (("/task:1", tf.DeviceSpec(job="q")), "/job:q/task:1"),
    ],
)
def test_inner_scopes_win(scopes, device):
    assert device_in(*scopes) == device


@pytest.mark.parametrize(
    ("scopes", "device"),
    [
        ((lambda op: "/cpu:3",), "/cpu:3"),
        (("/job:x", lambda op: "/cpu:3"), "/job:x/device:CPU:3"),
        ((lambda op: "/cpu:3", "/job:x"), "/cpu:3"),
        ((lambda op: tf.DeviceSpec(job="ps"),), "/job:ps"),
        ((lambda op: op.device + "/task:5", "/job:a"), "/job:a/task:5"),
        (("/task:2", lambda op: "", "/cpu:1"), "/task:2"),
        ((lambda op: f"/job:{op.type}",), "/job:NoOp"),
        ((lambda op: b"/cpu:0",), "/cpu:0"),
        (("/job:x", lambda op: None), "/job:x"),  # refused by TensorFlow 1.15, not by others
    ],
)
def test_device_functions(scopes, device):
    assert device_in(*scopes) == device


def test_what_is_no_device():
    with pytest.raises(ValueError, match="Unknown attribute: 'foo' in '/foo:1'"):
        device_in("/foo:1")
    with pytest.raises(ValueError, match="Cannot specify multiple device types"):
        device_in("/cpu:0/gpu:0")
    with pytest.raises(TypeError, match="must return a string, a DeviceSpec or None, not 3"):
        device_in(lambda op: 3)
    with pytest.raises(TypeError, match="a device name must be a string"):
        device_in(3)
