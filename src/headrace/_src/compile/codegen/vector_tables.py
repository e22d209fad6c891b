"""The hyperbolic tangent of float32s by tables that are registers, as AVX-512 can have them.

In a chain of tanh, each step waits for the one before, and exponentials and divisions have long
latencies. Here [1/2, 9) is cut into 32 pieces, eight to an octave except for the last, [7.5, 9).
Five bits of a number select its piece, the bits below are the distance from the piece's start. The
result is a polynomial of degree four in that distance; one instruction looks up a coefficient.
Smaller numbers have an odd polynomial, larger ones give 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace._src.compile.codegen.emit import F32, I64, Function, Reg
from headrace._src.compile.codegen.vector_formats import absolute, bits_of, number_of, with_sign

__all__ = ["has_table_for", "tanh_by_table"]

_LANES = 16  # of the registers: a table is in two
_START, _END = 0.5, 9.0
_START_BITS, _LAST_BITS, _END_BITS = 0x3F000000, 0x40F00000, 0x41100000  # 1/2, 7.5 and 9
_PIECE_BITS = 20  # how many bits are below those that tell the piece

# tanh(x0 + d) = c0 + c1 d + c2 d^2 + c3 d^3 + c4 d^4, a row for each coefficient; the columns are
# the pieces, in the order of the lowest five bits that tell them.
_COEFFICIENTS = (
    (
        0.9640276, 0.9780261, 0.9866143, 0.99185973, 0.9950548, 0.99699765, 0.9981779, 0.99889445,
        0.9993293, 0.99975324, 0.9999092, 0.9999666, 0.9999877, 0.99999547, 0.99999833, 0.9999994,
        0.46211717, 0.50983, 0.5545997, 0.59637356, 0.63514894, 0.6709671, 0.7039056, 0.7340715,
        0.7615942, 0.8093011, 0.84828365, 0.8798267, 0.90514827, 0.9253462, 0.94137555, 0.95404524,
    ),
    (
        0.070649385, 0.043466713, 0.02659283, 0.016212767, 0.00986228, 0.0059931627, 0.0036422585,
        0.002208526, 0.0013387275, 0.0004917123, 0.00018038871, 6.5242966e-05, 2.3946583e-05,
        9.628662e-06, 3.6977654e-06, 8.7431494e-07, 0.78644353, 0.7400611, 0.69242936, 0.64433736,
        0.5965909, 0.54978913, 0.50452787, 0.4611525, 0.41996986, 0.3450302, 0.28041294,
        0.22589876, 0.18070307, 0.14374185, 0.1138082, 0.08980368,
    ),
    (
        -0.06805809, -0.042524267, -0.026233502, -0.016043073, -0.009736319, -0.0059230663,
        -0.0036593594, -0.0021787721, -0.0013123633, -0.0004732923, -0.00016886879, -5.0926825e-05,
        -1.8182052e-05, -1.4866191e-05, -7.022015e-06, 1.02470326e-08, -0.3630867, -0.37633407,
        -0.38483682, -0.38417462, -0.37933102, -0.36778343, -0.35601312, -0.33959112, -0.31970125,
        -0.2791912, -0.23780568, -0.19851355, -0.16342457, -0.13330103, -0.106981345, -0.085908696,
    ),
    (
        0.04150589, 0.026947778, 0.016842281, 0.010190848, 0.005895022, 0.003569653, 0.0025485773,
        0.001269084, 0.0007704166, 0.00025213946, 7.586386e-05, -7.91009e-06, -4.679962e-06,
        2.4426145e-05, 1.3951893e-05, -6.6070277e-07, -0.10318175, -0.07914288, 0.0034125356,
        0.012291246, 0.052553006, 0.03594496, 0.10456753, 0.12266381, 0.10237087, 0.110862546,
        0.10772335, 0.096564785, 0.08602145, 0.078924514, 0.060827844, 0.054765686,
    ),
    (
        -0.015033199, -0.010697461, -0.00674503, -0.0037638962, -0.0016072838, -0.00092492736,
        -0.0013135134, -0.0002382865, -0.0002186284, -4.891892e-05, -1.0796989e-06, 3.541065e-05,
        1.4796659e-05, -2.0693431e-05, -1.2576617e-05, 2.91651e-07, 0.23605023, 0.34775218,
        -0.037104856, 0.1306379, 0.008108496, 0.30061483, -0.12639546, -0.18439405, 0.024866255,
        -0.0015151891, -0.013277614, -0.010730908, -0.018082036, -0.03988682, -0.014435864,
        -0.031869996,
    ),
)  # fmt: skip
# (tanh(x) / x - 1) / x^2 of x^2, |x| < 1/2; lowest power first
_SMALL = (
    -0.33333158, 0.13326141, -0.05305922, 0.017263584,
)  # fmt: skip


def has_table_for(f: Function, x: Reg) -> bool:
    """Whether the target looks numbers up in pairs of registers, and x fits into one."""
    return f.target.has("avx512f") and x.type.lanes <= _LANES


def tanh_by_table(f: Function, x: Reg) -> Reg:
    """tanh of float32s, as many as a register holds or fewer; the same, however many."""
    lanes = x.type.lanes
    if not lanes:
        return _one(f, x)
    if lanes == _LANES:
        return _several(f, x)
    wide = f.shuffle(x, None, [min(i, lanes - 1) for i in range(_LANES)])
    return f.shuffle(_several(f, wide), None, range(lanes))


def _several(f: Function, x: Reg) -> Reg:
    """Compute all three cases and select one at the end."""
    magnitude = absolute(f, x)
    start = _piece_of(f, magnitude)
    piece = f.lshr(start, _PIECE_BITS)  # only its lowest five bits are looked at
    coefficients = [_look_up(f, row, piece) for row in _COEFFICIENTS]
    outside = f.select(f.fcmp("oge", magnitude, _END), 1.0, _small(f, x))  # and for NaN
    outside = with_sign(f, outside, x)
    inside = f.wrapping("sub", bits_of(f, magnitude), _START_BITS)
    inside = f.icmp("ult", inside, _END_BITS - _START_BITS)
    return f.select(inside, _in_piece(f, x, start, coefficients), outside)


def _one(f: Function, x: Reg) -> Reg:
    """Use branches, which are predicted well where a chain's numbers are alike, and a table in
    memory: no step waits for a case that isn't used.
    """
    columns = [c for column in zip(*_COEFFICIENTS, strict=True) for c in column]
    table = f.module.data("tanh_pieces", columns, F32)
    magnitude = absolute(f, x)

    def small() -> list[Reg]:
        return f.when(f.fcmp("oeq", x, 0.0), lambda: x, lambda: _small(f, x))

    def large() -> list[Reg]:
        end = with_sign(f, f.const(1.0, x.type), x)
        return f.when(f.fcmp("oge", magnitude, _END), lambda: end, in_piece)

    def in_piece() -> Reg:
        start = _piece_of(f, magnitude)
        piece = f.and_(f.lshr(start, _PIECE_BITS), 2 * _LANES - 1)
        row = f.mul(f.convert("zext", piece, I64), len(_COEFFICIENTS))
        found = [f.load(F32, table, f.add(row, i)) for i in range(len(_COEFFICIENTS))]
        return _in_piece(f, x, start, found)

    return f.when(f.fcmp("ult", magnitude, _START), small, large)[0]  # NaN is a small one


def _small(f: Function, x: Reg) -> Reg:
    """Return x + x^3 (s0 + s1 x^2 + ...), in few dependent steps; 0 for -0."""
    s = _SMALL
    z = f.fmul(x, x)
    high, low = f.fma(z, s[3], s[2]), f.fma(z, s[1], s[0])
    return f.fma(f.fmul(x, z), f.fma(f.fmul(z, z), high, low), x)


def _piece_of(f: Function, magnitude: Reg) -> Reg:
    """Return the bits of the start of a number's piece."""
    start = f.and_(bits_of(f, magnitude), -(1 << _PIECE_BITS))
    return f.minimum(start, _LAST_BITS)


def _in_piece(f: Function, x: Reg, start: Reg, coefficients: Sequence[Reg]) -> Reg:
    """Return the piece's polynomial. The sign is not set at the end, but carried in c0 and in d."""
    c0, c1, c2, c3, c4 = coefficients
    d = f.fsub(absolute(f, x), number_of(f, start))
    slope = f.fma(f.fmul(d, d), f.fma(d, c4, c3), f.fma(d, c2, c1))
    return f.fma(with_sign(f, d, x), slope, with_sign(f, c0, x))


def _look_up(f: Function, table: tuple[float, ...], index: Reg) -> Reg:
    low, high = f.consts(table[:_LANES], F32), f.consts(table[_LANES:], F32)
    return f.call("llvm.x86.avx512.vpermi2var.ps.512", low.type, low, index, high)
