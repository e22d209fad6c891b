"""Loop programs: printed, verified, and run."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import pytest

from headrace._src.compile.codegen.kernel_spec import Team
from headrace._src.compile.codegen.loop_code import generate_loops
from headrace._src.compile.codegen.loop_programs import (
    Accumulate,
    Assign,
    Body,
    CallKernel,
    Compute,
    For,
    If,
    Let,
    Load,
    LoopError,
    Position,
    Rest,
    Split,
    Store,
    Take,
    TeamBarrier,
    Total,
    While,
    affine,
    show,
    verify,
)
from headrace._src.compile.native.machine_code import _llvm, run_kernel
from headrace._src.lowering.pointwise import record


@dataclass(frozen=True)
class Program:
    """A kernel that is a loop program on buffers x and y."""

    body: Body

    arguments = ("inout:x", "inout:y")
    counters = 0

    @property
    def meetings(self) -> int:
        return sum(isinstance(s, TeamBarrier) for s in self.body)

    def scratch(self, threads: int) -> int:
        return 0

    def emit(self, team: Team) -> None:
        generate_loops(team, self.body, dict(zip(("x", "y"), team.args, strict=True)))


def run(body: Body, x: np.ndarray, y: np.ndarray, threads: int = 1) -> None:
    run_kernel(Program(body), [x, y], threads)


LESS = record(lambda e, a, b: a < b, ["int64", "int64"])
ADD = record(lambda e, a, b: a + b, ["int64", "int64"])
DOUBLE = record(lambda e, a: a + a, ["int64"])
ONE = record(lambda e: e.const(1, "int64"), [])
FIRST, SECOND = affine(), affine({}, 1)

# Double 1 until it's no longer below x[0]; count the doublings in y[1].
DOUBLINGS: Body = (
    Load("limit", "int64", "x", FIRST),
    Compute(("one",), ONE, ()),
    Let("n", "int64", "one"),
    Compute(("zero",), record(lambda e: e.const(0, "int64"), []), ()),
    Let("count", "int64", "zero"),
    While(
        (Compute(("more",), LESS, ("n", "limit")),),
        "more",
        (
            Compute(("twice",), DOUBLE, ("n",)),
            Assign("n", "twice"),
            Compute(("next",), ADD, ("count", "one")),
            Assign("count", "next"),
        ),
    ),
    Store("n", "int64", "y", FIRST),
    Store("count", "int64", "y", SECOND),
)


@pytest.mark.parametrize(("limit", "power", "count"), [(1, 1, 0), (2, 2, 1), (1000, 1024, 10)])
def test_while(limit, power, count):
    y = np.zeros(2, np.int64)
    run(DOUBLINGS, np.array([limit]), y)
    assert y.tolist() == [power, count]


@pytest.mark.parametrize("value", [3, 30])
def test_if(value):
    """What both branches assign is known after them."""
    body: Body = (
        Load("v", "int64", "x", FIRST),
        Compute(("ten",), record(lambda e: e.const(10, "int64"), []), ()),
        Let("result", "int64", "v"),
        Compute(("small",), LESS, ("v", "ten")),
        If(
            "small",
            (Compute(("a",), ADD, ("v", "ten")), Assign("result", "a")),
            (Compute(("b",), DOUBLE, ("v",)), Assign("result", "b")),
        ),
        Store("result", "int64", "y", FIRST),
    )
    y = np.zeros(1, np.int64)
    run(body, np.array([value]), y)
    assert y[0] == (value + 10 if value < 10 else 2 * value)


def test_loop_carries_variables():
    body: Body = (
        Compute(("one",), ONE, ()),
        Let("product", "int64", "one"),
        For(
            "i",
            6,
            (
                Compute(("factor",), record(lambda e: e.index(0) + 1, []), (), (affine({"i": 1}),)),
                Compute(
                    ("next",),
                    record(lambda e, a, b: a * b, ["int64"] * 2),
                    ("product", "factor"),
                ),
                Assign("product", "next"),
            ),
        ),
        Store("product", "int64", "y", FIRST),
    )
    y = np.zeros(1, np.int64)
    run(body, y, y)
    assert y[0] == 720


@pytest.mark.parametrize("size", [5, 64, 100, 1000])
def test_total_over_lanes_of_blocks(size):
    """Blocks of 128: the last one is short, and its last register partly filled."""
    index = affine({"block": 128, "i": 1})
    body: Body = (
        Total("sum", "sum", "float32", 16, 2),
        For(
            "block",
            -(-size // 128),
            (
                For(
                    "i",
                    Rest(128, size, affine({"block": 128})),
                    (Load("v", "float32", "x", index), Accumulate("sum", "v")),
                    "vector",
                    lanes=16,
                    unroll=2,
                ),
            ),
        ),
        Take(("s",), "sum"),
        Store("s", "float32", "y", FIRST),
    )
    x, y = np.arange(size, dtype=np.float32), np.zeros(1, np.float32)
    run(body, x, y)
    assert y[0] == x.sum()


def test_split_and_threads():
    body: Body = (
        For(
            "unit",
            6,
            (
                Split(affine({"unit": 1}), ("i", "j"), (2, 3)),
                Load("v", "int64", "x", affine({"i": 1, "j": 2})),
                Store("v", "int64", "y", affine({"unit": 1})),
            ),
            "parallel",
        ),
        TeamBarrier(),
    )
    x, y = np.arange(6), np.zeros(6, np.int64)
    run(body, x, y, threads=2)
    assert y.tolist() == x.reshape(3, 2).T.ravel().tolist()


def test_position():
    """y[i] = y[x[i]]: a value becomes part of an address."""
    body: Body = (
        For(
            "i",
            3,
            (
                Load("at", "int64", "x", affine({"i": 1})),
                Position("p", "at"),
                Load("v", "int64", "y", affine({"p": 1})),
                Store("v", "int64", "y", affine({"i": 1})),
            ),
        ),
    )
    x, y = np.array([3, 4, 3]), np.array([0, 1, 2, 30, 40])
    run(body, x, y)
    assert y.tolist() == [30, 40, 30, 30, 40]


def test_call():
    """A program may call kernels: this is how clusters with loops are driven."""
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64, ctypes.c_int64)
    def kernel(table, thread, threads):
        seen.append((table[0], table[1], thread, threads))

    address = ctypes.cast(kernel, ctypes.c_void_p).value
    _llvm().add_symbol("headrace_test_kernel", address)
    x, y = np.zeros(1), np.zeros(1)
    run((For("i", 2, (CallKernel("headrace_test_kernel", ("y", "x")),)),), x, y)
    assert seen == [(y.ctypes.data, x.ctypes.data, 0, 1)] * 2


def test_show():
    assert show(DOUBLINGS).splitlines()[5:9] == [
        "while more after:",
        "  more = [lt](n, limit)",
        "do:",
        "  twice = [add](n)",
    ]


LOAD = Load("v", "int64", "x", FIRST)
WRONG: dict[str, tuple[Body, str]] = {
    "unknown buffer": ((Load("v", "int64", "z", FIRST),), "no buffer is called z"),
    "unknown value": ((Store("v", "int64", "y", FIRST),), "v isn't known here"),
    "other type": ((LOAD, Store("v", "float32", "y", FIRST)), "v is int64, not float32"),
    "unknown variable": ((Load("v", "int64", "x", affine({"i": 1})),), "the variable i"),
    "out of scope": ((For("i", 2, (LOAD,)), Store("v", "int64", "y", FIRST)), "isn't known"),
    "taken variable": ((For("i", 2, (For("i", 2, ()),)),), "i is taken"),
    "parallel inside": (
        (For("i", 2, (For("j", 2, (), "parallel"),), "parallel"),),
        "inside one another",
    ),
    "barrier inside": ((For("i", 2, (TeamBarrier(),), "parallel"),), "can't meet"),
    "vector inside": (
        (For("i", 2, (For("j", 2, (), "vector", lanes=4),), "vector", lanes=4),),
        "can't hold another",
    ),
    "no tile": ((For("i", 2, (), "vector", lanes=4, across="j"),), "no tile loop"),
    "unknown total": ((LOAD, Accumulate("t", "v")), "'t'"),
    "odd stop": ((For("i", "people", ()),), "can't stop at people"),
}


@pytest.mark.parametrize("case", WRONG)
def test_verify(case):
    body, message = WRONG[case]
    with pytest.raises(LoopError, match=message):
        verify(body, {"x": None, "y": None})
