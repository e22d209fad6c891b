"""Implement tf.config, the settings of the process. In: calls. Out: the ConfigProto of sessions
that are given none.

There is one physical device, the CPU, which may be split into several logical ones. As in
TensorFlow, settings that affect the devices are fixed once the devices have been listed. Settings
that need another device than a CPU are refused.

State: the settings of the process (`_Asked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace._src.core import proto
from headrace._src.core.errors import UnimplementedError
from headrace._src.core.export import export

__all__ = ["default_config"]

# The toggles of grappler's passes, by the names of RewriterConfig's fields.
_TOGGLES = (
    "layout_optimizer",
    "constant_folding",
    "shape_optimization",
    "remapping",
    "arithmetic_optimization",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "debug_stripper",
    "scoped_allocator_optimization",
    "pin_to_host_optimization",
    "implementation_selector",
    "auto_mixed_precision",
)
_SWITCHES = ("disable_model_pruning", "disable_meta_optimizer")
_POLICIES = ("explicit", "warn", "silent", "silent_for_int32")


class PhysicalDevice(NamedTuple):
    """A device of the machine."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device that operations can be placed on."""

    name: str
    device_type: str


@export("config.experimental.VirtualDeviceConfiguration")
class VirtualDeviceConfiguration(NamedTuple):
    """A logical device that is part of a physical one."""

    memory_limit: int | None = None


_CPU = PhysicalDevice("/physical_device:CPU:0", "CPU")


@dataclass
class _Asked:
    """The settings of the process; the defaults stand for settings that were never made."""

    intra_op: int = 0
    inter_op: int = 0
    soft_placement: bool = False
    jit: bool | None = None
    toggles: dict[str, bool] = field(default_factory=dict)
    policy: str = "silent"
    virtual: list[VirtualDeviceConfiguration] | None = None
    fixed: bool = False  # whether the devices have been listed


_asked = _Asked()


def default_config() -> Any:
    """Return the ConfigProto of sessions that are given none; None if all settings are default."""
    asked = _asked
    if asked == _Asked(fixed=asked.fixed, policy=asked.policy):
        return None
    config = proto.ConfigProto(
        intra_op_parallelism_threads=asked.intra_op,
        inter_op_parallelism_threads=asked.inter_op,
        allow_soft_placement=asked.soft_placement,
    )
    config.device_count["CPU"] = len(asked.virtual or [None])
    options: Any = config.graph_options
    if asked.jit is not None:
        options.optimizer_options.global_jit_level = 1 if asked.jit else -1
    for name, value in asked.toggles.items():
        on_or_off = value if name in _SWITCHES else 1 if value else 2
        setattr(options.rewrite_options, name, on_or_off)
    return config


def _fix(what: str, changes: bool) -> None:
    """Raise if a setting changes that affects the devices, and they have been listed."""
    if _asked.fixed and changes:
        raise RuntimeError(f"{what} cannot be modified after being initialized")


# -- Threads ---------------------------------------------------------------------------------------


@export("config.threading.get_intra_op_parallelism_threads")
def get_intra_op_parallelism_threads() -> int:
    """Return the number of threads that a kernel may use; 0 means that the system chooses."""
    return _asked.intra_op


@export("config.threading.set_intra_op_parallelism_threads")
def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Set the number of threads that a kernel may use; 0 means that the system chooses."""
    _fix("Intra op parallelism", num_threads != _asked.intra_op)
    _asked.intra_op = num_threads


@export("config.threading.get_inter_op_parallelism_threads")
def get_inter_op_parallelism_threads() -> int:
    """Return the number of operations that may run at once; 0 means that the system chooses."""
    return _asked.inter_op


@export("config.threading.set_inter_op_parallelism_threads")
def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Set the number of operations that may run at once. It is a hint and changes no result."""
    _fix("Inter op parallelism", num_threads != _asked.inter_op)
    _asked.inter_op = num_threads


# -- Placement and optimisation --------------------------------------------------------------------


@export("config.get_soft_device_placement")
def get_soft_device_placement() -> bool:
    """Return whether operations whose device does not exist run on another device."""
    return _asked.soft_placement


@export("config.set_soft_device_placement")
def set_soft_device_placement(enabled: bool) -> None:
    """Set whether operations whose device does not exist run on another device."""
    _asked.soft_placement = bool(enabled)


@export("config.optimizer.get_jit")
def get_jit() -> bool:
    """Return whether every step is compiled at its first run."""
    return bool(_asked.jit)


@export("config.optimizer.set_jit")
def set_jit(enabled: bool) -> None:
    """Set whether every step is compiled at its first run (True) or never (False)."""
    _asked.jit = bool(enabled)


@export("config.optimizer.get_experimental_options")
def get_experimental_options() -> dict[str, bool]:
    """Return the optimisations that were switched on or off."""
    return {**dict.fromkeys(_SWITCHES, False), **_asked.toggles}


@export("config.optimizer.set_experimental_options")
def set_experimental_options(options: dict[str, bool]) -> None:
    """Switch optimisations on or off.

    Only "auto_mixed_precision" has an effect here: the others concern passes of TensorFlow.
    """
    unknown = sorted(set(options) - {*_TOGGLES, *_SWITCHES})
    if unknown:
        raise ValueError(f"Unknown options: {unknown}; known are {[*_TOGGLES, *_SWITCHES]}")
    _asked.toggles.update({name: bool(value) for name, value in options.items()})


