"""What an op type is. A `Definition` joins a schema with its meaning; the instances live in
`headrace._src.ops`.

Every other part of the system asks the definition (its effect, its kind, its kernel) and never
compares op names.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace._src.core.errors import NotFoundError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.control_roles import Flow
from headrace._src.graph.schema import MISSING, Schema

if TYPE_CHECKING:
    from headrace._src.graph.dataflow import Node
    from headrace._src.graph.operation import Operation

__all__ = [
    "HOST",
    "NOT_DIFFERENTIABLE",
    "Definition",
    "Effect",
    "Kind",
    "LoweringRule",
    "OpKernel",
    "Precision",
    "RowPart",
    "Sample",
    "UniversalDefinition",
    "asks_for_step",
    "bind_kernel",
    "definitions",
    "expect",
    "keywords_of",
    "lookup",
    "register",
    "register_kernel",
    "register_table",
    "unfolded",
]


HOST = "CPU"  # the type of device that every op has a kernel for


class Effect(enum.Enum):
    """What an op does besides computing its outputs."""

    PURE = "pure"  # outputs depend on inputs and attributes only
    READS = "reads"  # reads mutable state
    WRITES = "writes"  # changes mutable state, or the outside world
    RANDOM = "random"  # draws random numbers: never folded, never merged
    LOCAL = "local"  # touches what lives in one step, in the order that its inputs give
    BLOCKS = "blocks"  # may wait for another op or step: its kernel may return a Pending


class Kind(enum.Enum):
    """The shape of a computation, as far as folding, fusion and lowering care."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    MOVEMENT = "movement"  # outputs hold input elements, moved, never looked at
    OTHER = "other"


class Precision(enum.Enum):
    """Whether an op may compute in 16 bits when a step uses mixed precision.

    NARROW: it does: contractions profit and lose little, since their sums are accumulated in
    float32. EITHER: it does so between two NARROW ops; it moves elements, chooses among them, or
    rounds once. WIDE: neither does it nor do ops between two of these; it sums many numbers, or has
    values far from 1. UNKNOWN: it keeps its type, and implies nothing about its neighbours.
    """

    NARROW = enum.auto()
    EITHER = enum.auto()
    WIDE = enum.auto()
    UNKNOWN = enum.auto()


class RowPart(enum.Enum):
    """An op's part in updates of the distinct rows of a table (see ops.base.padded_rows).

    FINDS: the distinct elements of a list, and the index of each element among them. SUMS: rows by
    number. TAKES: rows of an array. MAPS: element by element. CHANGES: rows of variables.
    """

    FINDS = enum.auto()
    SUMS = enum.auto()
    TAKES = enum.auto()
    MAPS = enum.auto()
    CHANGES = enum.auto()


_COMPUTING = {Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION}


class _NotDifferentiable:
    def __repr__(self) -> str:
        return "NOT_DIFFERENTIABLE"


# The gradient of an op whose outputs are floating, but through which no gradient flows.
NOT_DIFFERENTIABLE = _NotDifferentiable()


class Sample:
    """Test inputs of an op for the laws: positional inputs (arrays, lists or `Random` specs) and
    attributes.
    """

    def __init__(self, *inputs: Any, **attrs: Any) -> None:
        self.inputs = inputs
        self.attrs = attrs

    def __repr__(self) -> str:
        pieces = [repr(v) for v in self.inputs] + [f"{k}={v!r}" for k, v in self.attrs.items()]
        return f"Sample({', '.join(pieces)})"


def _always() -> bool:
    return True


@dataclass(frozen=True, eq=False, slots=True)
class OpKernel:
    """One way to run an op on one type of device.

    run: called as `Definition.kernel` is; returns NotImplemented for inputs that it does not take,
    and the next kernel of the table gets them. when: whether it can run here at all.
    """

    run: Callable[..., Any]
    when: Callable[[], bool] = _always


class LoweringRule:
    """How the compiler lowers an op. The kinds of rules are in `headrace._src.lowering.rules`; the
    graph keeps them without looking inside.
    """

    __slots__ = ()

    def geometry(self, site: Any) -> Any:
        """Describe one use of the op, if it has kernels of its own in the compiler; else None."""
        return None


