"""Loop programs: the loops, loads, pointwise programs and stores of a kernel, as data.

A program is a tuple of statements, printable with `show` and checked by `verify`; `nests` turns it
into machine code. Values are named and written once; `Let` declares a variable that `Assign`
changes and `Total` a reduction that `Accumulate` feeds. Addresses are affine in the loops'
variables, in elements.

Loops are of a kind:
    serial      one iteration after the other
    parallel    iterations are shared by the threads; never inside one another
    tile        like serial, `step` iterations at once; a vector loop inside is `across` it
    vector      the iterations are lanes: `unroll` registers of `lanes` at once, leftovers masked.
                With `across`, a register for each iteration of the tile loop instead

The variable "thread" is known everywhere, and "threads" may be a loop's stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace._src.compile.codegen.combine import combine_of, state_dtype
from headrace._src.lowering.pointwise import Pointwise

__all__ = [
    "Accumulate",
    "Affine",
    "Assign",
    "Body",
    "CallKernel",
    "Compute",
    "Fold",
    "For",
    "If",
    "Let",
    "Load",
    "LoopError",
    "Merge",
    "Position",
    "Rest",
    "Split",
    "Statement",
    "Store",
    "Take",
    "TeamBarrier",
    "Total",
    "While",
    "affine",
    "changed",
    "show",
    "verify",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + the sum of coefficient * variable."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def coefficient(self, variable: str) -> int:
        return next((c for v, c in self.terms if v == variable), 0)

    def __str__(self) -> str:
        parts = [v if c == 1 else f"{c}*{v}" for v, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def affine(terms: Mapping[str, int] | None = None, constant: int = 0) -> Affine:
    """An affine expression without terms that are zero."""
    return Affine(tuple((v, c) for v, c in (terms or {}).items() if c), constant)


@dataclass(frozen=True, slots=True)
class Rest:
    """The stop of a loop over one block of a range: min(limit, total - taken)."""

    limit: int
    total: int
    taken: Affine

    def __str__(self) -> str:
        return f"min({self.limit}, {self.total} - ({self.taken}))"


@dataclass(frozen=True, slots=True)
class Load:
    result: str
    dtype: str
    buffer: str
    index: Affine

    def __str__(self) -> str:
        return f"{self.result} = {self.dtype} {self.buffer}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a pointwise program; `indices` are what its "index" steps mean."""

    results: tuple[str, ...]
    program: Pointwise
    operands: tuple[str, ...]
    indices: tuple[Affine, ...] = ()

    def __str__(self) -> str:
        steps = " ".join(s.opcode for s in self.program.steps)
        return f"{', '.join(self.results)} = [{steps}]({', '.join(self.operands)})"


@dataclass(frozen=True, slots=True)
class Store:
    """`stream`: past the caches; the address must then be aligned to a vector."""

    value: str
    dtype: str
    buffer: str
    index: Affine
    stream: bool = False

    def __str__(self) -> str:
        how = " (stream)" if self.stream else ""
        return f"{self.dtype} {self.buffer}[{self.index}] = {self.value}{how}"


@dataclass(frozen=True, slots=True)
class Let:
    variable: str
    dtype: str
    value: str

    def __str__(self) -> str:
        return f"let {self.dtype} {self.variable} = {self.value}"


@dataclass(frozen=True, slots=True)
class Assign:
    variable: str
    value: str

    def __str__(self) -> str:
        return f"{self.variable} := {self.value}"


@dataclass(frozen=True, slots=True)
class Total:
    """Begin a reduction. `lanes` and `copies` are those of the vector loop that feeds it, if that
    loop is inside; a total that begins in a vector loop has one state per lane.
    """

    name: str
    combine: str
    dtype: str
    lanes: int = 0
    copies: int = 1

    def __str__(self) -> str:
        return f"total {self.name}: {self.combine} of {self.dtype}"


@dataclass(frozen=True, slots=True)
class Accumulate:
    total: str
    value: str
    position: Affine = Affine()

    def __str__(self) -> str:
        return f"{self.total} <- {self.value}"


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge a state, component by component, into a total."""

    total: str
    state: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.total} <- state({', '.join(self.state)})"


@dataclass(frozen=True, slots=True)
class Fold:
    """Feed a total of one component into another of the same lanes, and reset it."""

    total: str
    into: str

    def __str__(self) -> str:
        return f"{self.into} <- fold {self.total}"


@dataclass(frozen=True, slots=True)
class Take:
    """The components of a total's state, combined over lanes that it has for itself."""

    results: tuple[str, ...]
    total: str

    def __str__(self) -> str:
        return f"{', '.join(self.results)} = state of {self.total}"


@dataclass(frozen=True, slots=True)
class Split:
    """Make indices of a flattened one, the last the fastest."""

    flat: Affine
    into: tuple[str, ...]
    extents: tuple[int, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.into)} = {self.flat} in {list(self.extents)}"


