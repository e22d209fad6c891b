"""What a ConfigProto and RunOptions ask for. In: the protos. Out: pipeline Options, or an error for
what can't be had.

Honoured: device_count of CPUs, allow_soft_placement, log_device_placement, operation_timeout_in_ms,
intra_op_parallelism_threads (of native kernels; as in TensorFlow it is the process that has the
threads, and the first session that asks decides), graph_options.optimizer_options.global_jit_level
(OFF: never compile; ON_1, ON_2: always) and opt_level (L0: run steps as they are),
graph_options.infer_shapes, place_pruned_graph, build_cost_model and build_cost_model_after,
graph_options.rewrite_options.auto_mixed_precision (ON, OFF; else as the graph says),
experimental.check_numerics (ours: stop where a NaN or an infinity is made); trace_level,
timeout_in_ms, output_partition_graphs. Refused: clusters and debuggers. The rest are hints on speed
and memory (thread pools between operations, GPU memory, single rewriters) that change no result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace._src.core.errors import InvalidArgumentError, UnimplementedError
from headrace._src.devices import openmp
from headrace._src.devices.device import local_devices
from headrace._src.graph.graph import Graph
from headrace._src.pipeline import Options

__all__ = ["Asked", "asked", "check_run", "options", "options_for"]

_MIXED = {1: True, 2: False, 3: True}  # RewriterConfig.Toggle: ON, OFF, AGGRESSIVE


def options(config: Any) -> Options:
    """The options for making programs that a ConfigProto (or None) asks for."""
    if config is None:
        return Options()
    if not hasattr(config, "allow_soft_placement"):
        raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
    if config.HasField("cluster_def"):
        raise UnimplementedError(None, None, "ConfigProto.cluster_def: no sessions of a cluster")
    if config.intra_op_parallelism_threads < 0:
        raise InvalidArgumentError(
            None,
            None,
            "intra_op_parallelism_threads must be at least 0 (0 chooses by the machine), not "
            f"{config.intra_op_parallelism_threads}",
        )
    if config.intra_op_parallelism_threads:
        openmp.request_threads(config.intra_op_parallelism_threads)
    found = Options(local_devices(dict(config.device_count)), config.allow_soft_placement)
    asked = config.graph_options.optimizer_options
    jit = found.jit if asked.global_jit_level == 0 else _jit(asked.global_jit_level)
    optimised = found.specialisations if asked.opt_level >= 0 else 0
    checked = found.check_numerics or config.experimental.check_numerics
    mixed = _MIXED.get(config.graph_options.rewrite_options.auto_mixed_precision)
    return replace(found, jit=jit, specialisations=optimised, check_numerics=checked, mixed=mixed)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a ConfigProto asks of the session itself.

    timeout: of each run, in milliseconds. infer_shapes: whether graph_def has tensors' shapes.
    place_pruned: whether only the operations that a step runs must have a device. cost_every,
    cost_after: which runs of a step measure what its operations cost.
    """

    log_placement: bool = False
    timeout: int | None = None
    infer_shapes: bool = False
    place_pruned: bool = False
    cost_every: int = 0
    cost_after: int = 0

    def measures(self, run: int) -> bool:
        """Whether the run of this number, from 1 on, measures costs."""
        counted = run - self.cost_after
        return self.cost_every > 0 and counted > 0 and counted % self.cost_every == 0


def asked(config: Any) -> Asked:
    """What a ConfigProto (or None) asks of the session itself."""
    if config is None:
        return Asked()
    graph = config.graph_options
    return Asked(
        config.log_device_placement,
        config.operation_timeout_in_ms or None,
        graph.infer_shapes,
        graph.place_pruned_graph,
        graph.build_cost_model,
        graph.build_cost_model_after,
    )


def options_for(options: Options, graph: Graph) -> Options:
    """The options for steps of a graph, which may ask for mixed precision itself."""
    if options.mixed is None and graph.mixed_precision:
        return replace(options, mixed=True)
    return options


def _jit(level: int) -> str:
    """What a GlobalJitLevel other than DEFAULT says."""
    return "off" if level < 0 else "always"


def check_run(options: Any, metadata: Any) -> None:
    """Refuse run options and metadata that are none, and options that can't be had."""
    if options is not None:
        if not hasattr(options, "trace_level"):
            raise TypeError(f"options must be a tf.RunOptions, but got {type(options)}")
        if options.debug_options.debug_tensor_watch_opts:
            raise UnimplementedError(None, None, "RunOptions.debug_options: there is no debugger")
    if metadata is not None and not hasattr(metadata, "step_stats"):
        raise TypeError(f"run_metadata must be a tf.RunMetadata, but got {type(metadata)}")
