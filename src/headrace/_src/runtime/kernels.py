"""Bind a node to a kernel. In: a node or operation and a session's resources. Out: a function from
the values of its inputs to its results.

An op has a table of kernels for each type of device. The first kernel that can run here and does
not decline its inputs computes the result. On a CPU the last one is the NumPy kernel, and tests
compare the others (oneDNN's) with it. Element-wise ops that have only the NumPy kernel use
generated code for large arrays (runtime.generated_kernels).

A specialised program relies on its variables having their declared shapes. The kernels that find
the variables check this and raise ShapesChanged. With HEADRACE_VERIFY the shapes and types of all
results are checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from headrace._src.core import errors
from headrace._src.core.config import settings
from headrace._src.core.dtypes import resource
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.pending import Pending
from headrace._src.devices.resources import OPERATION_STATE, ResourceHandle, Resources, removals
from headrace._src.devices.step_context import StepContext, current
from headrace._src.devices.variable_state import VariableState
from headrace._src.graph.dataflow import Node, ValueType, origin_of
from headrace._src.graph.definition import HOST, Effect, bind_kernel
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.program import Program
from headrace._src.runtime.generated_kernels import with_generated

_BROADCAST = re.compile(
    r"operands could not be broadcast together with (?:remapped )?shapes ((?:\([\d,]*\) ?)+).*"
)

__all__ = ["NodeContext", "ShapesChanged", "bind", "copy_of", "echo", "share", "take", "translate"]


class ShapesChanged(Exception):
    """A variable does not have the shape that a program is specialised for."""


def _nothing() -> Any:
    """A weak reference to nothing."""


class NodeContext:
    """The `ctx` argument of a kernel: its operation, its device and the session's state there."""

    __slots__ = ("_bound", "_handle", "_make", "_state", "device", "op", "resources")

    def __init__(self, op: Operation | Node, resources: Resources, make: Any = None) -> None:
        self.op = op
        self.resources = resources
        self.device = resources.device(op.device)
        self._make = make
        self._handle: ResourceHandle | None = None  # the last one: most operations use only one
        self._bound: dict[int, Callable[[list[Any]], list[Any]]] = {}
        self._state: tuple[Any, int] = _nothing, -1  # its own, and removals until then

    @property
    def name(self) -> str:
        """The operation's name; in a function's body, the function's name comes before it."""
        label = getattr(getattr(origin_of(self.op), "graph", None), "label", "")
        return f"{label}/{self.op.name}" if label else self.op.name

    @property
    def attrs(self) -> dict[str, Any]:
        return self.op._attrs

    @property
    def step(self) -> StepContext | None:
        """The step that runs in this thread."""
        return current()

    def bound(self, part: Program) -> Callable[[list[Any]], list[Any]]:
        """Return the function that runs a part of a structured operation."""
        found = self._bound.get(id(part))
        if found is None:
            found = self._bound[id(part)] = self._make(part)
        return found

    def call(self, function: Any, args: Sequence[Any]) -> list[Any]:
        """Call a function of the graph with these arguments and return its results."""
        return self.resources.functions.call(function, args)

    def gradient(self, function: Any) -> Any:
        """Return the function that computes the gradients of `function`."""
        return self.resources.functions.gradient(function)

    def handle(self, container: str, name: str, kind: type) -> ResourceHandle:
        """Return the handle of a resource on this device."""
        found = self._handle
        if found is None or (found.container, found.name, found.kind) != (container, name, kind):
            found = self._handle = ResourceHandle(self.device.name, container, name, kind)
        return found

    def find(self, handle: ResourceHandle) -> Any:
        """Return the resource that a handle names; raise NotFoundError if there is none."""
        return self.resources.find(handle)

    def find_or_make(self, container: str, name: str, kind: type, make: Callable[[], Any]) -> Any:
        """Return the resource of this name on this device; make it if there is none."""
        return self.resources.get_or_create(self.device.name, container, name, kind, make)

    def state(self, kind: type, make: Callable[[], Any]) -> Any:
        """Return this operation's own state in this session, such as a generator's counter."""
        reference, then = self._state
        now = removals()
        state = reference() if now == then else None
        if type(state) is not kind:
            resources = self.resources
            name = OPERATION_STATE + self.name
            state = resources.get_or_create("", resources.operations, name, kind, make)
            with suppress(TypeError):  # its kind has no weak references
                self._state = ref(state), now
        return state


