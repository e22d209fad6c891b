"""The arithmetic of block cells: whole steps of LSTM and GRU, and their gradients, on arrays.

16-bit floats are widened before and narrowed after. The gates of an LSTM are column blocks of one
product matrix; `order` names their order: "icfo" (input, new memory, forget, output) in the first
version of the ops, "ifco" in the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = [
    "LstmStep",
    "Peepholes",
    "check_like",
    "check_lstm",
    "gru_step",
    "gru_step_grad",
    "lstm",
    "lstm_grad",
    "lstm_step_grad",
    "peephole_grads",
]

Array = np.ndarray


class LstmStep(NamedTuple):
    """The results of a step, in the order of the ops' outputs: the input gate, the memory, the
    forget and output gates, tanh of the new memory before and after gating, and the output.
    """

    i: Array
    cs: Array
    f: Array
    o: Array
    ci: Array
    co: Array
    h: Array


@dataclass(frozen=True)
class Peepholes:
    """The weights of the memory in the input, forget and output gates; zeros if unused."""

    i: Array
    f: Array
    o: Array

    @staticmethod
    def of(use: bool, wci: Array, wcf: Array, wco: Array) -> Peepholes:
        """Return the weights if they are used."""
        weights = (wci, wcf, wco) if use else (np.zeros_like(wci),) * 3
        return Peepholes(*map(_wide, weights))


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def check_like(shape: tuple[int, ...], **arrays: Array) -> None:
    """Raise ValueError unless every array has the expected shape."""
    _check({name: (array, shape) for name, array in arrays.items()})


def _check(wanted: dict[str, tuple[Array, tuple[int, ...]]]) -> None:
    for name, (array, shape) in wanted.items():
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {list(shape)}, not {list(array.shape)}")


def check_lstm(
    x: Array, cs_prev: Array, h_prev: Array, w: Array, peepholes: list[Array], b: Array
) -> None:
    """Raise ValueError unless the shapes of an LSTM's inputs match."""
    batch, units = cs_prev.shape
    depth = x.shape[-1]
    named = zip(("wci", "wcf", "wco"), peepholes, strict=True)
    _check(
        {
            "h_prev": (h_prev, (batch, units)),
            "x": (x, (*x.shape[:-2], batch, depth)),
            "w": (w, (depth + units, 4 * units)),
            "b": (b, (4 * units,)),
            **{name: (array, (units,)) for name, array in named},
        }
    )


def lstm_step(
    x: Array,
    cs_prev: Array,
    h_prev: Array,
    w: Array,
    b: Array,
    peepholes: Peepholes,
    forget_bias: float,
    cell_clip: float,
    order: str = "icfo",
) -> LstmStep:
    """Compute one step of an LSTM. A cell_clip that isn't positive disables clipping."""
    sums = np.concatenate([x, h_prev], 1) @ w + b
    part = dict(zip(order, np.split(sums, 4, axis=1), strict=True))
    i = _sigmoid(part["i"] + peepholes.i * cs_prev)
    f = _sigmoid(part["f"] + np.float32(forget_bias) + peepholes.f * cs_prev)
    ci = np.tanh(part["c"])
    cs = ci * i + cs_prev * f
    if cell_clip > 0:
        cs = np.clip(cs, -np.float32(cell_clip), np.float32(cell_clip))
    o = _sigmoid(part["o"] + peepholes.o * cs)
    co = np.tanh(cs)
    return LstmStep(i, cs, f, o, ci, co, co * o)


def lstm(
    steps: int,
    x: Array,
    cs_prev: Array,
    h_prev: Array,
    w: Array,
    b: Array,
    peepholes: Peepholes,
    forget_bias: float,
    cell_clip: float,
    order: str,
) -> list[Array]:
    """Run an LSTM over the first `steps` of x [time, batch, depth]; later steps are zeros."""
    dtype = x.dtype
    shape = (x.shape[0], *cs_prev.shape)
    results = [np.zeros(shape, dtype) for _ in LstmStep._fields]
    cs, h, w, b = map(_wide, (cs_prev, h_prev, w, b))
    for t in range(steps):
        step = lstm_step(_wide(x[t]), cs, h, w, b, peepholes, forget_bias, cell_clip, order)
        for result, value in zip(results, step, strict=True):
            result[t] = value
        cs, h = step.cs, step.h
    return results


def lstm_step_grad(
    cs_prev: Array, step: LstmStep, peepholes: Peepholes, cs_grad: Array, h_grad: Array
) -> tuple[Array, dict[str, Array]]:
    """Return the gradients for the memory before a step and, by letter, for the pre-activation
    gates.

    The gradient treats clipping of the memory as the identity, as TensorFlow's does.
    """
    do = step.o * (1 - step.o) * h_grad * step.co
    dcs = (1 - step.co * step.co) * h_grad * step.o + cs_grad + do * peepholes.o
    dc = (1 - step.ci * step.ci) * dcs * step.i
    df = step.f * (1 - step.f) * dcs * cs_prev
    di = step.i * (1 - step.i) * dcs * step.ci
    cs_prev_grad = dcs * step.f + di * peepholes.i + df * peepholes.f
    return cs_prev_grad, {"i": di, "c": dc, "f": df, "o": do}


