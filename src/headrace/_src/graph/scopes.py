"""Scopes: settings of a with-block for the operations made inside it.

A `ScopeState` holds, for one thread and one graph: the name prefix, the device requests (innermost
last), the control dependencies, the control-flow context, the colocation group, extra attributes,
gradient overrides, the container, the variable scope and the variables' creators. `ControlScope`
and `DeviceScope` are the entries of their stacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace._src.core.device_names import DeviceSpec, merge_device

if TYPE_CHECKING:
    from headrace._src.graph.contexts import ControlFlowContext
    from headrace._src.graph.operation import Operation

__all__ = ["ControlScope", "DeviceScope", "ScopeState", "new_scopes"]


class _Beginning:
    """The initial scopes of a thread."""

    def __init__(self) -> None:
        self.devices: list[DeviceScope] = []
        self.controls: list[ControlScope] = []
        self.colocation: list[Operation] = []


class ScopeState(threading.local):
    """The scopes that are open in the current thread."""

    def __init__(self, beginning: _Beginning) -> None:
        self._beginning = beginning
        self.name = ""  # prefix of new names, without a trailing slash
        self.devices = list(beginning.devices)
        self.controls = list(beginning.controls)
        self.context: ControlFlowContext | None = None  # the branch or loop that is being built
        self.colocation = list(beginning.colocation)
        self.attrs: dict[str, Any] = {}
        self.gradient_overrides: dict[str, str] = {}
        self.gradient_source = ""  # the name scope of the tf.gradients that is being made
        self.container = ""
        self.variable_scope: Any = None  # the innermost tf.variable_scope's VariableScope
        self.variable_creators: tuple[Callable[..., Any], ...] = ()  # outermost first

    def begin_here(self) -> None:
        """Make threads that are new to the graph start with this thread's scopes."""
        self._beginning.devices = list(self.devices)
        self._beginning.controls = list(self.controls)
        self._beginning.colocation = list(self.colocation)


def new_scopes() -> ScopeState:
    """The scopes of a graph."""
    return ScopeState(_Beginning())


class DeviceScope:
    """One `tf.device(...)`: a function that gives an operation its device, or None to ignore outer
    ones.
    """

    __slots__ = ("function", "request")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.function: Callable[[Any], Any] | None
        if request is None or (callable(request) and not isinstance(request, DeviceSpec)):
            self.function = request
        else:
            self.function = merge_device(request)


class ControlScope:
    """One `control_dependencies(...)`: operations that must run before those made inside the block.

    An operation that depends on another one made in the block needs no control edge: `seen` holds
    the block's operations for this check.
    """

    __slots__ = ("inputs", "seen")

    def __init__(self, inputs: Sequence[Operation]) -> None:
        self.inputs = inputs
        self.seen: set[Operation] = set()


def control_inputs_for(scopes: list[ControlScope], inputs: set[Operation]) -> list[Operation]:
    """Return the control inputs of a new operation that takes data from the operations `inputs`."""
    return [
        op
        for scope in scopes
        if inputs.isdisjoint(scope.seen)
        for op in scope.inputs
        if op not in inputs
    ]
