"""Pointwise programs: what an element-wise op computes for one element, as data.

An op's definition says `lower=Elementwise(lambda e, x, y: x * y)`. The function is called once with
a `Recorder` and one `Lane` per input, and what it does is written down as a `Pointwise`: straight
line code in static single assignment. It is hashable (kernels are cached by it), printable, and can
be run on NumPy arrays (`evaluate`), on vector registers (compile) or joined with others (fusion).

Values are numbered: the inputs first, then one per step. Every opcode means what its NumPy function
in OPCODES means, NaNs and infinities included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from math import erf
from typing import Any

import numpy as np

from headrace._src.core.dtypes import as_dtype

__all__ = [
    "FLOATS",
    "OPCODES",
    "Lane",
    "Pointwise",
    "PointwiseStep",
    "Recorder",
    "record",
    "rounded_once",
    "sign_of",
]

FLOATS = ("float32", "float64", "float16", "bfloat16")


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def sign_of(x: Any) -> Any:
    """-1, 0 or 1; NaN has no sign, hence 0. Of complex numbers, as np.sign."""
    result = np.sign(x)
    if result.dtype.name not in FLOATS:
        return result
    return np.where(np.isnan(result), result.dtype.type(0), result)


def _erf(x: Any) -> Any:
    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype)


# opcode -> (its meaning on NumPy arrays, what it results in: the operands' type, or "bool").
OPCODES: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (np.add, "same"),
    "sub": (np.subtract, "same"),
    "mul": (np.multiply, "same"),
    "div": (np.divide, "same"),  # floating types only
    "quotient": (np.floor_divide, "same"),  # of integers by what is neither 0 nor -1, ..
    "remainder": (np.remainder, "same"),  # .. which processors trap at
    "max": (np.maximum, "same"),  # NaN if either operand is NaN
    "min": (np.minimum, "same"),
    "pow": (np.power, "same"),
    "atan2": (np.arctan2, "same"),
    "neg": (np.negative, "same"),
    "abs": (np.abs, "same"),
    "sign": (sign_of, "same"),  # 0 for NaN
    "sqrt": (np.sqrt, "same"),
    "rsqrt": (lambda x: (1 / np.sqrt(x)).astype(x.dtype), "same"),
    "exp": (np.exp, "same"),
    "expm1": (np.expm1, "same"),
    "log": (np.log, "same"),
    "log1p": (np.log1p, "same"),
    "tanh": (np.tanh, "same"),
    "sigmoid": (_sigmoid, "same"),
    "erf": (_erf, "same"),
    "sin": (np.sin, "same"),
    "cos": (np.cos, "same"),
    "floor": (np.floor, "same"),
    "ceil": (np.ceil, "same"),
    "rint": (np.rint, "same"),  # ties to even
    "trunc": (np.trunc, "same"),
    "and": (np.bitwise_and, "same"),  # on bool: logical
    "or": (np.bitwise_or, "same"),
    "xor": (np.bitwise_xor, "same"),
    "not": (np.invert, "same"),
    "eq": (np.equal, "bool"),
    "ne": (np.not_equal, "bool"),
    "lt": (np.less, "bool"),
    "le": (np.less_equal, "bool"),
    "gt": (np.greater, "bool"),
    "ge": (np.greater_equal, "bool"),
    "isnan": (np.isnan, "bool"),
    "isinf": (np.isinf, "bool"),
    "isfinite": (np.isfinite, "bool"),
}
# Also opcodes, with a meaning of their own: "const" (immediate: the value), "cast" (to the step's
# type, as astype does), "select" (condition, x, y), "index" (immediate: which loop dimension; the
# int64 position along it).
SPECIAL = ("const", "cast", "select", "index")


@dataclass(frozen=True, slots=True)
class PointwiseStep:
    """One step: `opcode` on earlier values gives a value of `dtype` (a NumPy type's name)."""

    opcode: str
    operands: tuple[int, ...]
    dtype: str
    immediate: float | int | bool | None = None


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A pointwise program: the types of its inputs, its steps, the values that are its outputs."""

    inputs: tuple[str, ...]
    steps: tuple[PointwiseStep, ...]
    outputs: tuple[int, ...]

    def dtype_of(self, value: int) -> str:
        """The type of a value by its number."""
        count = len(self.inputs)
        return self.inputs[value] if value < count else self.steps[value - count].dtype

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        return tuple(self.dtype_of(v) for v in self.outputs)

    def evaluate(self, *arrays: Any, indices: Sequence[Any] = ()) -> list[Any]:
        """Run on NumPy arrays that broadcast; `indices` are the positions for "index" steps."""
        values: list[Any] = list(arrays)
        for step in self.steps:
            operands = [values[i] for i in step.operands]
            values.append(_run(step, operands, indices))
        return [values[i] for i in self.outputs]

    def __str__(self) -> str:
        lines = []
        for k, step in enumerate(self.steps, len(self.inputs)):
            operands = [f"%{i}" for i in step.operands]
            if step.immediate is not None:
                operands.append(repr(step.immediate))
            lines.append(f"%{k} = {step.opcode} {step.dtype} {', '.join(operands)}")
        head = ", ".join(f"%{i} {t}" for i, t in enumerate(self.inputs))
        tail = ", ".join(f"%{i}" for i in self.outputs)
        return "\n".join([f"({head}) -> {tail}", *(f"  {line}" for line in lines)])


def _run(step: PointwiseStep, operands: list[Any], indices: Sequence[Any]) -> Any:
    dtype = as_dtype(step.dtype).as_numpy_dtype
    if step.opcode == "const":
        return np.asarray(step.immediate).astype(dtype)
    if step.opcode == "cast":
        return np.asarray(operands[0]).astype(dtype)
    if step.opcode == "select":
        return np.where(*operands).astype(dtype)
    if step.opcode == "index":
        return np.asarray(indices[int(step.immediate or 0)])
    return OPCODES[step.opcode][0](*operands)


class Lane:
    """A value while a pointwise function is recorded. Python's operators work on lanes."""

    __slots__ = ("dtype", "number", "recorder")

    def __init__(self, recorder: Recorder, number: int, dtype: str) -> None:
        self.recorder = recorder
        self.number = number
        self.dtype = dtype

    @property
    def is_floating(self) -> bool:
        return self.dtype in FLOATS

    def __add__(self, other: Any) -> Lane:
        return self.recorder.add(self, other)

    def __radd__(self, other: Any) -> Lane:
        return self.recorder.add(other, self)

    def __sub__(self, other: Any) -> Lane:
        return self.recorder.sub(self, other)

    def __rsub__(self, other: Any) -> Lane:
        return self.recorder.sub(other, self)

    def __mul__(self, other: Any) -> Lane:
        return self.recorder.mul(self, other)

    def __rmul__(self, other: Any) -> Lane:
        return self.recorder.mul(other, self)

    def __truediv__(self, other: Any) -> Lane:
        return self.recorder.div(self, other)

    def __rtruediv__(self, other: Any) -> Lane:
        return self.recorder.div(other, self)

    def __neg__(self) -> Lane:
        return self.recorder.neg(self)

    def __lt__(self, other: Any) -> Lane:
        return self.recorder.lt(self, other)

    def __le__(self, other: Any) -> Lane:
        return self.recorder.le(self, other)

    def __gt__(self, other: Any) -> Lane:
        return self.recorder.gt(self, other)

    def __ge__(self, other: Any) -> Lane:
        return self.recorder.ge(self, other)


class Recorder:
    """What a pointwise function computes with: one method per opcode, `e.exp(x)`, `e.max(x, 0)`.

    A Python number beside a lane takes the lane's type. Equal steps are recorded once.
    """

    def __init__(self, dtypes: Sequence[str]) -> None:
        self.inputs = tuple(dtypes)
        self.steps: list[PointwiseStep] = []
        self._known: dict[PointwiseStep, int] = {}

    def lanes(self) -> list[Lane]:
        """The inputs."""
        return [Lane(self, i, t) for i, t in enumerate(self.inputs)]

    def __getattr__(self, name: str) -> Callable[..., Lane]:
        opcode = name.rstrip("_")
        if opcode not in OPCODES:
            raise AttributeError(f"no pointwise operation is called {name!r}")
        result = OPCODES[opcode][1]

        def apply(*operands: Any) -> Lane:
            lanes = self._together(operands)
            dtype = lanes[0].dtype if result == "same" else "bool"
            return self.emit(opcode, lanes, dtype)

        return apply

    def const(self, value: float | int | bool, dtype: str) -> Lane:
        return self.emit("const", (), dtype, value)

    def cast(self, x: Lane, dtype: str) -> Lane:
        return x if x.dtype == dtype else self.emit("cast", (x,), dtype)

    def wide(self, x: Lane) -> Lane:
        """`x` in the type that kernels compute it in: float32 for 16-bit floats, else its own."""
        return self.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x

    def select(self, condition: Lane, x: Any, y: Any) -> Lane:
        x, y = self._together((x, y))
        return self.emit("select", (condition, x, y), x.dtype)

    def index(self, dimension: int) -> Lane:
        """The position along a dimension of the output, int64."""
        return self.emit("index", (), "int64", dimension)

    def square(self, x: Lane) -> Lane:
        return self.mul(x, x)

    def reciprocal(self, x: Lane) -> Lane:
        return self.div(1, x)

    def emit(self, opcode: str, lanes: Sequence[Lane], dtype: str, immediate: Any = None) -> Lane:
        """Record one step and return its value."""
        step = PointwiseStep(opcode, tuple(v.number for v in lanes), dtype, immediate)
        # 0.0 == -0.0 and 1 == True: equal steps must have immediates of one spelling.
        key = (step, repr(immediate))
        number = self._known.get(key)  # type: ignore[call-overload]
        if number is None:
            self.steps.append(step)
            number = len(self.inputs) + len(self.steps) - 1
            self._known[key] = number  # type: ignore[index]
        return Lane(self, number, dtype)

    def _together(self, operands: Sequence[Any]) -> list[Lane]:
        """All operands as lanes of one type."""
        dtype = next(v.dtype for v in operands if isinstance(v, Lane))
        lanes = [v if isinstance(v, Lane) else self.const(v, dtype) for v in operands]
        if any(v.dtype != dtype for v in lanes):
            raise TypeError(f"operands of several types: {[v.dtype for v in lanes]}")
        return lanes

    def finish(self, outputs: Any) -> Pointwise:
        """The program whose outputs are these lanes."""
        outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
        return Pointwise(self.inputs, tuple(self.steps), tuple(v.number for v in outputs))


def rounded_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a pointwise function of several steps compute 16-bit floats in float32, round at the end.

    It isn't for integers: their lanes give None.
    """

    @wraps(function)
    def run(e: Recorder, *lanes: Lane, **attrs: Any) -> Lane | None:
        if not all(x.is_floating for x in lanes):
            return None
        return e.cast(function(e, *[e.wide(x) for x in lanes], **attrs), lanes[0].dtype)

    return run


def record(function: Callable[..., Any], dtypes: Sequence[str], **attrs: Any) -> Pointwise:
    """Write down what `function(e, *lanes, **attrs)` computes on inputs of these types."""
    e = Recorder(dtypes)
    return e.finish(function(e, *e.lanes(), **attrs))