def peephole_grads(
    use: bool, cs_prev: Array, cs: Array, gates: dict[str, Array]
) -> tuple[Array, Array, Array]:
    """Return the gradients of the peephole weights, summed over the batch."""
    if not use:
        zeros = np.zeros(cs.shape[-1], cs.dtype)
        return zeros, zeros, zeros
    pairs = ((gates["i"], cs_prev), (gates["f"], cs_prev), (gates["o"], cs))
    i, f, o = (np.sum(g * c, axis=0) for g, c in pairs)
    return i, f, o


def lstm_grad(
    steps: int,
    x: Array,
    cs_prev: Array,
    h_prev: Array,
    w: Array,
    peepholes: Peepholes,
    use_peephole: bool,
    computed: list[Array],
    cs_grad: Array,
    h_grad: Array,
    order: str,
) -> list[Array]:
    """Return the gradients of `lstm` for x, cs_prev, h_prev, w, the three peepholes and b."""
    dtype = x.dtype
    x, w, cs_prev, h_prev = map(_wide, (x, w, cs_prev, h_prev))
    dx, dw, db = np.zeros_like(x), np.zeros_like(w), np.zeros(w.shape[1], w.dtype)
    dcs, dh = np.zeros_like(cs_prev), np.zeros_like(h_prev)
    weights = [np.zeros(cs_prev.shape[1], w.dtype) for _ in range(3)]
    for t in reversed(range(steps)):
        step = LstmStep(*(_wide(array[t]) for array in computed))
        before = cs_prev if t == 0 else _wide(computed[1][t - 1])
        h_before = h_prev if t == 0 else _wide(computed[6][t - 1])
        dcs, gates = lstm_step_grad(
            before, step, peepholes, dcs + _wide(cs_grad[t]), dh + _wide(h_grad[t])
        )
        sums = np.concatenate([gates[letter] for letter in order], axis=1)
        dxh = sums @ w.T
        dx[t], dh = dxh[:, : x.shape[2]], dxh[:, x.shape[2] :]
        dw += np.concatenate([x[t], h_before], 1).T @ sums
        db += sums.sum(axis=0)
        for total, part in zip(
            weights, peephole_grads(use_peephole, before, step.cs, gates), strict=True
        ):
            total += part
    return [g.astype(dtype, copy=False) for g in (dx, dcs, dh, dw, *weights, db)]


def gru_step(
    x: Array, h_prev: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array
) -> tuple[Array, Array, Array, Array]:
    """Compute one step of a GRU: the reset and update gates, the candidate, and the new state."""
    check_gru(x, h_prev, w_ru, w_c, b_ru, b_c)
    gates = _sigmoid(np.concatenate([x, h_prev], 1) @ w_ru + b_ru)
    r, u = np.split(gates, 2, axis=1)
    c = np.tanh(np.concatenate([x, r * h_prev], 1) @ w_c + b_c)
    return r, u, c, u * h_prev + (1 - u) * c


def check_gru(x: Array, h_prev: Array, w_ru: Array, w_c: Array, b_ru: Array, b_c: Array) -> None:
    """Raise ValueError unless the shapes of a GRU's inputs match."""
    batch, units = h_prev.shape
    depth = x.shape[1] + units
    _check(
        {
            "x": (x, (batch, x.shape[1])),
            "w_ru": (w_ru, (depth, 2 * units)),
            "w_c": (w_c, (depth, units)),
            "b_ru": (b_ru, (2 * units,)),
            "b_c": (b_c, (units,)),
        }
    )


def gru_step_grad(
    x: Array,
    h_prev: Array,
    w_ru: Array,
    w_c: Array,
    b_ru: Array,
    b_c: Array,
    r: Array,
    u: Array,
    c: Array,
    d_h: Array,
) -> tuple[Array, Array, Array, Array]:
    """Return the gradients for x, h_prev, and the pre-activation candidate and gates."""
    check_gru(x, h_prev, w_ru, w_c, b_ru, b_c)
    check_like(h_prev.shape, r=r, u=u, c=c, d_h=d_h)
    depth = x.shape[1]
    d_c_bar = d_h * (1 - u) * (1 - c * c)
    d_u_bar = d_h * (h_prev - c) * u * (1 - u)
    d_xhr = d_c_bar @ w_c.T
    d_hr = d_xhr[:, depth:]
    d_r_bar = d_hr * h_prev * r * (1 - r)
    d_gates = np.concatenate([d_r_bar, d_u_bar], axis=1)
    d_xh = d_gates @ w_ru.T
    d_x = d_xhr[:, :depth] + d_xh[:, :depth]
    d_h_prev = d_xh[:, depth:] + d_hr * r + d_h * u
    return d_x, d_h_prev, d_c_bar, d_gates
