"""A compiled region as a kernel of the interpreter. In: arrays and references to variables. Out:
the region's outputs.

Variables that the region writes are written in place, under their locks, as every update is; a
variable's array that a reader still holds is copied first (devices.variable_state). What a fault
may leave half done is copied too, for the interpreter to begin anew. Re-entrant.

Kernels that were chosen by timing are thought over between steps (run.second_thoughts). If others
turn out to be faster, the region gets a new plan; steps that run meanwhile end with the old one.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import compress
from operator import methodcaller
from typing import Any

import numpy as np

from headrace._src.compile.build.families import FAMILIES, Family
from headrace._src.compile.build.maps_and_reductions import (
    build_copy,
    build_join,
    build_map,
    build_reduce,
)
from headrace._src.compile.build.plan_builder import build
from headrace._src.compile.build.rowwise import build_rows
from headrace._src.compile.build.tensor_list_buffers import list_use
from headrace._src.compile.plan.plan import Plan
from headrace._src.compile.regions.fuse import fuse
from headrace._src.compile.regions.layouts import (
    Blocks,
    blocked_values,
    outputs_in_blocks,
    to_blocks,
    to_plain,
)
from headrace._src.compile.regions.region import (
    Region,
    is_reference,
    writes_of,
)
from headrace._src.compile.run.choose import Question, asking
from headrace._src.compile.run.driver import Fault, Full, NativeCluster
from headrace._src.compile.run.memory_ahead import claim
from headrace._src.compile.run.second_thoughts import SecondThoughts
from headrace._src.core.config import settings
from headrace._src.core.dtypes import as_dtype, resource
from headrace._src.core.errors import OpError, UnavailableError
from headrace._src.core.locks import Lock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.batches import own
from headrace._src.devices.buffers import ALIGNMENT, ReusedMemory, empty_aligned
from headrace._src.devices.device import Device, find_device, local_devices
from headrace._src.devices.openmp import thread_count
from headrace._src.devices.resources import ResourceHandle
from headrace._src.devices.swap_files import swaps
from headrace._src.devices.target import Target, host
from headrace._src.devices.variable_state import VariableState, in_order, new_memory
from headrace._src.graph.control_roles import DEAD
from headrace._src.graph.dataflow import Node, Value
from headrace._src.graph.definition import Effect, asks_for_step
from headrace._src.graph.run_nodes import run_nodes
from headrace._src.lowering.rules import Anchor, Update
from headrace._src.ops.control.loops_and_branches import Structure

__all__ = ["Compiled", "compile_region", "plan_region"]

_ACQUIRE, _RELEASE = methodcaller("acquire"), methodcaller("release")
_READ, _LOOK = methodcaller("read"), methodcaller("look")
_WRITABLE = methodcaller("writable")  # of a generator, too
# Elements of all values of a region together, up to which one thread runs it: to wake the others
# and to wait for them takes longer, and far longer where other processes use the cores.
_TINY = 1 << 14
# The families of anchors that do so little with each element that more of them are few.
_LIGHT = {"cut", "divisor", "gather", "generator", "random", "scatter"}
_TINY_IF_LIGHT = 1 << 16
_PLAIN = {  # the builders of groups without anchors
    "map": build_map,
    "copy": build_copy,
    "join": build_join,
    "reduce": build_reduce,
    "rows": build_rows,
}


def plan_region(
    region: Region,
    target: Target | None = None,
    threads: int | None = None,
    families: Mapping[str, Family] = FAMILIES,
    plain: bool = False,
) -> Plan:
    """Return the plan of a region: choose layouts (unless all are plain), groups,
    kernels, memory.
    """
    target = target or host()
    blocked = Blocks(target.block) if plain else blocked_values(region, target.block)
    groups = fuse(region, blocked)
    builders = _PLAIN | {name: family.build for name, family in families.items()}
    return build(region, groups, blocked, builders, target, threads or thread_count())


def compile_region(region: Region, reusable: Set[Value] = frozenset()) -> Compiled:
    """Compile a region for this process. `reusable`: the outputs whose memory can be used again
    once their arrays are gone.
    """
    blocked = blocked_values(region, host().block)
    with asking() as questions:
        plan = plan_region(region)
    return Compiled(region, plan, blocked, reusable, list(questions.values()))


class Compiled:
    """A region's native code with everything that a run must check and allocate."""

    is_silent = True  # NumPy does no arithmetic here, so it has no overflow to report

    def __init__(
        self,
        region: Region,
        plan: Plan,
        blocked: Blocks,
        reusable: Set[Value] = frozenset(),
        questions: Sequence[Question] = (),
    ) -> None:
        self.plan = plan
        self._region = region
        self._thoughts = SecondThoughts(questions) if questions else None
        self._thinking = Lock()
        self._block = blocked.size
        self.in_blocks = outputs_in_blocks(region, blocked)
        limits = [(region.inputs.index(v), n) for v, n in region.limits if v in region.inputs]
        device = next((node.device for node in region.nodes), "")  # all may be constants
        where = find_device(device) if device else None
        threads = 1 if _is_tiny(region, plan.has_loops) else None
        self._load = partial(NativeCluster, threads=threads, limits=limits, device=where)
        self._cluster = self._load(plan, ahead=claim(plan.arena))
        self.has_loops = plan.has_loops
        # Where it falls back to the nodes' own kernels, these may ask for the step.
        self.asks_for = ("ctx", "step") if any(map(asks_for_step, region.nodes)) else ("ctx",)
        self._inputs = [_expected(v) for v in region.inputs]
        self._outputs = [
            (_in_file(where or local_devices()[0]), *_expected(v))
            if _is_swapped(v)
            else _allocation(*_expected(v), reusable=v in reusable)
            for v in region.outputs
        ]
        self._variables = _variables(region)
        self._writes = any(v.written for v in self._variables)
        # Whoever holds the locks need not be lent what it reads.
        read = _LOOK if self._writes else _READ
        self._gets = [_WRITABLE if v.written else read for v in self._variables]
        self._shapes = [v.shape for v in self._variables]
        self._handles = any(v.dtype is resource for v in region.variables)
        self._order: tuple[list[Any], list[Any]] = [], []
        self._begun = [i for i, v in enumerate(self._variables) if not v.initialized]
        self._undone = sorted(plan.undone)

    @property
    def effect(self) -> Effect:
        """What the region does to variables."""
        return Effect.WRITES if self._writes else Effect.READS if self._variables else Effect.PURE

    @property
    def region(self) -> Region:
        """What was compiled."""
        return self._region

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that it computes."""
        return self._region.nodes

    @property
    def working_memory(self) -> int:
        """The bytes of the buffers that it works on, besides its inputs and outputs."""
        return self.plan.arena

    @property
    def inputs(self) -> Sequence[Value]:
        return self._region.inputs

    @property
    def references(self) -> Sequence[Value]:
        return list(self._region.variables)

    def reference(self, value: Value) -> Value:
        """Return the reference that enters the region for the same variable."""
        return self._region.reference(value)

    def __call__(self, values: Sequence[Any], *, ctx: Any, step: Any = None) -> list[Any]:
        # The driver checks arrays, in nanoseconds.
        inputs = [
            v if type(v) is np.ndarray else _checked(v, *expected)
            for v, expected in zip(values, self._inputs, strict=False)
        ]
        outputs = [make(shape, dtype) for make, shape, dtype in self._outputs]
        if self._thoughts is None:
            return self._complete(values, inputs, outputs, ctx)
        start = time.perf_counter()
        results = self._complete(values, inputs, outputs, ctx)
        self._think(self._thoughts, time.perf_counter() - start)
        return results

    def _think(self, thoughts: SecondThoughts, seconds: float) -> None:
        """Think over a choice of kernels after a step, if it is time for that."""
        if not self._thinking.acquire(blocking=False):
            return
        try:
            if thoughts.is_done:
                self._thoughts = None
            elif thoughts.after(seconds) and thoughts.visit(time.perf_counter):
                self._replan()
        except Exception as error:  # the step itself is done, with kernels that are right
            self._thoughts = None
            # A cancelled step, or a forked child that can't call oneDNN, may end the timing.
            if settings().verify and not isinstance(error, OpError):
                raise
        finally:
            self._thinking.release()

    def _replan(self) -> None:
        """Build the plan again, with the kernels that are the fastest by now."""
        with asking() as questions:
            plan = plan_region(self._region)
        cluster = self._load(plan)
        # A step that runs now may have either plan: what it may have to undo is in both.
        self._undone = sorted({*self._undone, *plan.undone})
        self.plan, self._cluster = plan, cluster
        self._thoughts = SecondThoughts(questions.values())

    def _complete(
        self, values: Sequence[Any], inputs: list[np.ndarray], outputs: list[np.ndarray], ctx: Any
    ) -> list[Any]:
        """Run the native code, or the nodes' own kernels where it can't."""
        while True:
            try:
                if self._variables:
                    return self._run(values, inputs, outputs, ctx)
                self._cluster.run(inputs, outputs, ())
            except UnavailableError:
                return self._interpret(values, ctx)  # a forked child, which can't call oneDNN
            except Full:
                continue
            except Fault:
                return self._interpret(values, ctx)  # the ops' own kernels say what is wrong
            return outputs

    def _run(
        self, values: Sequence[Any], inputs: list[np.ndarray], outputs: list[np.ndarray], ctx: Any
    ) -> list[Any]:
        """Run on variables too; under their locks, if any is written."""
        states = values[len(inputs) :]
        if self._handles:
            states = [v.find(r, ctx) for v, r in zip(self._variables, states, strict=True)]
        try:
            locks = self._ordered([s.lock for s in states])
        except AttributeError:
            states = [v.blank() if s is DEAD else s for v, s in zip(self._variables, states)]
            locks = self._ordered([s.lock for s in states])
        if len(locks) < len(states):
            return self._interpret(values, ctx)  # two names of one variable
        if not self._writes:
            self._cluster.run(inputs, outputs, self._arrays(states))
            return outputs
        # Ctrl-C may come after any call, so one call takes all locks, and one releases those that
        # were taken.
        held: list[bool] = []
        give_back = partial(deque, map(_RELEASE, compress(locks, held)), 0)
        try:
            held.extend(map(_ACQUIRE, locks))
            arrays = self._arrays(states)
            undone = self._undone
            before = [arrays[i].copy() for i in undone] if undone else ()
            try:
                self._cluster.run(inputs, outputs, arrays)
            except Fault:  # the interpreter starts from the same values
                for i, array in zip(undone, before, strict=True):
                    np.copyto(arrays[i], array)
                raise
            for i in self._begun:
                if not states[i].is_initialized:
                    states[i].adopt(arrays[i])
        finally:
            give_back()
        return outputs

    def _ordered(self, locks: list[Any]) -> list[Any]:
        """Return the distinct locks in order. The last answer is cached, because variables are the
        same in every step.
        """
        known, ordered = self._order
        if locks != known:
            ordered = in_order(locks)
            self._order = locks, ordered
        return ordered

    def _arrays(self, states: Sequence[VariableState]) -> list[np.ndarray]:
        """Return the variables' arrays. Nearly always all of them are valid, so one check of all
        comes before the search for the one that isn't.
        """
        try:
            arrays = [get(state) for get, state in zip(self._gets, states, strict=True)]
        except OpError:
            arrays = []
        if [a.shape for a in arrays] == self._shapes:
            return arrays
        return [
            v.read(s, get) for v, s, get in zip(self._variables, states, self._gets, strict=True)
        ]

    def _interpret(self, values: Sequence[Any], ctx: Any) -> list[Any]:
        """Run the region's nodes one by one: what the native code assumed doesn't hold. Like the
        native code's, the outputs are in memory of their own.
        """
        with np.errstate(all="ignore"):
            return [own(v) for v in self._by_node(values, ctx)]

    def _by_node(self, values: Sequence[Any], ctx: Any = None) -> list[Any]:
        region, block = self._region, self._block
        known = dict(zip((*region.inputs, *region.variables), values, strict=True))
        known |= {v: to_plain(known[v], block) for v in region.in_blocks if v in known}
        results = run_nodes(region.nodes, known, region.outputs, ctx)
        pairs = zip(region.outputs, results, strict=True)
        return [to_blocks(r, block) if v in self.in_blocks else r for v, r in pairs]

    def __str__(self) -> str:
        return str(self.plan)


def _is_tiny(region: Region, has_loops: bool) -> bool:
    """Return whether a region has few elements, and computes little with each."""
    rules = [n.definition.lower for n in region.nodes]
    light = [isinstance(rule, Anchor) and rule.family in _LIGHT for rule in rules]
    if has_loops or any(
        isinstance(r, Anchor) and not is_light for r, is_light in zip(rules, light)
    ):
        return False
    values = {v for n in region.nodes for v in (*n.inputs, *n.outputs) if not is_reference(v)}
    sizes = [v.type.sizes for v in values]
    known = [math.prod(s) for s in sizes if s is not None]
    most = _TINY_IF_LIGHT if all(light) else _TINY
    return len(known) == len(sizes) and sum(known) <= most


def _expected(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    return value.type.sizes, np.dtype(value.dtype.base_dtype.as_numpy_dtype)


def _allocation(
    shape: tuple[int, ...], dtype: np.dtype, reusable: bool = False
) -> tuple[Any, tuple[int, ...], np.dtype]:
    """Return the function that allocates an output, and its arguments. Alignment costs a
    microsecond and pays from one vector on. An output that only clusters and collectives read has
    memory that is used again: the system clears each page of new memory, which takes as long as
    writing it, and collectives find their inputs where they were in the last step.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < ALIGNMENT:
        return np.empty, shape, dtype
    return ReusedMemory() if reusable else empty_aligned, shape, dtype


