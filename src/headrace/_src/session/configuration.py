"""Read ConfigProto and RunOptions. In: the protos. Out: pipeline Options, or an error for options
that are not supported.

Honoured: device_count of CPUs, allow_soft_placement, log_device_placement, operation_timeout_in_ms,
intra_op_parallelism_threads (of native kernels; as in TensorFlow the threads belong to the process,
and the first session that asks decides), graph_options.optimizer_options.global_jit_level (OFF:
never compile; ON_1, ON_2: always) and opt_level (L0: run steps as they are),
graph_options.infer_shapes, place_pruned_graph, build_cost_model and build_cost_model_after,
graph_options.enable_bfloat16_sendrecv (between hosts),
graph_options.rewrite_options.auto_mixed_precision (ON, OFF; by default the graph decides),
experimental.check_numerics (our own: stop at the first NaN or infinity) and place_by_cost (our own:
choose devices by costs); trace_level,
timeout_in_ms, output_partition_graphs. Refused: clusters and debuggers. All other fields are hints
on speed and memory (thread pools between operations, GPU memory, single rewriters), are ignored and
change no result.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from headrace._src.core.config import settings
from headrace._src.core.errors import InvalidArgumentError, UnimplementedError
from headrace._src.core.export import export
from headrace._src.devices import openmp
from headrace._src.devices.device import devices_on_request, local_devices
from headrace._src.graph.graph import Graph
from headrace._src.pipeline import Options

__all__ = ["Asked", "asked", "check_remote", "check_run", "options", "options_for"]

_MIXED = {1: True, 2: False, 3: True}  # RewriterConfig.Toggle: ON, OFF, AGGRESSIVE


def options(config: Any, remote: bool = False) -> Options:
    """Return the pipeline options for a ConfigProto (or None). `remote`: for a session of a
    cluster, whose devices belong to other processes.
    """
    if config is None:
        devices = (*local_devices(), *devices_on_request())
        return Options(devices, settings().soft_placement)
    if not hasattr(config, "allow_soft_placement"):
        raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
    if config.HasField("cluster_def") and not remote:
        raise InvalidArgumentError(
            None,
            None,
            "ConfigProto.cluster_def is for sessions of a cluster, and this one has no target: use "
            "tf.Session(server.target, config=config)",
        )
    if config.intra_op_parallelism_threads < 0:
        raise InvalidArgumentError(
            None,
            None,
            "intra_op_parallelism_threads must be at least 0 (0 chooses by the machine), not "
            f"{config.intra_op_parallelism_threads}",
        )
    if config.intra_op_parallelism_threads:
        openmp.request_threads(config.intra_op_parallelism_threads)
    counts = dict(config.device_count)
    devices = (*local_devices(counts), *devices_on_request(counts))
    found = Options(devices, config.allow_soft_placement or settings().soft_placement)
    asked = config.graph_options.optimizer_options
    jit = found.jit if asked.global_jit_level == 0 else _jit(asked.global_jit_level)
    optimised = found.specialisations if asked.opt_level >= 0 else 0
    checked = found.check_numerics or config.experimental.check_numerics
    mixed = _MIXED.get(config.graph_options.rewrite_options.auto_mixed_precision)
    return replace(
        found,
        jit=jit,
        specialisations=optimised,
        check_numerics=checked,
        mixed=mixed,
        compress=config.graph_options.enable_bfloat16_sendrecv,
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a ConfigProto that the session itself handles.

    timeout: the limit of each run, in milliseconds. infer_shapes: whether graph_def includes the
    shapes of tensors. place_pruned: whether only the operations that a step runs must have a
    device. cost_every, cost_after: the runs of a step that measure the costs of its operations.
    types: the types of devices that device_count names. place_by_cost: whether devices are chosen
    by costs.
    """

    log_placement: bool = False
    timeout: int | None = None
    infer_shapes: bool = False
    place_pruned: bool = False
    cost_every: int = 0
    cost_after: int = 0
    types: frozenset[str] = frozenset()
    place_by_cost: bool = field(default_factory=lambda: settings().place == "cost")

    def measures(self, run: int) -> bool:
        """Return whether the run with this number, counted from 1, measures costs."""
        counted = run - self.cost_after
        return self.cost_every > 0 and counted > 0 and counted % self.cost_every == 0


_placement = {"logged": False}  # what programs set for all sessions


@export("debugging.set_log_device_placement")
def set_log_device_placement(enabled: bool) -> None:
    """Let all sessions that are made from now on log where operations are placed, or not."""
    _placement["logged"] = bool(enabled)


@export("debugging.get_log_device_placement")
def get_log_device_placement() -> bool:
    """Return whether sessions log where operations are placed, if their ConfigProto says
    nothing.
    """
    return _placement["logged"]


def asked(config: Any) -> Asked:
    """Return the options of a ConfigProto (or None) that the session itself handles."""
    if config is None:
        return Asked(_placement["logged"])
    graph = config.graph_options
    return Asked(
        config.log_device_placement or _placement["logged"],
        config.operation_timeout_in_ms or None,
        graph.infer_shapes,
        graph.place_pruned_graph,
        graph.build_cost_model,
        graph.build_cost_model_after,
        frozenset(config.device_count),
        config.experimental.place_by_cost or settings().place == "cost",
    )


def check_remote(config: Any) -> None:
    """Raise if a ConfigProto asks for what only sessions of one process do."""
    if config is None:
        return
    if config.graph_options.build_cost_model:
        raise UnimplementedError(
            None,
            None,
            "GraphOptions.build_cost_model: a session of a cluster does not measure costs. Trace a "
            "run instead: tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)",
        )
    if config.experimental.place_by_cost:
        raise UnimplementedError(
            None,
            None,
            "ConfigProto.experimental.place_by_cost: the operations of a cluster are placed by "
            "tf.device and tf.train.replica_device_setter",
        )


def options_for(options: Options, graph: Graph) -> Options:
    """Return the options for steps of a graph, which may itself ask for mixed precision."""
    if options.mixed is None and graph.mixed_precision:
        return replace(options, mixed=True)
    return options


def _jit(level: int) -> str:
    """Return the `jit` option for a GlobalJitLevel other than DEFAULT."""
    return "off" if level < 0 else "always"


def check_run(options: Any, metadata: Any) -> None:
    """Raise if run options or metadata have the wrong type, or an option is not supported."""
    if options is not None:
        if not hasattr(options, "trace_level"):
            raise TypeError(f"options must be a tf.RunOptions, but got {type(options)}")
        if options.debug_options.debug_tensor_watch_opts:
            raise UnimplementedError(None, None, "RunOptions.debug_options: there is no debugger")
    if metadata is not None and not hasattr(metadata, "step_stats"):
        raise TypeError(f"run_metadata must be a tf.RunMetadata, but got {type(metadata)}")
