"""oneDNN's matrix products, as calls of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._src.compile.codegen.emit import F32, I32, I64, PTR, VOID, Module
from headrace._src.compile.kernels.onednn_calls import Bound, Chain, negative
from headrace._src.compile.native import machine_code
from headrace._src.devices.onednn import library
from headrace._src.devices.onednn.matmul_primitives import matmul_plan
from headrace._src.devices.onednn.primitive_chains import PrimitiveChain
from headrace._src.devices.target import host

__all__ = ["OneDnnGemm", "Product"]

_DTYPES = {"float32": library.F32, "bfloat16": library.BF16}


@dataclass(frozen=True)
class OneDnnGemm:
    """c = op(a) op(b), or c += with `accumulate`: plain float32 matrices [m, k] and [k, n], stored
    as [k, m] and [n, k] if transposed.
    """

    m: int
    n: int
    k: int
    transpose_a: bool = False
    transpose_b: bool = False
    accumulate: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("a", "b", "inout:c" if self.accumulate else "out:c")

    def scratch(self, threads: int) -> int:
        return 0

    def check(self) -> None:
        """Raise Unsupported if this can't be run here."""
        library.library()

    def bind(self, threads: int) -> Bound:
        lib = library.library()
        for name in ("dnnl_sgemm", "omp_set_num_threads"):
            machine_code.define(name, lib.functions[name])
        (function,) = machine_code.link({f"foreign {self} on {lib.num_threads}": self._text})
        return Bound(function, 0)

    def _text(self, symbol: str) -> str:
        module = Module(host())
        f = module.function(symbol, [PTR, PTR], I64, internal=False)
        a, b, c = (f.load(PTR, f.parameters[1], i) for i in range(3))
        f.call("omp_set_num_threads", VOID, f.reg(library.library().num_threads, I32))
        status = f.call(
            "dnnl_sgemm",
            I32,
            *(f.reg(ord("T" if t else "N"), I32) for t in (self.transpose_a, self.transpose_b)),
            *(f.reg(size) for size in (self.m, self.n, self.k)),
            f.const(1.0, F32),
            a,
            f.reg(self.m if self.transpose_a else self.k),
            b,
            f.reg(self.k if self.transpose_b else self.n),
            f.const(float(self.accumulate), F32),
            c,
            f.reg(self.n),
        )
        f.finish(negative(f, status))
        return str(module)


@dataclass(frozen=True)
class Product(Chain):
    """c = op(a) op(b) with leading batch dimensions that broadcast, in float32 or bfloat16. With a
    `precision`, operands are converted to that type and their products added up in c's.
    """

    dtype: str
    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    transpose_a: bool = False
    transpose_b: bool = False
    precision: str = ""
    arguments = ("a", "b", "out:c")

    def plan(self) -> PrimitiveChain:
        shapes = (self.a_shape, self.b_shape, self.transpose_a, self.transpose_b)
        return matmul_plan(_DTYPES[self.dtype], *shapes, _DTYPES.get(self.precision))[0]
