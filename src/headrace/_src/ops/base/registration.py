"""Ops, kernels and devices from outside: what the papers call registration.

A package that is installed beside Headrace can register by itself: an entry point of the group
`headrace` names a module, or a function without arguments, which the first session loads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headrace._src.core.export import export, export_value
from headrace._src.core.locks import RLock
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.device import device_types
from headrace._src.graph import definition as known
from headrace._src.graph.definition import (
    NOT_DIFFERENTIABLE,
    Definition,
    Effect,
    OpKernel,
    keywords_of,
)
from headrace._src.graph.schema import Schema
from headrace._src.ops.base.define import builder_of

__all__ = ["load_plugins", "register_kernel", "register_op"]

_GROUP = "headrace"
_lock = RLock()
_state: str | None = None  # of all entry points: "loading" or "loaded"
_done: list[Any] = []  # entry points that are loaded

export_value("headrace._src.devices.device", "register_device", "register_device")
export_value("headrace._src.devices.device", "Device", "Device")


@export("register_op")
def register_op(
    op_type: str,
    signature: str,
    attributes: str = "",
    *,
    kernel: Callable[..., Any],
    shape: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    stateful: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an op by decorating the function that users call to add it to a graph.

        @tf.register_op(
            "Scale", "x: T -> y: T", "T: {float32|float64}; factor: float = 2.0",
            kernel=lambda x, *, factor: x * x.dtype.type(factor),
            shape=lambda x: x,
            gradient=lambda op, dy: dy * op.get_attr("factor"),
        )
        def scale(x, factor=2.0, name=None):
            '''Return x times a factor.'''

    The function has a docstring and no body. Its parameters are the inputs and attributes of the
    signature, with users' defaults, and `name`.

    signature, attributes: inputs, outputs and attributes with their types, as above.
    kernel: computes the outputs on a CPU, from NumPy arrays; its keyword-only parameters are
        attributes that it needs (or `step`, the step that it runs for). It returns an array, or a
        tuple with one array per output.
    shape: from the inputs' shapes (and attributes that it names) to the output's shape, or a list
        with one per output; None stands for "unknown". ValueError refuses the inputs.
    gradient: from the operation and the gradients of its outputs to those of its inputs.
    stateful: whether it does more than to compute its outputs: then it is neither computed in
        advance nor shared by equal operations.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        definition = Definition(
            schema=Schema(op_type, signature, attributes),
            infer=_rule(shape),
            kernel=kernel,
            gradient=NOT_DIFFERENTIABLE if gradient is None else _gradient(gradient),
            effect=Effect.WRITES if stateful else Effect.PURE,
            doc=function.__doc__ or "",
            home=function.__module__,
        )
        known.register(definition)
        return builder_of(definition, function)

    return decorate


@export("register_kernel")
def register_kernel(
    op_type: str, device_type: str = "CPU", when: Callable[[], bool] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as a kernel of an op for a type of device.

    It is preferred to the kernels that the op has there. It may decline inputs by returning
    NotImplemented, and `when()` says whether it can run in this process at all; the op's next
    kernel then takes over. An op with a registered CPU kernel is not compiled.
    """
    known.lookup(op_type)
    if device_type not in device_types():
        raise ValueError(
            f"there is no device type {device_type!r}: register it first "
            f"(headrace.register_device); known are {', '.join(device_types())}"
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        kernel = OpKernel(function) if when is None else OpKernel(function, when)
        known.register_kernel(op_type, device_type, kernel)
        return function

    return decorate


def _rule(shape: Callable[..., Any] | None) -> Callable[..., Any]:
    wanted = () if shape is None else keywords_of(shape)

    def infer(c: Any, *shapes: TensorShape) -> Any:
        if shape is None:
            return [TensorShape(None)] * len(c.op._outputs)
        return shape(*shapes, **{name: c.attrs[name] for name in wanted})

    return infer


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda b, op, *gradients: function(op, *gradients)


def load_plugins() -> None:
    """Load what installed packages register, once. Another thread that calls it waits until all is
    loaded. An error is the caller's, and the next call tries what has not been loaded again.
    """
    global _state
    if _state == "loaded":
        return
    with _lock:
        if _state is not None:  # or a package that is being loaded makes a session
            return
        _state = "loading"
        try:
            for point in _entry_points():
                if point not in _done:
                    found = point.load()
                    if callable(found):
                        found()
                    _done.append(point)
            _state = "loaded"
        finally:
            if _state != "loaded":
                _state = None


def _entry_points() -> Iterator[Any]:
    # importlib.metadata takes longer to import than all of a first session takes: most often there
    # is nothing to be found, and a look at the files says so.
    if any(f"[{_GROUP}]" in text for text in _descriptions()):
        from importlib.metadata import entry_points  # see above

        yield from entry_points(group=_GROUP)


def _descriptions() -> Iterator[str]:
    """The lists of entry points of all packages that Python can find."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                try:
                    yield Path(folder, name, "entry_points.txt").read_text(encoding="utf-8")
                except OSError:
                    continue
