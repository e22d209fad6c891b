"""How an op becomes loops: a small sum type, the `lower` of a definition.

An op without one is run by its kernel, outside of compiled clusters. A rule never sees machine
code; it says what is computed (Elementwise, Reduce, Update), where elements come from (Move, Join),
or names one of the anchors that have kernels of their own (lowering.anchors). Functions here get a
`Site`: the concrete shapes, types and attributes of one use of the op, and constant inputs.

Rules hold for the types in `COMPILED` only. What a function of a rule answers None for is left to
the op's kernel. The compiler asks by `pointwise_of`, `reduction_of`, `views_of`, `assembly_of` and
`update_of`, which settle what the rule's functions say of a site.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Protocol

import numpy as np

from headrace._src.graph.definition import LoweringRule
from headrace._src.lowering.pointwise import Lane, Pointwise, Recorder, record

__all__ = [
    "COMPILED",
    "Anchor",
    "Assembly",
    "Elementwise",
    "Join",
    "Move",
    "Pass",
    "Read",
    "Reduce",
    "ReductionGeometry",
    "Site",
    "Update",
    "View",
    "assembly_of",
    "broadcast_view",
    "flat_program",
    "operand_views",
    "pointwise_of",
    "recorded",
    "reduction_of",
    "row_major",
    "traced",
    "traced_view",
    "update_of",
    "views_of",
]

# The types of elements that rules are for.
COMPILED = frozenset(
    ("float32", "float64", "float16", "bfloat16", "bool")
    + ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
)
_REMEMBERED = 4096  # answers that are kept: a step asks the same of many sites, and several times


class Site(Protocol):
    """One use of an op in a specialised step: everything about it is known but its data."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The values, of which something may be known (graph.inference)."""
        ...

    @property
    def attrs(self) -> dict[str, Any]: ...

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

    def variable_type(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """The type and shape of the variable that input `index` refers to; None if not known."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a row-major input seen as an array: element i of the result is at
    offset + sum(i[d] * strides[d]), in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array, in elements."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


@lru_cache(_REMEMBERED)
def broadcast_view(shape: tuple[int, ...], to: tuple[int, ...]) -> View | None:
    """A row-major array seen with the shape it broadcasts to; None if it doesn't."""
    front = len(to) - len(shape)
    if front < 0 or any(m not in (1, n) for m, n in zip(shape, to[front:], strict=True)):
        return None
    strides = [0 if m == 1 else s for m, s in zip(shape, row_major(shape), strict=True)]
    return View(to, (0,) * front + tuple(strides))


@dataclass(frozen=True, slots=True)
class Elementwise(LoweringRule):
    """Each output element from the input elements at its (broadcast) position.

    function(e, *lanes, **attributes it names as keyword-only parameters) -> lane, or a tuple with
    one per output; it may also name `site`. The lanes are the inputs whose numbers are in
    `operands` (all of them, if not given); the others must be constant or don't matter.
    `views(site)` says how each operand lies over the output where that isn't by broadcasting.
    `divisor`: the input of which no integer may be 0.
    """

    function: Callable[..., Any]
    operands: tuple[int, ...] | None = None
    views: Callable[[Site], Sequence[View | None] | None] | None = None
    divisor: int | None = None


@dataclass(frozen=True, slots=True)
class Reduce(LoweringRule):
    """Combine the elements along axes: input 1 holds the axes (a constant), `keep_dims` is an
    attribute. combine: "sum", "prod", "max", "min", "all", "any", or "argmax", "argmin" (the
    position, along the only axis, of the first of the largest or smallest; a NaN is both). Of no
    elements: 0, 1, -inf or the lowest integer, inf or the highest, true, false.

    `before(e, x)` maps each element first; `after(e, total, count)` maps the result, where count
    is a Python number. The type that `before` gives is the one that is combined in.
    """

    combine: str
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None
    # site -> the axes, where they aren't input 1.
    axes: Callable[[Site], tuple[int, ...] | None] | None = None


@dataclass(frozen=True, slots=True)
class Move(LoweringRule):
    """The elements of the output, in row-major order, are those of a view of input `operand`:
    `view(site)` says which. Its shape needn't be the output's (Tile). An op with several outputs
    (Split, Unpack) returns one View per output. `otherwise`: what it is to a native loop where the
    view depends on numbers that the loop computes.
    """

    view: Callable[[Site], View | list[View] | None]
    operand: int = 0
    otherwise: Anchor | None = None


def traced(kernel: Callable[..., Any], operand: int = 0, otherwise: Anchor | None = None) -> Move:
    """The rule of an op whose NumPy kernel returns views: which ones is found by running it.

    Only the shapes of its inputs matter, except for those that are constants.
    """

    def view(site: Site) -> View | list[View] | None:
        inputs = [site.constant_input(i) for i in range(len(site.input_shapes))]
        if any(x is None for i, x in enumerate(inputs) if i != operand):
            return None

        def run(x: np.ndarray) -> Any:
            arguments = [x if i == operand else v for i, v in enumerate(inputs)]
            return kernel(*arguments, **_keywords(kernel, site))

        return traced_view(run, site.input_shapes[operand])

    return Move(view, operand, otherwise)


def traced_view(run: Callable[[np.ndarray], Any], shape: tuple[int, ...]) -> Any:
    """What `run` takes of an array of `shape`: a View, or a list; None if it copies or refuses, or
    if there could be no such array.
    """
    from headrace._src.devices.room import fits  # only compiling needs it: import stays cheap

    if not fits(shape, np.int8):
        return None
    # One byte per element: strides and addresses count elements. The memory is never touched.
    memory = np.empty(shape, np.int8)
    try:
        result = run(memory)
    except (ValueError, TypeError, IndexError):
        return None
    if isinstance(result, list | tuple):
        views = [_view_of(memory, part) for part in result]
        return None if None in views else views
    return _view_of(memory, result)


def _view_of(memory: np.ndarray, part: np.ndarray) -> View | None:
    if not part.size:
        return View(part.shape, row_major(part.shape))
    if not np.may_share_memory(memory, part):
        return None
    return View(part.shape, part.strides, part.ctypes.data - memory.ctypes.data)


@dataclass(frozen=True, slots=True)
class Join(LoweringRule):
    """The output is put together from pieces: `pieces(site)` gives, per tensor input in order, the
    View of the *output* that this input fills (same shape as the input), or None for an input that
    isn't copied (an axis). `fill(site)`, if given, is stored where no piece reaches (Pad): a
    number, or None where it isn't known. `otherwise`: as that of a Move.
    """

    pieces: Callable[[Site], list[View | None] | None]
    fill: Callable[[Site], float | int | bool | None] | None = None
    otherwise: Anchor | None = None


@dataclass(frozen=True, slots=True)
class Pass(LoweringRule):
    """Each output is the input of its number itself (Identity; NoOp has none): no work at all."""


@dataclass(frozen=True, slots=True)
class Read(LoweringRule):
    """The value of the variable that input 0 refers to."""


@dataclass(frozen=True, slots=True)
class Update(LoweringRule):
    """Change the variable that input 0 refers to, element by element: function(e, old, *operands)
    -> new. Operands are inputs 1…; each has the variable's shape or is a scalar. With several
    variables (`variables` = how many of the first inputs are references, as for Momentum or Adam)
    the function gets and returns one lane each. It may name attributes, as an Elementwise does.

    An op with an output gives the reference, input 0, on. `initializes`: the old value is neither
    looked at nor need there be one. `suits`: for which uses of the op the rule is, if not for all.
    `casts`: scalars may have other types than the variables, which the function casts.
    """

    function: Callable[..., Any]
    variables: int = 1
    initializes: bool = False
    suits: Callable[[Site], bool] | None = None
    casts: bool = False


@dataclass(frozen=True, slots=True)
class Anchor(LoweringRule):
    """An op with kernels of its own in the compiler, by the name of its family.

    `describe(site)` returns the family's geometry (a frozen, hashable object or tuple), or None
    where the compiler shall leave this use to the op's kernel. `variables`: of an op that writes,
    how many of the first inputs are references to what it changes.
    """

    family: str
    describe: Callable[[Site], Any]
    variables: int = 1

    def geometry(self, site: Site) -> Any:
        return self.describe(site)


# ---- What the rules say, recorded ---------------------------------------------------------------


def _compiled(*types: str) -> bool:
    return all(t in COMPILED for t in types)


def _keywords(function: Callable[..., Any], site: Site) -> dict[str, Any]:
    """What a rule's function asks for by name: attributes, or the site itself."""
    names = _keyword_names(function)
    return {name: site if name == "site" else site.attrs[name] for name in names}


@lru_cache(_REMEMBERED)
def _keyword_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ()
    first = code.co_argcount
    return code.co_varnames[first : first + code.co_kwonlyargcount]


def operand_views(rule: Elementwise, site: Site) -> tuple[View, ...] | None:
    """How each operand lies over the (first) output; None where the rule isn't for this use."""
    if rule.views is not None:
        views = rule.views(site)
    else:
        to = site.output_shapes[0]
        views = [broadcast_view(site.input_shapes[i], to) for i in _operands(rule, site)]
    return None if views is None or None in views else tuple(v for v in views if v is not None)


def _operands(rule: Elementwise, site: Site) -> Sequence[int]:
    return range(len(site.input_dtypes)) if rule.operands is None else rule.operands


def pointwise_of(rule: Elementwise, site: Site) -> Pointwise | None:
    """The program of an element-wise rule; None where the rule isn't for this use."""
    types = [site.input_dtypes[i] for i in _operands(rule, site)]
    if not _compiled(*types, *site.output_dtypes) or operand_views(rule, site) is None:
        return None
    program = recorded(rule.function, types, site)
    if program is not None and program.output_dtypes != site.output_dtypes:
        raise TypeError(f"a rule gives {program.output_dtypes}, not {site.output_dtypes}")
    return program


def flat_program(
    rule: LoweringRule | None, types: Sequence[str], attrs: Mapping[str, Any]
) -> Pointwise | None:
    """The program of an element-wise rule for operands of these types; None where it depends on
    more than types and attributes, or where operands must be looked at first.
    """
    if not isinstance(rule, Elementwise) or (rule.operands, rule.divisor) != (None, None):
        return None
    names = _keyword_names(rule.function)
    if "site" in names or not _compiled(*types):
        return None
    program = _run(rule.function, types, {name: attrs[name] for name in names})
    return program if program is not None and _compiled(*program.output_dtypes) else None


def recorded(function: Callable[..., Any], types: Sequence[str], site: Site) -> Pointwise | None:
    """The program of a rule's function, for operands of these types."""
    keywords = _keywords(function, site)
    return _run(function, types, keywords) if keywords else _run_once(function, tuple(types))


@lru_cache(_REMEMBERED)
def _run_once(function: Callable[..., Any], types: tuple[str, ...]) -> Pointwise | None:
    """The program of a function that asks for nothing but its operands: for all sites the same."""
    return _run(function, types, {})


def _run(function: Callable[..., Any], types: Sequence[str], keywords: dict) -> Pointwise | None:
    e = Recorder(types)
    outputs = function(e, *e.lanes(), **keywords)
    return None if outputs is None else e.finish(outputs)


def update_of(rule: Update, site: Site) -> Pointwise | None:
    """The program of an update: from the variables' old elements and the operands' to the new.

    None where the variables' types aren't known or the operands don't fit.
    """
    variables = [site.variable_type(i) for i in range(rule.variables)]
    operands = range(rule.variables, len(site.input_dtypes))
    shapes = {v[1] for v in variables if v is not None}
    if None in variables or len(shapes) != 1 or not (rule.suits is None or rule.suits(site)):
        return None
    if any(site.input_shapes[i] not in (*shapes, ()) for i in operands):
        return None
    held = [v[0] for v in variables if v is not None]
    types = held + [site.input_dtypes[i] for i in operands]
    if not _compiled(*types) or len({*held}) != 1 or (not rule.casts and len({*types}) != 1):
        return None  # variables of another type than the op's are for its kernel to refuse
    return recorded(rule.function, types, site)


def views_of(rule: Move, site: Site) -> tuple[View, ...] | None:
    """The views of its operand that a move's outputs are; None where there are no such views."""
    if not _compiled(site.input_dtypes[rule.operand]):
        return None
    found = rule.view(site)
    return None if found is None else tuple(found if isinstance(found, list) else (found,))


@dataclass(frozen=True, slots=True)
class Assembly:
    """A Join with everything settled: which inputs fill which views of the output, and the rest."""

    pieces: tuple[tuple[int, View], ...]
    fill: float | int | bool | None


def assembly_of(rule: Join, site: Site) -> Assembly | None:
    """How the output is put together; None where that isn't known."""
    fill = rule.fill(site) if rule.fill is not None else None
    if not _compiled(*site.output_dtypes) or (rule.fill is not None and fill is None):
        return None
    views = rule.pieces(site)
    if views is None:
        return None
    return Assembly(tuple((i, v) for i, v in enumerate(views) if v is not None), fill)


@dataclass(frozen=True, slots=True)
class ReductionGeometry:
    """A Reduce with everything settled: map by `before`, combine along `axes`, map by `after`."""

    combine: str
    axes: tuple[int, ...]
    before: Pointwise
    after: Pointwise


def reduction_of(rule: Reduce, site: Site) -> ReductionGeometry | None:
    """What a reduction does here; None where its axes aren't known."""
    dtype, shape = site.input_dtypes[0], site.input_shapes[0]
    axes = rule.axes(site) if rule.axes is not None else _constant_axes(site)
    if axes is None or not _compiled(dtype, *site.output_dtypes):
        return None
    if rule.combine.startswith("arg") and (len(axes) != 1 or not shape[axes[0]]):
        return None
    count = prod(shape[d] for d in axes)
    before = recorded(rule.before or _same, [dtype], site)
    if before is None:
        return None
    total = "int64" if rule.combine.startswith("arg") else before.output_dtypes[0]

    def after(e: Recorder, x: Lane) -> Lane:
        result = x if rule.after is None else rule.after(e, x, count)
        return e.cast(result, site.output_dtypes[0])

    return ReductionGeometry(rule.combine, axes, before, record(after, [total]))


def _same(e: Recorder, x: Lane) -> Lane:
    return x


def _constant_axes(site: Site) -> tuple[int, ...] | None:
    axes, rank = site.constant_input(1), len(site.input_shapes[0])
    if axes is None or any(not -rank <= a < rank for a in axes.reshape(-1)):
        return None
    return tuple(sorted({int(a) % rank for a in axes.reshape(-1)}))
