"""Run steps of a graph. In: fetches and feeds. Out: values.

A session owns the state of its default container and a cache of plans. A plan belongs to one
combination of fetches and feeds: it holds the executables, and knows how to convert the feeds and
how to nest the results. A cache hit costs a few microseconds. Many threads may run at once.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

from headrace._src.core import errors, nest, source
from headrace._src.core.export import export
from headrace._src.core.locks import Lock
from headrace._src.devices.resources import Resources, reset_containers
from headrace._src.graph import default
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.ops.base.registration import load_plugins
from headrace._src.pipeline import Options, prepare
from headrace._src.place.constraints import Placement, StepPlacement
from headrace._src.runtime import Executable, ShapesChanged
from headrace._src.session import configuration, tracing
from headrace._src.session.feeds import feed_array
from headrace._src.session.fetches import FetchPlan, expand_feed, expand_partial_feed
from headrace._src.session.function_runs import FunctionRuns
from headrace._src.session.graph_growth_warning import GrowthWatch
from headrace._src.session.partial_runs import PartialRun, RemotePartialRun, not_set_up
from headrace._src.session.process_config import default_config
from headrace._src.session.specialisations import Variants
from headrace._src.session.watching import timed, watch_step
from headrace._src.variables.variable import Variable
from headrace._src.xla.device import register as register_xla

__all__ = ["BaseSession", "InteractiveSession", "Session"]

Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]

_SEQUENCES = (list, tuple)
_MOST_PLANS = 1024  # A loop that makes new fetches must not keep all their plans.


class _Plan:
    """The prepared form of one combination of fetches and feeds.

    feeds: the fed tensors, in order. direct: whether these tensors are the keys of the feed_dict.
    mutations: the graph's count of changes when the plan was made. runs: the number of runs with
    options, metadata, a deadline or measured costs.
    """

    __slots__ = ("direct", "feeds", "fetches", "mutations", "rebuild", "run", "runs", "variants")

    def __init__(
        self,
        variants: Any,  # Variants, or a step at a master
        feeds: tuple[Tensor, ...],
        direct: bool,
        fetches: FetchPlan,
        mutations: int,
    ) -> None:
        self.variants = variants
        watch = variants.watch
        self.run = variants.run if watch is None else timed(variants.run, watch)
        self.feeds = feeds
        self.direct = direct
        self.fetches = fetches
        self.rebuild = fetches.rebuild
        self.mutations = mutations
        self.runs = 0


class BaseSession:
    """The common base of all sessions; see Session."""

    _is_placed_whole = True  # even operations that do not run need a device

    def __init__(
        self, target: str | bytes = "", graph: Graph | None = None, config: Any = None
    ) -> None:
        target = _checked_target(target)
        register_xla()
        load_plugins()
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        self._graph = graph if graph is not None else default.get_default_graph()
        if self._graph.executes:
            raise RuntimeError(
                "There is nothing to run here: operations have run as they were made. Use "
                "tensor.numpy(), or a session of another graph: tf.Session(graph=graph)."
            )
        if config is None:
            config = default_config()
        self._target = target
        self._options = configuration.options(config, remote=bool(target))
        self._asked = asked = configuration.asked(config)
        # Whether every run may have a deadline or measure its costs.
        self._watched = bool(asked.timeout or asked.cost_every)
        self._costs: Any = None  # a CostPlacement, if the graph is placed by cost
        whole = self._is_placed_whole and not asked.place_pruned
        self._placement = self._new_placement(whole)
        self._resources = self._new_resources()
        self._plans: dict[Any, _Plan] = {}
        self._expected: dict[Signature, dict[Any, int | None]] = {}
        self._lock = Lock()
        self._growth = GrowthWatch()
        self._partial: dict[str, PartialRun | RemotePartialRun] = {}
        self._closed = False
        self._closed_at: Sequence[source.StackFrame] = ()
        # The session at a master, if the target names one: it places and runs the steps.
        self._remote: Any = None
        if target:
            from headrace._src.distributed.client import MasterClient  # only sessions of a cluster

            configuration.check_remote(config)
            self._remote = MasterClient(target, config, whole=self._is_placed_whole)

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def graph_def(self) -> Any:
        return self._graph.as_graph_def(add_shapes=self._asked.infer_shapes)

    @property
    def sess_str(self) -> str:
        return self._target

    def list_devices(self) -> list[tracing.DeviceAttributes]:
        """Return the devices that operations of this session may be placed on."""
        if self._remote is not None:
            return [tracing.DeviceAttributes(*each) for each in self._remote.devices]
        shown = [
            d for d in self._options.devices if not d.on_request or d.type in self._asked.types
        ]
        return [tracing.listed(device) for device in shown]

    def close(self) -> None:
        """Release the session's state; a closed session cannot run.

        Steps of other threads are cancelled if they are blocked or loop; the rest end normally.
        """
        if self._remote is not None and not self._closed:
            self._closed = True
            self._remote.close()
        self._closed = True
        self._closed_at = source.capture()
        self._resources.close(errors.CancelledError(None, None, "the session was closed"))
        self._plans.clear()
        self._partial.clear()
        self._resources = self._new_resources()

    def _closed_error(self) -> RuntimeError:
        closed = source.trail(self._closed_at, "closed at")
        return RuntimeError(f"Attempted to use a closed Session.{source.here('used at')}{closed}")

    def _new_resources(self) -> Resources:
        resources = Resources(self._options.devices)
        resources.functions = FunctionRuns(self._options_for_graph, resources)
        return resources

    def _repr_html_(self) -> str:
        from headrace._src.session.session_html import session_html  # only notebooks need it

        return session_html(self)

    def as_default(self) -> Any:
        """Make this the session of `Tensor.eval` and `Operation.run` within a with-block."""
        return default.push_session(self)

    # -- Running -----------------------------------------------------------------------------------

    def run(
        self,
        fetches: Any,
        feed_dict: dict[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Run the operations that `fetches` need, given `feed_dict`; return values in the nesting
        of `fetches`.
        """
        try:
            key = (type(fetches), *fetches) if isinstance(fetches, _SEQUENCES) else fetches
            key = (key, *feed_dict) if feed_dict else (key,)
            plan = self._plans.get(key)
        except TypeError:
            key = plan = None
        graph = self._graph
        if plan is None or plan.mutations != graph.mutations or self._closed:
            plan = self._plan_for(fetches, feed_dict, key)
        growth = self._growth
        if growth.version != len(graph._operations):
            self._check_placement()
            growth.grew(graph)
        elif growth.streak:
            growth.streak = 0
        if not feed_dict:
            values = []
        elif plan.direct:
            values = [feed_array(t, feed_dict[t]) for t in plan.feeds]
        else:
            expanded = self._expand(feed_dict)
            values = [feed_array(t, expanded[t]) for t in plan.feeds]
        try:
            if options is not None or run_metadata is not None or self._watched:
                results = self._run_watched(plan, values, options, run_metadata)
            else:
                results = plan.run(values)
        except errors.OpError as error:
            failed = error.with_traceback(None)  # the frames below are ours; the message is enough
        else:
            return plan.rebuild(results)
        raise failed

    def _plan_for(self, fetches: Any, feed_dict: dict[Any, Any] | None, key: Any) -> _Plan:
        """Return the plan for these fetches and feeds; make and cache it if necessary."""
        if self._closed:
            raise self._closed_error()
        if self._graph.version == 0:
            raise RuntimeError(
                "The Session graph is empty.  Add operations to the graph before calling run()."
            )
        if feed_dict is not None and not hasattr(feed_dict, "items"):
            kind = type(feed_dict).__name__
            raise TypeError(f"input must be a dictionary: feed_dict is of type {kind}")
        wanted = FetchPlan(self._graph, fetches)
        feeds = tuple(self._expand(feed_dict or {}))
        self._check_placement()
        direct = all(isinstance(k, Tensor) for k in feed_dict or ())
        exact = (*wanted.tensors, None, *wanted.targets, None, *feeds)
        found = self._plans.get(exact)
        if found is None or found.mutations != self._graph.mutations:
            variants = self._prepare(wanted, feeds)
        else:
            variants = found.variants
        plan = _Plan(variants, feeds, direct, wanted, self._graph.mutations)
        with self._lock:
            if self._closed:
                return plan
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[exact] = plan
            if key is not None and _is_stable(key):
                self._plans[key] = plan
        return plan

    def _prepare(self, wanted: FetchPlan, feeds: tuple[Tensor, ...]) -> Any:
        if self._remote is not None:
            mixed = bool(self._options_for_graph().mixed)
            tensors, targets = wanted.tensors, wanted.targets
            return self._remote.prepare(self._graph, tensors, targets, feeds, mixed)
        options = replace(self._options_for_graph(), placement=self._placement)
        watch = watch_step(wanted.tensors, wanted.targets, feeds, options)
        if watch is not None:
            options = replace(options, watch=watch.passed, tell=watch.told)
        step = prepare(wanted.tensors, wanted.targets, feeds, options)
        self._placement.pin(step)
        if self._asked.log_placement and not self._placement.whole:
            print(tracing.step_placement(step), file=sys.stderr)
        expected = self._expected.get(_signature(wanted, feeds))
        return Variants(step, options, self._resources, expected, watch)

    def _new_placement(self, whole: bool) -> Placement:
        devices, soft = self._options.devices, self._options.soft_placement
        if not whole:
            return StepPlacement(self._graph, devices, soft)
        if self._asked.place_by_cost and len(devices) > 1:
            from headrace._src.session.cost_placement import CostPlacement  # on request only

            self._costs = CostPlacement(self._graph, devices)
            return Placement(self._graph, devices, soft, self._costs.choose)
        return Placement(self._graph, devices, soft)

    def _check_placement(self) -> None:
        """Raise if an operation of the graph has no device, even if the step does not run it."""
        if self._remote is not None:
            return  # the master places the graph
        with self._lock:
            placed = self._placement.extend()
        if placed and self._asked.log_placement:
            print(tracing.graph_placement(self._placement, placed), file=sys.stderr)

    def _options_for_graph(self) -> Options:
        return configuration.options_for(self._options, self._graph)

    def _look_at(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return the values of tensors. They may share memory with variables: do not write."""
        plan = self._plan_for(list(tensors), None, None)
        return plan.rebuild(plan.variants.shared().run([]))

    # -- Resuming in another process (see session.resuming) ----------------------------------------

    def _seen_steps(self) -> list[Any]:
        """Return the steps that have run: names of tensors, targets and feeds; shapes of feeds, and
        for each how often it ran, None if it is no longer going to be compiled.
        """
        with self._lock:
            plans = {id(plan.variants): plan for plan in self._plans.values()}.values()
        seen = dict(self._expected)
        for plan in plans:
            seen[_signature(plan.fetches, plan.feeds)] = plan.variants.seen()
        found = []
        for signature, runs in seen.items():
            shapes = sorted(runs, key=str)
            found.append([*signature, shapes, [runs[key] for key in shapes]])
        return found

    def _expect_steps(self, steps: Iterable[Any]) -> None:
        """Treat steps that another process has run as if this session had run them."""
        for tensors, targets, feeds, shapes, *counts in steps:
            keys = [tuple(map(tuple, shape)) for shape in shapes]
            runs: Iterable[int | None] = counts[0] if counts else repeat(None)  # in older files
            self._expected[tuple(tensors), tuple(targets), tuple(feeds)] = dict(zip(keys, runs))

    def _expand(self, feed_dict: dict[Any, Any]) -> dict[Tensor, Any]:
        """Resolve the keys of a feed_dict to tensors of this graph."""
        found: dict[Tensor, Any] = {}
        for key, value in nest.flatten_dict_items(feed_dict).items():
            try:
                pairs = expand_feed(key, value)
            except TypeError as error:
                raise TypeError(f"Cannot interpret feed_dict key {key!r}: {error}") from None
            for element, piece in pairs:
                found[self._feed_tensor(element)] = piece
        return found

    def _feed_tensor(self, element: Any) -> Tensor:
        try:
            tensor = self._graph.as_graph_element(element, allow_operation=False)
        except (TypeError, ValueError, KeyError) as error:
            raise TypeError(f"Cannot interpret feed_dict key as Tensor: {error.args[0]}") from None
        if not self._graph.is_feedable(tensor):
            raise ValueError(f"Tensor {tensor} may not be fed.")
        return tensor

    def _run_watched(
        self, plan: _Plan, values: list[Any], options: Any, metadata: Any
    ) -> list[Any]:
        """Run a step with a deadline or under observation, and time it for a watch."""
        run = partial(self._run_with, plan, options=options, metadata=metadata)
        watch = plan.variants.watch
        return run(values) if watch is None else timed(run, watch)(values)

    def _run_with(self, plan: _Plan, values: list[Any], options: Any, metadata: Any) -> list[Any]:
        configuration.check_run(options, metadata)
        timeout = self._asked.timeout
        if options is not None:
            timeout = options.timeout_in_ms or timeout
        plan.runs += 1
        if self._remote is not None:
            return self._run_remotely(plan, values, timeout or 0, options, metadata)
        recorder = tracing.recorder(options, metadata, self._asked.measures(plan.runs))
        executable = plan.variants.choose(values)
        # The deadline starts here: the time to compile the step does not count.
        deadline = time.monotonic() + timeout / 1e3 if timeout else None
        try:
            return self._observed(executable, values, deadline, recorder)
        except ShapesChanged:
            executable = plan.variants.despecialise()
        return self._observed(executable, values, deadline, recorder)

    def _run_remotely(
        self, plan: _Plan, values: list[Any], timeout: int, options: Any, metadata: Any
    ) -> list[Any]:
        """Run a step at the master, and collect what the workers have recorded."""
        asked = None if metadata is None else options
        times = asked is not None and asked.trace_level > 0
        graphs = asked is not None and asked.output_partition_graphs
        results, recorded = plan.variants.run_with(values, timeout, times, graphs)
        if metadata is not None:
            tracing.collect(metadata, recorded, self._graph)
        return results

    def _observed(
        self,
        executable: Executable,
        values: list[Any],
        deadline: float | None,
        recorder: tracing.TraceRecorder | None,
    ) -> list[Any]:
        observe = recorder.observe if recorder is not None and recorder.observes else None
        step = executable.step(deadline, observe)
        with self._resources.running(step):
            results = step.run(values)
        if recorder is not None:
            recorder.finish(executable.program, self._graph)
            if self._costs is not None and self._costs.add(recorder.events, executable.program):
                self._place_again()
        return results

    def _place_again(self) -> None:
        """Choose devices by the costs that were measured so far; later steps are prepared anew."""
        with self._lock:
            self._placement.reconsider()
            self._plans.clear()

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """Return a function that runs `fetches`.

        Its arguments are the values of `feed_list`, in order.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError("`feed_list` must be a list or tuple.")
        keys = [self._feed_tensor(f) for f in feed_list or ()]
        plan = self._plan_for(fetches, dict.fromkeys(keys), None)

        def call(*values: Any, **kwargs: Any) -> Any:
            if kwargs and not (accept_options and kwargs.keys() <= {"options", "run_metadata"}):
                raise TypeError(f"unexpected arguments: {sorted(kwargs)}")
            if len(values) != len(keys):
                raise TypeError(f"this callable takes {len(keys)} values, not {len(values)}")
            if self._closed:
                raise self._closed_error()
            arrays = list(map(feed_array, keys, values))
            if kwargs:
                got = self._run_watched(
                    plan, arrays, kwargs.get("options"), kwargs.get("run_metadata")
                )
                return plan.rebuild(got)
            return plan.rebuild(plan.run(arrays))

        return call

    # -- Partial runs ------------------------------------------------------------------------------

    def partial_run_setup(self, fetches: Any, feeds: Sequence[Any] | None = None) -> str:
        """Declare the fetches and feeds of a step that `partial_run` will run piece by piece.

        Returns the handle of the partial run.
        """
        tensors = [self._feed_tensor(e) for f in feeds or () for e in expand_partial_feed(f)]
        plan = self._plan_for(fetches, dict.fromkeys(tensors), None)
        if not (plan.fetches.tensors or plan.fetches.targets):
            raise errors.InvalidArgumentError(
                None, None, "Must specify at least one target to fetch or execute."
            )
        handle = f"partial_run_{id(plan)}_{len(self._partial)}_{time.monotonic_ns()}"
        if self._remote is None:
            self._partial[handle] = PartialRun(handle, plan)
        else:
            wanted, mixed = plan.fetches, bool(self._options_for_graph().mixed)
            step = self._remote.prepare(
                self._graph, wanted.tensors, wanted.targets, plan.feeds, mixed, piecewise=True
            )
            self._partial[handle] = RemotePartialRun(handle, plan, step)
        return handle

    def partial_run(
        self, handle: str, fetches: Any, feed_dict: dict[Any, Any] | None = None
    ) -> Any:
        """Feed more values of a partial run, and return the values of `fetches`."""
        if self._closed:
            raise self._closed_error()
        run = self._partial.get(handle)
        if run is None:
            raise not_set_up(handle)
        wanted = FetchPlan(self._graph, fetches)
        values = {t: feed_array(t, v) for t, v in self._expand(feed_dict or {}).items()}
        try:
            results = run.advance(wanted.tensors, wanted.targets, values)
        finally:
            if run.is_over:
                self._partial.pop(handle, None)
        return wanted.rebuild(results)

    # -- Containers --------------------------------------------------------------------------------

    @staticmethod
    def reset(target: str, containers: Sequence[str] | None = None, config: Any = None) -> None:
        """Drop the state in named containers (in all of them by default): of this process, or of
        the tasks that a target's cluster has and `config`'s device filters name.
        """
        target = _checked_target(target)
        load_plugins()
        if isinstance(containers, str):
            raise TypeError("containers must be a list of names")
        if target:
            from headrace._src.distributed.client import MasterClient  # only sessions of a cluster

            filters = [] if config is None else list(config.device_filters)
            MasterClient.reset(target, containers or (), filters)
        else:
            reset_containers(containers)


def _signature(wanted: FetchPlan, feeds: Sequence[Tensor]) -> Signature:
    """Return the names of a step's tensors, targets and feeds."""
    return (
        tuple(t.name for t in wanted.tensors),
        tuple(op.name for op in wanted.targets),
        tuple(t.name for t in feeds),
    )


def _is_stable(key: Any) -> bool:
    """Return whether equal keys always mean the same plan: all parts are elements or names."""
    parts = key[0][1:] if isinstance(key[0], tuple) else key[:1]
    return all(map(_is_element, parts)) and all(map(_is_element, nest.flatten(key[1:])))


def _is_element(part: Any) -> bool:
    return isinstance(part, Tensor | Operation | Variable | str)


def _checked_target(target: Any) -> str:
    """Return the target of a session: "" for this process, or that of a server."""
    if not isinstance(target, str | bytes):
        raise TypeError(f"target must be a string, but got {type(target)}")
    target = target if isinstance(target, str) else target.decode()
    if target and not target.startswith("grpc://"):
        raise errors.NotFoundError(
            None,
            None,
            f'No session factory registered for the given session options: {{target: "{target}"}} '
            "Registered factories are {DIRECT_SESSION, GRPC_SESSION}.",
        )
    return target


@export("Session")
class Session(BaseSession):
    """A session runs operations and evaluates tensors of a graph.

    As a context manager it is the default session, and it closes at the end.
    """

    _scopes: ExitStack | None = None  # the contexts that `with session:` has entered

    def __enter__(self) -> Session:
        if self._scopes is not None:
            raise RuntimeError(
                "Session context managers are not re-entrant. Use `Session.as_default()` if you "
                "want to enter a session multiple times."
            )
        self._scopes = ExitStack()
        self._scopes.callback(self.close)
        self._scopes.enter_context(self._graph.as_default())
        self._scopes.enter_context(self.as_default())
        return self

    def __exit__(self, *details: Any) -> None:
        scopes, self._scopes = self._scopes, None
        if scopes is not None:
            scopes.__exit__(*details)


@export("InteractiveSession")
class InteractiveSession(BaseSession):
    """A session for shells and notebooks, which is the default until it is closed."""

    _active = 0  # the number of open ones in this process
    _is_placed_whole = False  # for trying things out: only operations that run need a device

    def __init__(self, target: str = "", graph: Graph | None = None, config: Any = None) -> None:
        super().__init__(target, graph, config)
        if InteractiveSession._active:
            warnings.warn(
                "An interactive session is already active. This can cause out-of-memory errors in "
                "some cases. You must explicitly call `InteractiveSession.close()` to release "
                "resources held by the other session(s).",
                stacklevel=2,
            )
        InteractiveSession._active += 1
        self._entered_graph = graph is not None
        if self._entered_graph:
            default.graph_stack().append(self._graph)
        default.session_stack().append(self)

    def close(self) -> None:
        if not self._closed:
            InteractiveSession._active -= 1
        super().close()
        if self in default.session_stack():
            default.session_stack().remove(self)
        if self._entered_graph and self._graph in default.graph_stack():
            default.graph_stack().remove(self._graph)
            self._entered_graph = False
