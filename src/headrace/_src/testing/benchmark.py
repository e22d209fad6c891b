"""tf.test.Benchmark: benchmarks that a test program runs with `--benchmarks=REGEX`.

In: classes with methods named benchmark*. Out: an entry for each report, printed.
"""

from __future__ import annotations

import inspect
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.session.session import Session

__all__ = ["Benchmark", "benchmark_config", "run_benchmarks"]


@export("test.benchmark_config")
def benchmark_config() -> proto.ConfigProto:
    """Return a ConfigProto that keeps an operation which a benchmark repeats: the optimizer must
    not remove control dependencies.
    """
    config = proto.ConfigProto()
    config.graph_options.rewrite_options.dependency_optimization = proto.RewriterConfig.OFF
    return config


@export("test.Benchmark")
class Benchmark:
    """The base of classes whose methods benchmark* measure something and report it."""

    _classes: ClassVar[list[type[Benchmark]]] = []  # all that have benchmarks

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.is_abstract():
            Benchmark._classes.append(cls)

    @classmethod
    def is_abstract(cls) -> bool:
        """Return whether the class has no benchmark of its own."""
        return cls is Benchmark or not any(name.startswith("benchmark") for name in dir(cls))

    def report_benchmark(
        self,
        iters: int | None = None,
        cpu_time: float | None = None,
        wall_time: float | None = None,
        throughput: float | None = None,
        extras: Mapping[str, Any] | None = None,
        name: str | None = None,
        metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Print an entry: how often something ran, seconds per run, megabytes per second, and
        further numbers or texts by name. Without a name, it is that of the calling method.
        """
        called = name or next(
            (f.function for f in inspect.stack(0)[1:] if f.function.startswith("benchmark")), ""
        )
        lines = [f'  name: "{type(self).__name__}.{called}"']
        fields = {"iters": iters, "cpu_time": cpu_time, "wall_time": wall_time}
        fields["throughput"] = throughput
        lines += [f"  {key}: {value}" for key, value in fields.items() if value is not None]
        for key, value in (extras or {}).items():
            shown = f"double_value: {value}"
            if isinstance(value, str):
                shown = f'string_value: "{value}"'
            lines += ["  extras {", f'    key: "{key}"', "    value {", f"      {shown}"]
            lines += ["    }", "  }"]
        for metric in metrics or ():
            inside = "".join(
                f'    {k}: "{v}"\n' if isinstance(v, str) else f"    {k}: {v}\n"
                for k, v in metric.items()
            )
            lines.append(f"  metrics {{\n{inside}  }}")
        print("\n".join(["entry {", *lines, "}"]), flush=True)

    def run_op_benchmark(
        self,
        sess: Any,
        op_or_tensor: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        store_trace: bool = False,
        store_memory_usage: bool = True,
        name: str | None = None,
        extras: Mapping[str, Any] | None = None,
        mbs: float = 0,
    ) -> dict[str, Any]:
        """Time an operation, report the median, and return what was reported.

        burn_iters: runs before the clock starts. store_trace: report where one run's time goes.
        store_memory_usage: report the bytes that each device's results take. mbs: the megabytes
        that a run processes.
        """
        target = op_or_tensor if not hasattr(op_or_tensor, "op") else op_or_tensor.op
        for _ in range(burn_iters):
            sess.run(target, feed_dict=feed_dict)
        seconds = []
        for _ in range(min_iters):
            start = time.time()
            sess.run(target, feed_dict=feed_dict)
            seconds.append(time.time() - start)
        found = dict(extras or {})
        if store_trace or store_memory_usage:
            metadata = proto.RunMetadata()
            options = proto.RunOptions(trace_level=proto.RunOptions.FULL_TRACE)
            sess.run(target, feed_dict=feed_dict, options=options, run_metadata=metadata)
            if store_trace:
                found["full_trace_chrome_format"] = proto.text_format.MessageToString(metadata)
            if store_memory_usage:
                found |= _memory(metadata)
        median = statistics.median(seconds)
        result = {
            "iters": min_iters,
            "wall_time": median,
            "extras": found,
            "name": name,
            "throughput": mbs / median,
        }
        self.report_benchmark(
            iters=min_iters,
            wall_time=median,
            throughput=mbs / median if mbs else None,
            extras=found,
            name=name,
        )
        return result

    def evaluate(self, tensors: Any) -> Any:
        """Return the values of tensors in a session of their graph."""
        with Session() as session:
            return session.run(tensors)


def _memory(metadata: Any) -> dict[str, int]:
    """The most bytes that the results of one operation take, for each device."""
    found = {}
    for device in metadata.step_stats.dev_stats:
        sizes = [
            output.tensor_description.allocation_description.requested_bytes
            for node in device.node_stats
            for output in node.output
        ]
        kind = "gpu" if "GPU" in device.device.upper() else "cpu"
        if sizes:
            found[f"allocator_maximum_num_bytes_{kind}"] = max(sizes)
    return found


def run_benchmarks(pattern: str) -> None:
    """Run the benchmarks whose Class.method matches a regular expression ("all": each of them)."""
    for kind in Benchmark._classes:
        instance = kind()
        for name in dir(kind):
            if name.startswith("benchmark") and callable(getattr(instance, name)):
                full = f"{kind.__module__}.{kind.__name__}.{name}"
                if pattern == "all" or re.search(pattern, full):
                    getattr(instance, name)()