# -- Devices ---------------------------------------------------------------------------------------


@export("config.experimental.list_physical_devices")
def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices of the machine, or those of one type."""
    return [_CPU] if device_type in (None, "CPU") else []


@export("config.experimental.list_logical_devices")
def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Return the devices that operations can be placed on, or those of one type."""
    _asked.fixed = True
    if device_type not in (None, "CPU"):
        return []
    count = len(_asked.virtual or [None])
    name = "/job:localhost/replica:0/task:0/device:CPU:"
    return [LogicalDevice(f"{name}{i}", "CPU") for i in range(count)]


@export("config.experimental_list_devices")
def list_devices() -> list[str]:
    """Return the names of the devices that operations can be placed on."""
    return [device.name for device in list_logical_devices()]


@export("config.experimental.get_visible_devices")
def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices of the machine that sessions use, or those of one type."""
    return list_physical_devices(device_type)


@export("config.experimental.set_visible_devices")
def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Set the devices of the machine that sessions use. They always use the CPU."""
    one = isinstance(devices, PhysicalDevice) or not isinstance(devices, Sequence)
    wanted = [devices] if one or isinstance(devices, str) else list(devices)
    for device in wanted:
        if device != _CPU or device_type not in (None, "CPU"):
            raise ValueError(f"Unrecognized device: {device!r}")
    if not wanted and device_type in (None, "CPU"):
        _fix("Visible devices", True)
        raise ValueError("Operations run on the CPU: it can't be made invisible.")


def _check_cpu(device: Any) -> None:
    if device != _CPU:
        raise ValueError(f"Unrecognized device: {device!r}")


@export("config.experimental.get_virtual_device_configuration")
def get_virtual_device_configuration(device: Any) -> list[VirtualDeviceConfiguration] | None:
    """Return the logical devices that a device is split into; None if it is not split."""
    _check_cpu(device)
    return None if _asked.virtual is None else list(_asked.virtual)


@export("config.experimental.set_virtual_device_configuration")
def set_virtual_device_configuration(device: Any, virtual_devices: Any) -> None:
    """Split a device into logical devices, for sessions that are given no ConfigProto."""
    _check_cpu(device)
    wanted = list(virtual_devices)
    if any(v.memory_limit is not None for v in wanted):
        raise ValueError("Setting memory limit on CPU virtual devices is currently not supported")
    if not wanted:
        raise ValueError("a device cannot be split into 0 devices: pass at least one configuration")
    _fix("Virtual devices", wanted != _asked.virtual)
    _asked.virtual = wanted


@export("config.experimental.get_memory_growth")
def get_memory_growth(device: Any) -> bool:
    """Raise ValueError: memory growth is a setting of GPUs, and there is no GPU."""
    raise ValueError(f"Memory growth is a setting of GPUs, not of {device!r}")


@export("config.experimental.set_memory_growth")
def set_memory_growth(device: Any, enable: bool) -> None:
    """Raise ValueError: only a GPU can take memory as needed, and there is no GPU."""
    raise ValueError(f"Cannot set memory growth ({enable}) on non-GPU devices: {device!r}")


# -- Eager execution -------------------------------------------------------------------------------


@export("config.experimental.get_synchronous_execution")
def get_synchronous_execution() -> bool:
    """Return True: an operation has run when its function returns."""
    return True


@export("config.experimental.set_synchronous_execution")
def set_synchronous_execution(enable: bool) -> None:
    """Keep operations synchronous; raise UnimplementedError if `enable` is false."""
    if not enable:
        raise UnimplementedError(None, None, "operations can't run asynchronously")


@export("config.experimental.get_device_policy")
def get_device_policy() -> str:
    """Return the policy for operations whose inputs are on another device."""
    return _asked.policy


@export("config.experimental.set_device_policy")
def set_device_policy(device_policy: str | None) -> None:
    """Set the policy for operations whose inputs are on another device.

    It has no effect: all devices share the memory of one processor.
    """
    policy = "silent" if device_policy is None else device_policy
    if policy not in _POLICIES:
        raise ValueError(f"Not a valid device policy: {device_policy!r}")
    _asked.policy = policy


@export("config.experimental_run_functions_eagerly")
def run_functions_eagerly(run_eagerly: bool) -> None:
    """Raise UnimplementedError if `run_eagerly` is true: there is no tf.function."""
    if run_eagerly:
        raise UnimplementedError(None, None, "there is no tf.function that could run eagerly")


@export("config.experimental_connect_to_host")
def connect_to_host(remote_host: Any = None, job_name: str = "worker") -> None:
    """Raise UnimplementedError: devices of other processes are not available."""
    raise UnimplementedError(
        None, None, f"devices of other processes are not available: {job_name} at {remote_host}"
    )


@export("config.experimental_connect_to_cluster")
def connect_to_cluster(
    cluster_spec_or_resolver: Any,
    job_name: str = "localhost",
    task_index: int = 0,
    protocol: str | None = None,
) -> None:
    """Raise UnimplementedError: devices of a cluster are not available."""
    raise UnimplementedError(
        None,
        None,
        f"devices of other processes are not available: {job_name} {task_index} of "
        f"{cluster_spec_or_resolver} by {protocol or 'any protocol'}",
    )