@dataclass(frozen=True, slots=True)
class Position:
    """Make an index of an int64 value, which must be a scalar."""

    variable: str
    value: str

    def __str__(self) -> str:
        return f"{self.variable} = position {self.value}"


@dataclass(frozen=True, slots=True)
class For:
    """for variable in range(0, stop, step), as its kind says (see the module)."""

    variable: str
    stop: int | Rest | str
    body: Body
    kind: str = "serial"
    step: int = 1
    lanes: int = 0
    unroll: int = 1
    across: str = ""

    def __str__(self) -> str:
        detail = f" x{self.lanes}" if self.kind == "vector" else ""
        detail += f" unroll {self.unroll}" if self.unroll > 1 else ""
        detail += f" across {self.across}" if self.across else ""
        step = f" by {self.step}" if self.step > 1 else ""
        return f"{self.kind} for {self.variable} < {self.stop}{step}{detail}:"


@dataclass(frozen=True, slots=True)
class If:
    condition: str
    then: Body
    otherwise: Body = ()

    def __str__(self) -> str:
        return f"if {self.condition}:"


@dataclass(frozen=True, slots=True)
class While:
    """Run `before`; if `condition` holds, run `body` and begin again."""

    before: Body
    condition: str
    body: Body

    def __str__(self) -> str:
        return f"while {self.condition} after:"


@dataclass(frozen=True, slots=True)
class CallKernel:
    """Call an external kernel: void(ptr table of buffers, i64 thread, i64 threads)."""

    symbol: str
    buffers: tuple[str, ...]

    def __str__(self) -> str:
        return f"call {self.symbol}({', '.join(self.buffers)})"


@dataclass(frozen=True, slots=True)
class TeamBarrier:
    def __str__(self) -> str:
        return "barrier"


Statement = (
    Load | Compute | Store | Let | Assign | Total | Accumulate | Merge | Fold | Take | Split
    | Position | For | If | While | CallKernel | TeamBarrier
)  # fmt: skip
Body = tuple[Statement, ...]


def blocks(statement: Statement) -> tuple[Body, ...]:
    """The bodies inside a statement."""
    if isinstance(statement, For):
        return (statement.body,)
    if isinstance(statement, If):
        return statement.then, statement.otherwise
    if isinstance(statement, While):
        return statement.before, statement.body
    return ()


def changed(body: Body) -> list[str]:
    """The variables and totals from outside that a body changes, in order."""
    names: dict[str, None] = {}
    own = {s.name for s in body if isinstance(s, Total)}
    own |= {s.variable for s in body if isinstance(s, Let)}
    for s in body:
        if isinstance(s, Assign):
            names[s.variable] = None
        elif isinstance(s, Accumulate | Merge):
            names[s.total] = None
        elif isinstance(s, Fold):
            names.update({s.into: None, s.total: None})
        for inner in blocks(s):
            names.update(dict.fromkeys(changed(inner)))
    return [n for n in names if n not in own]


def show(body: Body, indent: int = 0) -> str:
    """The program as text."""
    return "\n".join(_lines(body, indent))


def _lines(body: Body, indent: int) -> Iterator[str]:
    for s in body:
        yield "  " * indent + str(s)
        inner = [b for b in blocks(s) if b]
        for number, block in enumerate(inner):
            if number:
                yield "  " * indent + ("else:" if isinstance(s, If) else "do:")
            yield from _lines(block, indent + 1)


# -- Verifying ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scope:
    """What is known at one place: values' and variables' types, totals, loops' variables."""

    values: dict[str, str]
    totals: dict[str, Total]
    variables: frozenset[str]
    kinds: tuple[str, ...] = ()


class LoopError(ValueError):
    """A loop program is invalid, which is a fault of the code that made it."""


def verify(body: Body, buffers: Mapping[str, object]) -> None:
    """Raise LoopError unless every name is defined before use, with the type that is expected,
    and loops are nested as their kinds allow.
    """
    _verify(body, _Scope({}, {}, frozenset({"thread"})), buffers)


def _verify(body: Body, scope: _Scope, buffers: Mapping[str, object]) -> None:
    for s in body:
        try:
            scope = _check(s, scope, buffers)
        except LoopError:
            raise
        except (KeyError, ValueError) as error:
            raise LoopError(f"in the loop program's '{s}': {error}") from error


