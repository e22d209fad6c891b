"""tf.config: sessions honour the process's settings."""

import pytest

import headrace as tf
from headrace._src.session import process_config


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(process_config, "_asked", process_config._Asked())
    with tf.Graph().as_default():
        yield


def test_devices():
    (cpu,) = tf.config.experimental.list_physical_devices()
    assert repr(cpu) == "PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')"
    assert tf.config.experimental.list_physical_devices("GPU") == []
    assert tf.config.experimental.get_visible_devices("CPU") == [cpu]
    for devices, kind in ((cpu, None), ([cpu], "CPU"), ([], "GPU")):
        tf.config.experimental.set_visible_devices(devices, kind)
    for devices, kind in (("CPU", None), ([cpu], "GPU")):
        with pytest.raises(ValueError, match="Unrecognized device"):
            tf.config.experimental.set_visible_devices(devices, kind)
    with pytest.raises(ValueError, match="can't be made invisible"):
        tf.config.experimental.set_visible_devices([])
    (logical,) = tf.config.experimental.list_logical_devices()
    assert logical == ("/job:localhost/replica:0/task:0/device:CPU:0", "CPU")
    assert tf.config.experimental_list_devices() == [logical.name]
    with pytest.raises(RuntimeError, match="cannot be modified after being initialized"):
        tf.config.experimental.set_visible_devices([])


def test_logical_devices_are_those_of_sessions():
    (cpu,) = tf.config.experimental.list_physical_devices("CPU")
    one = tf.config.experimental.VirtualDeviceConfiguration()
    assert tf.config.experimental.get_virtual_device_configuration(cpu) is None
    tf.config.experimental.set_virtual_device_configuration(cpu, [one, one])
    assert tf.config.experimental.get_virtual_device_configuration(cpu) == [one, one]
    assert len(tf.config.experimental.list_logical_devices("CPU")) == 2
    assert len(tf.Session().list_devices()) == 2
    assert len(tf.Session(config=tf.ConfigProto()).list_devices()) == 1
    with tf.device("/cpu:1"):
        x = tf.constant(3)
    assert tf.Session().run(x) == 3
    with pytest.raises(RuntimeError, match="Virtual devices cannot be modified"):
        tf.config.experimental.set_virtual_device_configuration(cpu, [one])
    limited = tf.config.experimental.VirtualDeviceConfiguration(memory_limit=3)
    with pytest.raises(ValueError, match="memory limit on CPU"):
        tf.config.experimental.set_virtual_device_configuration(cpu, [limited])
    with pytest.raises(ValueError, match="non-GPU devices"):
        tf.config.experimental.set_memory_growth(cpu, True)


def test_soft_placement():
    with tf.device("/gpu:0"):
        x = tf.constant(1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
        tf.Session().run(x)
    assert tf.config.get_soft_device_placement() is False
    tf.config.set_soft_device_placement(True)
    assert tf.config.get_soft_device_placement() is True
    assert tf.Session().run(x) == 1


def test_threads_and_optimisation():
    assert tf.config.threading.get_intra_op_parallelism_threads() == 0
    tf.config.threading.set_inter_op_parallelism_threads(3)
    assert tf.config.threading.get_inter_op_parallelism_threads() == 3
    assert process_config.default_config().inter_op_parallelism_threads == 3
    assert tf.config.optimizer.get_jit() is False
    for enabled, mode in ((True, "always"), (False, "off")):
        tf.config.optimizer.set_jit(enabled)
        assert tf.config.optimizer.get_jit() is enabled
        assert tf.Session()._options.jit == mode
    tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
    assert tf.Session()._options.mixed is True
    options = tf.config.optimizer.get_experimental_options()
    assert options["auto_mixed_precision"] is True
    assert options["disable_meta_optimizer"] is False
    with pytest.raises(ValueError, match="Unknown options"):
        tf.config.optimizer.set_experimental_options({"nope": True})
    tf.config.experimental.list_logical_devices()
    tf.config.threading.set_inter_op_parallelism_threads(3)
    with pytest.raises(RuntimeError, match="Inter op parallelism cannot be modified"):
        tf.config.threading.set_inter_op_parallelism_threads(4)


def test_what_a_processor_can_not_do_is_refused():
    assert tf.config.experimental.get_synchronous_execution() is True
    tf.config.experimental.set_synchronous_execution(True)
    with pytest.raises(tf.errors.UnimplementedError, match="asynchronously"):
        tf.config.experimental.set_synchronous_execution(False)
    tf.config.experimental.set_device_policy("warn")
    assert tf.config.experimental.get_device_policy() == "warn"
    with pytest.raises(ValueError, match="Not a valid device policy: 'nope'"):
        tf.config.experimental.set_device_policy("nope")
    tf.config.experimental_run_functions_eagerly(False)
    with pytest.raises(tf.errors.UnimplementedError, match=r"no tf\.function"):
        tf.config.experimental_run_functions_eagerly(True)
    with pytest.raises(tf.errors.UnimplementedError, match="other processes"):
        tf.config.experimental_connect_to_host("grpc://there:1")
    with pytest.raises(tf.errors.UnimplementedError, match="other processes"):
        tf.config.experimental_connect_to_cluster({"worker": ["there:1"]})