def bind(
    op: Operation | Node,
    resources: Resources,
    make: Callable[[Program], Any] | None = None,
    context_type: type[NodeContext] = NodeContext,
    specialised: bool = False,
    guarded: bool = True,
) -> Callable[..., Any]:
    """Return the function that runs `op` on the values of its inputs.

    make: binds the programs inside a structured operation.
    context_type: the class of the `ctx` that the kernel gets.
    specialised: whether the program relies on the node's types.
    guarded: whether a node that finds a variable checks the variable's shape.
    """
    context = context_type(op, resources, make)
    table = op.definition.table(context.device.type)
    if not table:
        raise errors.InvalidArgumentError(None, origin_of(op), _no_kernel(op, context.device.type))
    run = bind_kernel(op, context, table[-1].run)
    for kernel in reversed(table[:-1]):
        run = _preferring(kernel.when, bind_kernel(op, context, kernel.run), run)
    if len(table) == 1 and context.device.type == HOST and op.definition.lower is not None:
        run = with_generated(op, run, specialised)
    if specialised and isinstance(op, Node):
        if guarded and not op.inputs:
            run = _guarding(op, run, resources)
        if settings().verify:
            run = _checking(op, run)
    return run


def _guarding(node: Node, find: Callable[..., Any], resources: Resources) -> Callable[..., Any]:
    """Wrap a node that finds a variable, or its handle, so that it checks the variable's shape.

    What it found is cached until a resource is removed, with a weak reference to the variable.
    """
    if len(node.types) != 1:
        return find
    (value,) = node.outputs
    if value.dtype._is_ref_dtype:
        shape, state_of = value.shape, _variable_or_none
    elif value.dtype is resource and value._handle_data is not None:
        shape, state_of = value._handle_data.shape, partial(_state_behind, resources)
    else:
        return find
    if shape.sizes is None:
        return find
    sizes = shape.sizes
    lasts = node.definition.effect is Effect.READS  # the same variable in each step
    known: tuple[Any, Any, int] = None, None, -1  # the handle, the variable, removals until then

    def run() -> Any:
        nonlocal known
        handle, reference, then = known
        now = removals()
        if now == then:
            state = reference()
            if state is not None and state.sizes == sizes:
                return state if handle is None else handle
        found = find()
        state = state_of(found)
        if state is not None and lasts:
            known = None if found is state else found, ref(state), now
        held = None if state is None else state.sizes
        if held is not None and held != sizes and not shape.is_compatible_with(held):
            raise ShapesChanged(f"{state!r} holds {held}")
        return found

    return run


def _variable_or_none(found: Any) -> VariableState | None:
    return found if isinstance(found, VariableState) else None  # old queues are references too


def _state_behind(resources: Resources, handle: Any) -> VariableState | None:
    return _variable_or_none(resources.peek(handle))


