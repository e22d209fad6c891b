"""How an op becomes loops: a small sum type, the `lower` of a definition.

An op without one is run by its kernel, outside of compiled clusters. A rule never sees machine
code; it says what is computed (Elementwise, Reduce), where elements come from (Move, Join), or
names one of the anchors that have kernels of their own (Contraction, Convolution, Pooling, …).
Functions here get a `Site`: the concrete shapes, types and attributes of one use of the op, and
constant inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

__all__ = [
    "Anchor",
    "Elementwise",
    "Join",
    "Lowering",
    "Move",
    "Pass",
    "Read",
    "Reduce",
    "Site",
    "Update",
    "View",
]


class Site(Protocol):
    """One use of an op in a specialised step: everything about it is known but its data."""

    attrs: dict[str, Any]

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def input_dtypes(self) -> tuple[str, ...]: ...

    @property
    def output_dtypes(self) -> tuple[str, ...]: ...

    def constant_input(self, index: int) -> np.ndarray | None:
        """The value of input `index` if it's known at compile time."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a row-major input seen as an array: element i of the result is at
    offset + sum(i[d] * strides[d]), in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Each output element from the input elements at its (broadcast) position.

    function(e, *lanes, **attributes it names as keyword-only parameters) -> lane, or a tuple with
    one per output; may also name `site`. Inputs beyond `operands` (if given) aren't passed: they
    only parametrise, must be constant, and are reached by `site.constant_input`.
    """

    function: Callable[..., Any]
    operands: int | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine the elements along axes: input 1 holds the axes (a constant), `keep_dims` is an
    attribute. combine: "sum", "prod", "max", "min", "all", "any". `before(e, x)` maps each element
    first; `after(e, total, count)` maps the result, where count is a Python number.
    """

    combine: str
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None
    # site -> the axes, where they aren't input 1.
    axes: Callable[[Site], tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """The output is a view of input 0: `view(site)` says which (None: not expressible here).

    An op with several outputs (Split, Unpack) returns one View per output.
    """

    view: Callable[[Site], View | list[View] | None]
    operand: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """The output is put together from pieces: `pieces(site)` gives, per tensor input in order, the
    View of the *output* that this input fills (same shape as the input), or None for an input that
    isn't copied (an axis). `fill`, if given, is stored where no piece reaches (Pad): a number.
    """

    pieces: Callable[[Site], list[View | None] | None]
    fill: Callable[[Site], float | int | None] | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """The output is input 0 itself (Identity, StopGradient, Snapshot): no work at all."""


@dataclass(frozen=True, slots=True)
class Read:
    """The value of the variable that input 0 refers to."""


@dataclass(frozen=True, slots=True)
class Update:
    """Change the variable that input 0 refers to, element by element: function(e, old, *operands)
    -> new. Operands are inputs 1… . With several variables (`variables` = how many of the first
    inputs are references, as for Momentum or Adam) the function gets and returns one lane each.
    """

    function: Callable[..., Any]
    variables: int = 1


@dataclass(frozen=True, slots=True)
class Anchor:
    """An op with kernels of its own in the compiler, by the name of its family.

    `describe(site)` returns the family's geometry (a frozen, hashable object or tuple), or None
    where the compiler shall leave this use to the op's kernel.
    """

    family: str
    describe: Callable[[Site], Any]


Lowering = Elementwise | Reduce | Move | Join | Pass | Read | Update | Anchor