@dataclass(frozen=True, eq=False)
class Definition:
    """One op type: its schema and everything that follows from it.

    infer     (context, *input shapes) -> a TensorShape, or a list with one per output (see
              graph.inference)
    kernel    (*inputs, **attributes it names) -> an array, or a tuple with one per output
    gradient  (b, op, *output gradients) -> one gradient (or None) per input
    fold      (op) -> the outputs' values, or None: what static shapes alone decide (Shape, Rank,
              Size); `unfolded` if nothing is to be known
    as_shape  (op, output index, value) -> the TensorShape that this output, a vector, stands for,
              where value(tensor) is what is known of a tensor; None if it isn't more than usual
    static    (op, value, partial) -> what tf.get_static_value says of the output
    kernels   for each type of device, further ways to run the op (see OpKernel), the preferred one
              first; on a CPU `kernel` itself is the last
    lower     the same meaning as loops, for the compiler (see headrace._src.lowering), or None
    simplify  (node) -> a simpler Node, values that its outputs equal, or None to keep it
    reshapes  (node) -> whether the variable it writes may get another shape than was declared
    flow      the role of an op that steers (see graph.control_roles), None for all others
    asks      whether it only asks if its variable has a value
    waits     whether the kernel may return a Pending though the effect is another than BLOCKS
    calls_python  whether the kernel calls a function of the program, which may block
    shares    whether other processes read the inputs where they lie: they should be in memory that
              is shared with them (see devices.collectives)
    fresh     whether the outputs of all its kernels are always in memory that nothing else holds,
              and none keeps an input; None if `kind` says it
    precision  what mixed precision may do with it; None if `kind` says it
    rows      its part in updates of distinct rows; None if `kind` and `lower` say it
    calls     (op) -> a Called (see graph.structured) of an op that calls functions, None if it's
              to be called by its kernel
    home      the module that defines it
    """

    schema: Schema
    infer: Callable[..., Any]
    kernel: Callable[..., Any]
    gradient: Callable[..., Any] | _NotDifferentiable | Any = MISSING
    effect: Effect = Effect.PURE
    kind: Kind = Kind.OTHER
    fold: Callable[..., Any] | None = None
    as_shape: Callable[..., TensorShape | None] | None = None
    static: Callable[..., Any] | None = None
    kernels: Mapping[str, tuple[OpKernel, ...]] = field(default_factory=dict)
    lower: LoweringRule | None = None
    simplify: Callable[..., Any] | None = None
    reshapes: Callable[..., bool] | None = None
    flow: Flow | None = None
    calls: Callable[..., Any] | None = None
    samples: Sequence[Sample] | Callable[[], Sequence[Sample]] = field(default=())
    commutative: bool = False
    accepts_uninitialized: bool = False
    asks: bool = False
    waits: bool = False
    calls_python: bool = False
    shares: bool = False
    fresh: bool | None = None
    precision: Precision | None = None
    rows: RowPart | None = None
    doc: str = ""
    home: str = ""

    @property
    def op_type(self) -> str:
        return self.schema.op_type

    @cached_property
    def may_wait(self) -> bool:
        """Whether the kernel may return a Pending."""
        return self.waits or self.calls_python or self.effect is Effect.BLOCKS

    @cached_property
    def is_fresh(self) -> bool:
        """Whether the outputs' memory is nobody else's, and nothing of the inputs is kept: a result
        can be given away as it is, unless another op passes it on.
        """
        if self.fresh is not None:
            return self.fresh
        return self.effect is Effect.PURE and self.kind in _COMPUTING

    @cached_property
    def works_in_place(self) -> bool:
        """Whether it is a collective that can put its results into the memory of its inputs."""
        return self.shares and "in_place" in self.schema.attributes

    @cached_property
    def is_stateful(self) -> bool:
        """What OpDefs say: an op that takes references has its state in them, not in itself."""
        return self.effect is not Effect.PURE and not self.schema.has_ref_inputs

    def table(self, device_type: str) -> tuple[OpKernel, ...]:
        """The kernels for a type of device, the preferred one first; none if it has none."""
        found = (
            *_REGISTERED.get((self.op_type, device_type), ()),
            *self.kernels.get(device_type, ()),
        )
        if device_type in _TABLES:
            return (*found, *_TABLES[device_type](self))
        return (*found, OpKernel(self.kernel)) if device_type == HOST else found

    @cached_property
    def asks_for_step(self) -> bool:
        """Whether one of its own CPU kernels names `step`; asked for every instruction."""
        own = (*self.kernels.get(HOST, ()), OpKernel(self.kernel))
        return any(map(_names_step, own))

    @property
    def is_overridden(self) -> bool:
        """Whether a CPU kernel was registered from outside: then no other code may stand in."""
        return (self.op_type, HOST) in _REGISTERED

    @cached_property
    def keeps_state(self) -> bool:
        """Whether something of it outlives a step: a variable, a queue, a generator's counter."""
        return self.effect not in (Effect.PURE, Effect.LOCAL)

    @property
    def has_gradient(self) -> bool:
        return callable(self.gradient)

    def __repr__(self) -> str:
        return f"<Definition {self.schema}>"


class UniversalDefinition(Definition):
    """An op whose one kernel runs on every type of device."""

    def table(self, device_type: str) -> tuple[OpKernel, ...]:
        return (OpKernel(self.kernel),)


def unfolded(op: Any) -> None:
    """The `fold` rule of an op whose output isn't known before the step: it may be fed."""