def _check(s: Statement, scope: _Scope, buffers: Mapping[str, object]) -> _Scope:
    if isinstance(s, For):
        _check_loop(s, scope, buffers)
    elif isinstance(s, If | While):
        _check_branches(s, scope, buffers)
    elif isinstance(s, Split):
        _known_variables(s.flat, scope)
        return _Scope(scope.values, scope.totals, scope.variables | set(s.into), scope.kinds)
    elif isinstance(s, Position):
        _typed(s.value, "int64", scope.values)
        _require("vector" not in scope.kinds, "lanes have no common position")
        return _Scope(scope.values, scope.totals, scope.variables | {s.variable}, scope.kinds)
    elif isinstance(s, Total):
        return _Scope(scope.values, {**scope.totals, s.name: s}, scope.variables, scope.kinds)
    elif isinstance(s, TeamBarrier):
        _require(not scope.kinds, "the team can't meet inside a loop")
    elif isinstance(s, CallKernel):
        _require("parallel" not in scope.kinds, "the team can't meet inside a parallel loop")
        _known(s.buffers, buffers, "buffer")
    else:
        return _check_value(s, scope, buffers)
    return scope


def _check_value(s: Statement, scope: _Scope, buffers: Mapping[str, object]) -> _Scope:
    values = scope.values
    made: dict[str, str] = {}
    if isinstance(s, Load):
        _known([s.buffer], buffers, "buffer")
        _known_variables(s.index, scope)
        made[s.result] = s.dtype
    elif isinstance(s, Store):
        _known([s.buffer], buffers, "buffer")
        _known_variables(s.index, scope)
        _typed(s.value, s.dtype, values)
    elif isinstance(s, Compute):
        for operand, dtype in zip(s.operands, s.program.inputs, strict=True):
            _typed(operand, dtype, values)
        for index in s.indices:
            _known_variables(index, scope)
        made.update(zip(s.results, s.program.output_dtypes, strict=True))
    elif isinstance(s, Let):
        _typed(s.value, s.dtype, values)
        made[s.variable] = s.dtype
    elif isinstance(s, Assign):
        _typed(s.value, values[s.variable], values)
    elif isinstance(s, Accumulate):
        _typed(s.value, scope.totals[s.total].dtype, values)
        _known_variables(s.position, scope)
    elif isinstance(s, Merge):
        total = scope.totals[s.total]
        for name, dtype in zip(s.state, combine_of(total.combine, total.dtype).state, strict=True):
            _typed(name, dtype, values)
    elif isinstance(s, Fold):
        one, into = scope.totals[s.total], scope.totals[s.into]
        _require(len(combine_of(one.combine, one.dtype).state) == 1, f"{s.total} is not one value")
        _require((one.lanes, one.copies) == (into.lanes, into.copies), "their lanes differ")
    elif isinstance(s, Take):
        total = scope.totals[s.total]
        made.update(zip(s.results, combine_of(total.combine, total.dtype).state, strict=True))
    return _Scope({**values, **made}, scope.totals, scope.variables, scope.kinds)


def _check_loop(s: For, scope: _Scope, buffers: Mapping[str, object]) -> None:
    _require(s.kind in ("serial", "parallel", "tile", "vector"), f"no loop is {s.kind}")
    _require(s.variable not in scope.variables, f"{s.variable} is taken")
    if s.kind == "parallel":
        _require("parallel" not in scope.kinds, "parallel loops can't be inside one another")
    if s.kind in ("vector", "tile"):
        _require("vector" not in scope.kinds, "a vector loop can't hold another")
    if s.kind == "vector":
        _require(s.lanes > 0, "it has no lanes")
        _require(not s.across or "tile" in scope.kinds, "there is no tile loop to be across")
    if isinstance(s.stop, Rest):
        _known_variables(s.stop.taken, scope)
    elif isinstance(s.stop, str):
        _require(s.stop == "threads", f"a loop can't stop at {s.stop}")
    _verify(
        s.body,
        _Scope(scope.values, scope.totals, scope.variables | {s.variable}, (*scope.kinds, s.kind)),
        buffers,
    )


def _check_branches(s: If | While, scope: _Scope, buffers: Mapping[str, object]) -> None:
    _require("vector" not in scope.kinds, "lanes can't branch")
    if isinstance(s, If):
        _typed(s.condition, "bool", scope.values)
        _verify(s.then, scope, buffers)
        _verify(s.otherwise, scope, buffers)
        return
    inside = scope
    for inner in s.before:
        inside = _check(inner, inside, buffers)
    _typed(s.condition, "bool", inside.values)
    _verify(s.body, inside, buffers)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _known(names: tuple[str, ...] | list[str], known: Mapping[str, object], what: str) -> None:
    for name in names:
        _require(name in known, f"no {what} is called {name}")


def _known_variables(index: Affine, scope: _Scope) -> None:
    for variable, _ in index.terms:
        _require(variable in scope.variables, f"no loop has the variable {variable}")


def _typed(name: str, dtype: str, values: Mapping[str, str]) -> None:
    _require(name in values, f"{name} isn't known here")
    # Narrow floating types are float32 in registers, so either may stand for the other.
    same = state_dtype(values[name]) == state_dtype(dtype)
    _require(same, f"{name} is {values[name]}, not {dtype}")