def _checking(node: Node, run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel so that it checks its results against the node's types."""
    several = len(node.types) > 1 or node.definition.schema.has_list_outputs

    def checked(*values: Any) -> Any:
        result = run(*values)
        if isinstance(result, Pending):
            return result
        results = result if several else (result,) if node.types else ()
        for value, expected in zip(results, node.types, strict=False):
            if not _fits(value, expected):
                raise RuntimeError(
                    f"the kernel of {node.type} gave {np.asarray(value).dtype}"
                    f"{list(np.shape(value))} where {expected} was expected"
                )
        return result

    return checked


def _fits(value: Any, expected: ValueType) -> bool:
    if not isinstance(value, np.ndarray | np.generic):
        return True  # references, handles, strings and other Python objects
    right = expected.shape.is_compatible_with(TensorShape.of(value.shape))
    return right and value.dtype == expected.dtype.numpy


def _preferring(
    when: Callable[[], bool], preferred: Callable[..., Any], other: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a kernel that calls `preferred`, and falls back to `other` if that declines."""

    def run(*values: Any) -> Any:
        if when():
            result = preferred(*values)
            if result is not NotImplemented:
                return result
        return other(*values)

    return run


def _no_kernel(op: Operation | Node, device_type: str) -> str:
    return (
        f"No OpKernel was registered to support Op '{op.type}' on a device of type {device_type}: "
        f"operation {op.name}"
    )


def failure(
    error: Exception,
    op: Operation | Node,
    inputs: Sequence[Any],
    feeds: Sequence[tuple[Tensor, Any]],
) -> errors.OpError:
    """Return the error that a step raises when a kernel has raised `error`.

    It belongs to TensorFlow's tree, names the shapes of the kernel's inputs and of the feeds, and
    hides our own stack frames. An InternalError has `error` as its cause: it comes from a user's
    function or from a bug in a kernel. For bad inputs the message says enough.
    """
    translated = translate(error, op)
    if not isinstance(error, errors.OpError):
        if inputs:
            shown = ", ".join(_describe(t, v) for t, v in zip(_named(op), inputs, strict=True))
            translated.add_detail(f"inputs: {shown}")
        if feeds:
            translated.add_detail(f"feeds: {', '.join(_describe(t, v) for t, v in feeds)}")
        ours = isinstance(translated, errors.InternalError)
        translated.__cause__ = error if ours else None
    translated.__suppress_context__ = True
    return translated.with_traceback(None)


def _named(op: Operation | Node) -> Sequence[Any]:
    """Return the inputs with the client's names, if node and operation have the same inputs."""
    origin = origin_of(op)
    same = origin.definition is op.definition and len(origin._inputs) == len(op._inputs)
    return origin._inputs if same else op._inputs


def _describe(t: Any, value: Any) -> str:
    shape = ",".join(map(str, np.shape(value))) if not isinstance(value, VariableState) else "?"
    return f"{t.name} {t.dtype.base_dtype.name}[{shape}]"


def translate(error: Exception, op: Operation | Node) -> errors.OpError:
    """Turn a kernel's exception into an error of TensorFlow's tree that names the operation."""
    op = origin_of(op)
    if isinstance(error, errors.OpError):
        if error.op is None:
            error._op = op
        return error
    kind: Any
    if isinstance(error, MemoryError):
        kind = errors.ResourceExhaustedError
    elif isinstance(error, NotImplementedError):
        kind = errors.UnimplementedError
    elif isinstance(error, ValueError | TypeError | IndexError | ArithmeticError | KeyError):
        kind = errors.InvalidArgumentError
    else:
        kind = errors.InternalError
    text = _BROADCAST.sub(_incompatible, str(error).strip())
    return kind(None, op, f"{op.type} '{op.name}': {text}")


def _incompatible(found: re.Match[str]) -> str:
    """Return TensorFlow's message for arrays that NumPy cannot broadcast."""
    shapes = [shape.rstrip(",") for shape in re.findall(r"\(([\d,]*)\)", found[1])]
    return f"Incompatible shapes: {' vs. '.join(f'[{shape}]' for shape in shapes)}"


def take(slots: list[Any], index: int) -> Any:
    """Return the value in a slot without a copy: nothing else holds it (see Program.owned)."""
    value = slots[index]
    if type(value) is np.ndarray and value.ndim and value.flags.writeable:
        return value if value.dtype.names is None else copy_of(slots, index)
    return copy_of(slots, index)


def copy_of(slots: list[Any], index: int) -> Any:
    """Return a copy of the value in a slot; a scalar becomes a NumPy scalar."""
    value = slots[index]
    if isinstance(value, VariableState):
        value = value.read()
    elif not isinstance(value, np.ndarray):
        if isinstance(value, np.generic) or not hasattr(value, "__array__"):
            return value
        value = np.asarray(value)  # an array of another type of device
    elif value.dtype.names:  # quantized numbers are returned as plain integers
        return np.array(value.view(value.dtype[0]))[()]
    return np.array(value) if value.ndim else value[()]


def share(slots: list[Any], index: int) -> Any:
    """Return the value in a slot without a copy.

    Others may hold the array, but no one writes to it while the caller holds it.
    """
    value = slots[index]
    return value.read() if isinstance(value, VariableState) else value


def echo(slots: list[Any], index: int) -> Any:
    """Return a copy of a fed value: as in TensorFlow, always an array, even of rank 0."""
    value = slots[index]
    return np.array(value) if isinstance(value, np.ndarray) else value
