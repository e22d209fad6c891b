"""Ops that only the pipeline makes: definitions without a builder, in no registry and no GraphDef.

READ returns the current value of a reference's variable. In a graph, operations that take a plain
value do this implicitly; in a Dataflow each such read is a node. HOLD makes a reference from a
value, for a Merge that may also receive a variable's. SAME_REFERENCE and ENSURE_SHAPE have public
counterparts: the former is an Identity that passes on a reference, the latter checks a shape that
`set_shape` promised.

A random op that is compiled is split: RESERVE advances its generator, NUMBERS draws. In a loop
whose iterations don't return to Python, GENERATOR looks up the generator before the loop begins, as
a reference to a variable of three words, and ADVANCE advances it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.devices.room import check_room
from headrace._src.devices.variable_state import VariableState
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect
from headrace._src.graph.internal_definitions import register_internal
from headrace._src.graph.schema import Schema
from headrace._src.lowering import anchors
from headrace._src.lowering.rules import Anchor, Read
from headrace._src.ops.array.constants_and_placeholders import ensure_shape_op
from headrace._src.ops.base import infer
from headrace._src.ops.control.flow_primitives import ref_identity
from headrace._src.ops.random import philox

__all__ = [
    "ADVANCE",
    "ENSURE_SHAPE",
    "GENERATOR",
    "HOLD",
    "NUMBERS",
    "READ",
    "RESERVE",
    "SAME_REFERENCE",
]

READ = Definition(
    schema=Schema("_Read", "ref: Ref(T) -> value: T", "T: type"),
    infer=infer.same_as(0),
    kernel=lambda ref: ref.read() if isinstance(ref, VariableState) else ref,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    lower=Read(),
    doc="Return the value of the variable behind a reference.",
)


def _hold(value: Any, *, T: Any, ctx: Any) -> VariableState:
    state = VariableState(ctx.name, T, TensorShape.of(np.shape(value)))
    state.assign(value)
    return state


HOLD = Definition(
    schema=Schema("_Hold", "value: T -> ref: Ref(T)", "T: type"),
    infer=infer.same_as(0),
    kernel=_hold,
    gradient=NOT_DIFFERENTIABLE,
    doc="Return a reference to a value, where a variable is also possible.",
)

ENSURE_SHAPE: Definition = ensure_shape_op.definition
SAME_REFERENCE: Definition = ref_identity.definition


def _generator(*, seed: int, seed2: int, ctx: Any) -> philox.PhiloxState:
    return ctx.state(philox.PhiloxState, lambda: philox.PhiloxState(seed, seed2))


def _advance(state: philox.PhiloxState, *, count: int) -> np.ndarray:
    return state.reserve_words(count * philox.SAMPLES_PER_OUTPUT)


def _reserve(*, seed: int, seed2: int, count: int, ctx: Any) -> np.ndarray:
    return _advance(_generator(seed=seed, seed2=seed2, ctx=ctx), count=count)


RESERVE = Definition(
    schema=Schema("_Reserve", "-> stream: uint64", "seed: int; seed2: int; count: int"),
    infer=lambda c: (3,),
    kernel=_reserve,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.RANDOM,
    doc="Reserve the samples for `count` numbers; return the stream where they start.",
)

GENERATOR = Definition(
    schema=Schema("_Generator", "-> state: Ref(uint64)", "seed: int; seed2: int"),
    infer=lambda c: (3,),
    kernel=_generator,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    doc="Return a reference to the random generator of the operation with this name.",
)

ADVANCE = Definition(
    schema=Schema("_Advance", "state: Ref(uint64) -> stream: uint64", "count: int"),
    infer=lambda c, state: (3,),
    kernel=_advance,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.WRITES,
    lower=Anchor("generator", lambda site: anchors.Advance(site.attrs["count"])),
    doc="Reserve the samples for `count` numbers of a generator; return where they start.",
)


def _numbers(stream, *, distribution, shape, dtype, bounds) -> np.ndarray:
    check_room(shape, dtype.numpy, "shape", spelled=True)
    return philox.draw(distribution, philox.Stream.of_words(stream), shape, dtype.numpy, bounds)


NUMBERS = Definition(
    schema=Schema(
        "_Numbers",
        "stream: uint64 -> numbers: dtype",
        "distribution: string; shape: shape; bounds: list(int); dtype: type",
    ),
    infer=lambda c, stream: c.attrs["shape"],
    kernel=_numbers,
    fresh=True,
    gradient=NOT_DIFFERENTIABLE,
    lower=Anchor("random", anchors.random_of_stream),
    doc="Return the random numbers of a stream.",
)

register_internal(READ, HOLD, RESERVE, GENERATOR, ADVANCE, NUMBERS)