_DEFINITIONS: dict[str, Definition] = {}
_REGISTERED: dict[tuple[str, str], tuple[OpKernel, ...]] = {}  # by op type and type of device
_TABLES: dict[str, Callable[[Definition], tuple[OpKernel, ...]]] = {}  # by type of device
_HOMES: dict[str, str] = {}


def register(definition: Definition) -> None:
    """Make an op type known; each is defined once."""
    if definition.op_type in _DEFINITIONS:
        raise ValueError(f"op {definition.op_type} is defined twice")
    _DEFINITIONS[definition.op_type] = definition


def register_kernel(op_type: str, device_type: str, kernel: OpKernel) -> None:
    """Put a kernel before those that an op has for a type of device."""
    key = op_type, device_type
    _REGISTERED[key] = (kernel, *_REGISTERED.get(key, ()))


def register_table(
    device_type: str, kernels_of: Callable[[Definition], tuple[OpKernel, ...]]
) -> None:
    """Let a function say which kernels an op has on a type of device, after all others."""
    _TABLES[device_type] = kernels_of


def expect(homes: Mapping[str, str]) -> None:
    """Say which modules define op types: each is imported when an op of it is first asked for."""
    _HOMES.update(homes)


class _Definitions(Mapping[str, Definition]):
    def __getitem__(self, op_type: str) -> Definition:
        if op_type not in _DEFINITIONS:
            import_module(_HOMES[op_type])
        return _DEFINITIONS[op_type]

    def __contains__(self, op_type: object) -> bool:
        return op_type in _DEFINITIONS or op_type in _HOMES

    def __iter__(self) -> Iterator[str]:
        return iter({**_HOMES, **_DEFINITIONS})

    def __len__(self) -> int:
        return len(_HOMES.keys() | _DEFINITIONS.keys())


_ALL = _Definitions()


def definitions() -> Mapping[str, Definition]:
    """All op types by name; taking a definition imports its module."""
    return _ALL


def lookup(op_type: str) -> Definition:
    """Return the definition of `op_type`; NotFoundError if there is none, with near names unless
    TensorFlow has such an op.
    """
    try:
        return _ALL[op_type]
    except KeyError:
        import difflib  # for the message alone

        from headrace._src.core.missing import explain  # for the message alone

        hint = explain("tf.raw_ops", op_type)
        if hint is None:
            close = difflib.get_close_matches(op_type, _ALL, n=3)
            hint = f"Did you mean {' or '.join(close)}?" if close else ""
        message = f"Op type not registered '{op_type}'. {hint}".rstrip()
        raise NotFoundError(None, None, message) from None


def bind_kernel(
    op: Operation | Node, context: Any = None, kernel: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return a function of the op's flat inputs: its kernel with attributes, `ctx` and input lists
    filled in.

    A kernel names what it needs as keyword-only parameters: attributes, `ctx` (the NodeContext of a
    stateful op), `op` (the client's operation, for messages), `step` (the StepContext; see
    `asks_for_step`).
    """
    definition = op.definition
    kernel = kernel or definition.kernel
    attrs = op._attrs
    wanted = keywords_of(kernel)
    if wanted:
        special = {"ctx": context, "op": getattr(op, "origin", None) or op}
        given = {k: special[k] if k in special else attrs[k] for k in wanted if k != "step"}
        kernel = partial(kernel, **given)
        if "step" in wanted:
            kernel = _in_step(kernel, context)
    schema = definition.schema
    if schema.has_list_inputs:
        return _grouped(kernel, schema, attrs)
    return kernel


def _in_step(kernel: Callable[..., Any], context: Any) -> Callable[..., Any]:
    return lambda *inputs: kernel(*inputs, step=context.step)


def asks_for_step(op: Operation | Node) -> bool:
    """Whether a CPU kernel of an op wants to know the step that it runs for."""
    definition = op.definition
    registered = _REGISTERED.get((definition.op_type, HOST), ())
    return definition.asks_for_step or any(map(_names_step, registered))


def _names_step(kernel: OpKernel) -> bool:
    return "step" in keywords_of(kernel.run)


def keywords_of(kernel: Callable[..., Any]) -> tuple[str, ...]:
    """What a kernel asks for by name."""
    found = getattr(kernel, "asks_for", None)
    if found is not None:
        return found
    code = getattr(inspect.unwrap(kernel), "__code__", None)
    if code is None:
        return ()
    first = code.co_argcount
    return code.co_varnames[first : first + code.co_kwonlyargcount]


def _grouped(
    kernel: Callable[..., Any], schema: Schema, attrs: dict[str, Any]
) -> Callable[..., Any]:
    """Give a kernel one list per list argument, cut from the flat inputs."""
    if len(schema.inputs) == 1:
        return lambda *flat: kernel(flat)
    cuts: list[int | slice] = []
    position = 0
    for argument in schema.inputs:
        count = schema.count(argument, attrs)
        cuts.append(slice(position, position + count) if argument.is_list else position)
        position += count
    return lambda *flat: kernel(*[flat[cut] for cut in cuts])