def _is_swapped(output: Value) -> bool:
    """Return whether an output is what a loop with `swap_memory` saves, and goes to a file."""
    node = output.producer
    use = list_use(node) if isinstance(node, Node) else None
    return use is not None and use.kind == "rows" and use.swaps and output.index == 0 and swaps()


def _in_file(device: Device) -> Callable[[tuple[int, ...], np.dtype], np.ndarray]:
    """Return the function that allocates an output in a file. Memory of the last step is not used
    again, because a forked child would share it.
    """

    def make(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        memory = device.allocator.swapped_block(math.prod(shape) * dtype.itemsize)
        return np.ndarray(shape, dtype, memory)

    return make


def _checked(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if value is DEAD:
        # An earlier branch on the same predicate did not compute it, so no branch here reads it.
        # The native code still needs memory of the declared size.
        return np.zeros(shape, dtype)
    array = np.ascontiguousarray(value)
    array = array.reshape(shape) if array.size == 1 and not shape else array
    if array.shape != shape or array.dtype != dtype:
        raise AssertionError(
            f"a cluster made for {dtype}{list(shape)} got {array.dtype}{list(array.shape)}"
        )
    return array


class _Variable:
    """How a cluster uses one variable. `op` is named in the error if it can't be read."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self.written = False
        self.initialized = True  # whether it must have a value before
        self.certain = False  # whether it's read in any case, not only in a loop or branch
        self.op: Any = None

    def find(self, reference: Any, ctx: Any) -> VariableState:
        """Return the variable that a reference or a handle refers to."""
        if not isinstance(reference, ResourceHandle):
            return reference
        if self.initialized:
            return self._needed(partial(ctx.find, reference))
        return ctx.resources.get_or_create(
            reference.device,
            reference.container,
            reference.name,
            VariableState,
            lambda: VariableState(
                reference.name,
                as_dtype(self.dtype),
                TensorShape(None),
                ctx.resources.device(reference.device).allocator,
            ),
        )

    def blank(self) -> VariableState:
        """Return a stand-in for a variable that only a branch that isn't taken would use."""
        state = VariableState("", as_dtype(self.dtype), TensorShape.of(self.shape))
        state.assign(np.zeros(self.shape, self.dtype))
        return state

    def read(self, state: Any, get: Callable[[Any], np.ndarray]) -> np.ndarray:
        """The variable's array, by `get`; a new one if the cluster is what gives the variable its
        first value.
        """
        if not self.initialized and not state.is_initialized:
            return new_memory(self.shape, self.dtype)
        array = self._needed(partial(get, state))
        if array.shape != self.shape:
            raise ValueError(
                f"variable {state.name} has shape {list(array.shape)}; the graph says "
                f"{list(self.shape)}"
            )
        return array  # the driver sees to its type and order

    def _needed(self, get: Callable[[], Any]) -> Any:
        """Return the value of an initialised variable; raise Fault if the step may not need it."""
        try:
            return get()
        except OpError as error:
            if not self.certain:
                raise Fault from None
            if error.op is None:
                error._op = self.op
            raise


def _variables(region: Region) -> list[_Variable]:
    found: dict[int, _Variable] = {}
    for node in region.nodes:
        rule = node.definition.lower
        references = [(i, v) for i, v in enumerate(node.inputs) if is_reference(v)]
        for i, value in references:
            number = region.variable(value)
            if number not in found:
                described = node.variable_type(i)
                assert described is not None
                dtype, shape = described
                found[number] = _Variable(shape, _numpy(dtype))
                found[number].op = node.origin
                found[number].initialized = not (isinstance(rule, Update) and rule.initializes)
            found[number].certain |= not isinstance(node.geometry, Structure)
            if value in writes_of(node):
                found[number].written = True
    return [found[i] for i in range(len(found))]


def _numpy(dtype: str) -> np.dtype:
    return np.dtype(as_dtype(dtype).as_numpy_dtype)
