"""Block cells: a whole step (or a whole sequence) of an LSTM or GRU as one op, with gradients.

The LSTM ops take gradients for the memory `cs` and the output `h`, the GRU op for the state `h`.
Their other outputs only serve the gradient ops, and no gradient flows through them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Sample
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r
from headrace._src.ops.nn import block_rnn_kernels as kernels

__all__ = ["block_lstm", "block_lstm_v2", "gru_block_cell", "lstm_block_cell"]

_LSTM_INPUTS = "cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T"
_LSTM_STEP = "i: T, cs: T, f: T, o: T, ci: T, co: T"
_LSTM_WEIGHT_GRADS = "wci_grad: T, wcf_grad: T, wco_grad: T"
_LSTM_TYPES = "T: {float16|float32}"
_FORGET_AND_CLIP = "forget_bias: float = 1.0; cell_clip: float = 3.0; use_peephole: bool = False"


def _state_shape(batch: TensorShape, state: TensorShape) -> TensorShape:
    """[batch, units]: the batch size is the input's, the number of units a state's."""
    return batch.concatenate(state.with_rank(2)[1:])


def _times(size: TensorShape, count: int) -> TensorShape:
    return TensorShape([None if n is None else n * count for n in size.as_list()])


def _lstm_cell_infer(c: Any, x: TensorShape, cs_prev: TensorShape, *rest: TensorShape) -> list[Any]:
    return [_state_shape(x.with_rank(2)[:1], cs_prev)] * 7


def _lstm_cell_kernel(
    x: Any,
    cs_prev: Any,
    h_prev: Any,
    w: Any,
    wci: Any,
    wcf: Any,
    wco: Any,
    b: Any,
    *,
    forget_bias: float,
    cell_clip: float,
    use_peephole: bool,
) -> tuple[Any, ...]:
    kernels.check_lstm(x, cs_prev, h_prev, w, [wci, wcf, wco], b)
    peepholes = kernels.Peepholes.of(use_peephole, wci, wcf, wco)
    results = kernels.lstm(
        1, x[None], cs_prev, h_prev, w, b, peepholes, forget_bias, cell_clip, "icfo"
    )
    return tuple(result[0] for result in results)


def _lstm_cell_gradient(b: OpBuilder, op: Any, *grads: Any) -> tuple[Any, ...]:
    x, _, h_prev, w, *_ = op.inputs
    found = b.lstm_block_cell_grad(
        *op.inputs,
        *op.outputs[:6],
        cs_grad=grads[1],
        h_grad=grads[6],
        use_peephole=op.get_attr("use_peephole"),
    )
    both = b.matmul(found.dicfo, w, transpose_b=True)
    depth = x.shape.as_list()[1] if x.shape.ndims else None
    depth = b.shape(x)[1] if depth is None else depth
    dx, dh = b.split(both, [depth, b.shape(h_prev)[1]], axis=1, num=2)
    dw = b.matmul(b.concat([x, h_prev], 1), found.dicfo, transpose_a=True)
    db = b.reduce_sum(found.dicfo, 0)
    return dx, found.cs_prev_grad, dh, dw, found.wci_grad, found.wcf_grad, found.wco_grad, db


def _lstm_samples(x: Any, *before: Any, **attrs: Any) -> Sample:
    weights = (r(5, 12, low=-1, high=1), r(3), r(3), r(3), r(12))
    return Sample(*before, x, r(2, 3), r(2, 3), *weights, **attrs)


@define(
    "LSTMBlockCell",
    f"x: T, {_LSTM_INPUTS} -> {_LSTM_STEP}, h: T",
    f"{_FORGET_AND_CLIP}; {_LSTM_TYPES}",
    infer=_lstm_cell_infer,
    kernel=_lstm_cell_kernel,
    gradient=_lstm_cell_gradient,
    samples=[
        _lstm_samples(r(2, 2)),
        _lstm_samples(r(2, 2), forget_bias=0.5, cell_clip=0.3, use_peephole=True),
    ],
)
def lstm_block_cell(
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    forget_bias=1.0,
    cell_clip=3.0,
    use_peephole=False,
    name=None,
):
    """Return one step of an LSTM: (i, cs, f, o, ci, co, h); cs and h are the new state."""


def _lstm_cell_grad_infer(
    c: Any, x: TensorShape, cs_prev: TensorShape, *rest: TensorShape
) -> list[Any]:
    state = _state_shape(x.with_rank(2)[:1], cs_prev)
    gates = state[:1].concatenate(_times(state[1:], 4))
    return [state, gates, state[1:], state[1:], state[1:]]


def _lstm_cell_grad_kernel(
    x: Any,
    cs_prev: Any,
    h_prev: Any,
    w: Any,
    wci: Any,
    wcf: Any,
    wco: Any,
    b: Any,
    i: Any,
    cs: Any,
    f: Any,
    o: Any,
    ci: Any,
    co: Any,
    cs_grad: Any,
    h_grad: Any,
    *,
    use_peephole: bool,
) -> tuple[Any, ...]:
    if np.ndim(x) != 2:
        raise ValueError(f"x must be a matrix, not of shape {list(np.shape(x))}")
    kernels.check_lstm(x, cs_prev, h_prev, w, [wci, wcf, wco], b)
    computed = {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co}
    kernels.check_like(cs_prev.shape, **computed, cs_grad=cs_grad, h_grad=h_grad)
    dtype = x.dtype
    peepholes = kernels.Peepholes.of(use_peephole, wci, wcf, wco)
    step = kernels.LstmStep(i, cs, f, o, ci, co, h_prev)
    cs_prev_grad, gates = kernels.lstm_step_grad(cs_prev, step, peepholes, cs_grad, h_grad)
    dicfo = np.concatenate([gates[letter] for letter in "icfo"], axis=1)
    weights = kernels.peephole_grads(use_peephole, cs_prev, cs, gates)
    return tuple(g.astype(dtype, copy=False) for g in (cs_prev_grad, dicfo, *weights))


@define(
    "LSTMBlockCellGrad",
    f"x: T, {_LSTM_INPUTS}, {_LSTM_STEP}, cs_grad: T, h_grad: T -> "
    f"cs_prev_grad: T, dicfo: T, {_LSTM_WEIGHT_GRADS}",
    f"use_peephole: bool; {_LSTM_TYPES}",
    infer=_lstm_cell_grad_infer,
    kernel=_lstm_cell_grad_kernel,
    gradient=NOT_DIFFERENTIABLE,
    samples=[
        Sample(*_lstm_samples(r(2, 2)).inputs, *[r(2, 3)] * 8, use_peephole=use)
        for use in (False, True)
    ],
)
def lstm_block_cell_grad(
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    i,
    cs,
    f,
    o,
    ci,
    co,
    cs_grad,
    h_grad,
    use_peephole,
    name=None,
):
    """Return the gradients of LSTMBlockCell for the old memory, the pre-activation gates, and the
    peephole weights.
    """


# -- Sequences -------------------------------------------------------------------------------------


def _block_infer(c: Any, seq_len_max: TensorShape, x: TensorShape, *rest: TensorShape) -> list[Any]:
    (gates,) = rest[-1].with_rank(1).as_list()
    if gates is not None and gates % 4:
        raise ValueError(f"Dimension size must be evenly divisible by 4 but is {gates}")
    return [(*x.with_rank(3).as_list()[:2], None if gates is None else gates // 4)] * 7


def _steps(seq_len_max: Any, x: np.ndarray) -> int:
    steps = int(seq_len_max)
    if not 0 <= steps <= x.shape[0]:
        raise ValueError(f"seq_len_max is {steps}, but x has {x.shape[0]} steps of time")
    return steps


def _block_kernel(
    *inputs: Any, forget_bias: float, cell_clip: float, use_peephole: bool
) -> tuple[Any, ...]:
    return _block("icfo", inputs, use_peephole, forget_bias, cell_clip)


def _block_v2_kernel(*inputs: Any, cell_clip: float, use_peephole: bool) -> tuple[Any, ...]:
    return _block("ifco", inputs, use_peephole, 0.0, cell_clip)


def _block(
    order: str,
    inputs: tuple[Any, ...],
    use_peephole: bool,
    forget_bias: float,
    cell_clip: float,
) -> tuple[Any, ...]:
    seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b = inputs
    kernels.check_lstm(x, cs_prev, h_prev, w, [wci, wcf, wco], b)
    peepholes = kernels.Peepholes.of(use_peephole, wci, wcf, wco)
    steps = _steps(seq_len_max, x)
    return tuple(
        kernels.lstm(steps, x, cs_prev, h_prev, w, b, peepholes, forget_bias, cell_clip, order)
    )


def _block_gradient(builder: str) -> Any:
    def gradient(b: OpBuilder, op: Any, *grads: Any) -> tuple[Any, ...]:
        found = getattr(b, builder)(
            *op.inputs, *op.outputs, grads[1], grads[6], op.get_attr("use_peephole")
        )
        return None, *found

    return gradient


def _block_grad_infer(
    c: Any, seq_len_max: TensorShape, x: TensorShape, *rest: TensorShape
) -> list[Any]:
    ranks = (3, 2, 2, 2, 1, 1, 1, 1)
    return [shape.with_rank(rank) for shape, rank in zip((x, *rest), ranks, strict=False)]


def _block_grad_kernel(order: str) -> Any:
    def kernel(
        seq_len_max: Any,
        x: Any,
        cs_prev: Any,
        h_prev: Any,
        w: Any,
        wci: Any,
        wcf: Any,
        wco: Any,
        b: Any,
        i: Any,
        cs: Any,
        f: Any,
        o: Any,
        ci: Any,
        co: Any,
        h: Any,
        cs_grad: Any,
        h_grad: Any,
        *,
        use_peephole: bool,
    ) -> tuple[Any, ...]:
        kernels.check_lstm(x, cs_prev, h_prev, w, [wci, wcf, wco], b)
        computed = {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co, "h": h}
        shape = (len(x), *cs_prev.shape)
        kernels.check_like(shape, **computed, cs_grad=cs_grad, h_grad=h_grad)
        peepholes = kernels.Peepholes.of(use_peephole, wci, wcf, wco)
        return tuple(
            kernels.lstm_grad(
                _steps(seq_len_max, x),
                x,
                cs_prev,
                h_prev,
                w,
                peepholes,
                use_peephole,
                list(computed.values()),
                cs_grad,
                h_grad,
                order,
            )
        )

    return kernel


_BLOCK_IN = f"seq_len_max: int64, x: T, {_LSTM_INPUTS}"
_BLOCK_GRADS = (
    f"x_grad: T, cs_prev_grad: T, h_prev_grad: T, w_grad: T, {_LSTM_WEIGHT_GRADS}, b_grad: T"
)
_BLOCK_GRAD = f"{_BLOCK_IN}, {_LSTM_STEP}, h: T, cs_grad: T, h_grad: T -> {_BLOCK_GRADS}"
_BLOCK_SAMPLES = [_lstm_samples(r(4, 2, 2), 3), _lstm_samples(r(4, 2, 2), 4, use_peephole=True)]
_BLOCK_GRAD_SAMPLES = [
    Sample(*_lstm_samples(r(4, 2, 2), 3).inputs, *[r(4, 2, 3)] * 9, use_peephole=use)
    for use in (False, True)
]


@define(
    "BlockLSTM",
    f"{_BLOCK_IN} -> {_LSTM_STEP}, h: T",
    f"{_FORGET_AND_CLIP}; {_LSTM_TYPES}",
    infer=_block_infer,
    kernel=_block_kernel,
    gradient=_block_gradient("block_lstm_grad"),
    samples=_BLOCK_SAMPLES,
)
def block_lstm(
    seq_len_max,
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    forget_bias=1.0,
    cell_clip=3.0,
    use_peephole=False,
    name=None,
):
    """Run an LSTM over x [time, batch, depth]; return LSTMBlockCell's outputs for every time step.

    Only the first seq_len_max steps are computed; the rest are zeros.
    """


@define(
    "BlockLSTMGrad",
    _BLOCK_GRAD,
    f"use_peephole: bool; {_LSTM_TYPES}",
    infer=_block_grad_infer,
    kernel=_block_grad_kernel("icfo"),
    gradient=NOT_DIFFERENTIABLE,
    samples=_BLOCK_GRAD_SAMPLES,
)
def block_lstm_grad(
    seq_len_max,
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    i,
    cs,
    f,
    o,
    ci,
    co,
    h,
    cs_grad,
    h_grad,
    use_peephole,
    name=None,
):
    """Return the gradients of BlockLSTM for all of its inputs except the first."""


@define(
    "BlockLSTMV2",
    f"{_BLOCK_IN} -> {_LSTM_STEP}, h: T",
    f"cell_clip: float = 0.0; use_peephole: bool = False; {_LSTM_TYPES}",
    infer=_block_infer,
    kernel=_block_v2_kernel,
    gradient=_block_gradient("block_lstm_grad_v2"),
    samples=_BLOCK_SAMPLES,
)
def block_lstm_v2(
    seq_len_max,
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    cell_clip=0.0,
    use_peephole=False,
    name=None,
):
    """As BlockLSTM, with the gates in the order input, forget, new memory, output, and without a
    forget bias.
    """


@define(
    "BlockLSTMGradV2",
    _BLOCK_GRAD,
    f"use_peephole: bool; {_LSTM_TYPES}",
    infer=_block_grad_infer,
    kernel=_block_grad_kernel("ifco"),
    gradient=NOT_DIFFERENTIABLE,
    samples=_BLOCK_GRAD_SAMPLES,
)
def block_lstm_grad_v2(
    seq_len_max,
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    i,
    cs,
    f,
    o,
    ci,
    co,
    h,
    cs_grad,
    h_grad,
    use_peephole,
    name=None,
):
    """Return the gradients of BlockLSTMV2 for all of its inputs except the first."""


# -- GRU -------------------------------------------------------------------------------------------

_GRU_INPUTS = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T"


def _gru_infer(c: Any, x: TensorShape, h_prev: TensorShape, *rest: TensorShape) -> list[Any]:
    return [_state_shape(x.with_rank(2)[:1], h_prev)] * 4


def _gru_gradient(b: OpBuilder, op: Any, *grads: Any) -> tuple[Any, ...]:
    x, h_prev, *_ = op.inputs
    reset, update, c, _ = op.outputs
    d_x, d_h_prev, d_c_bar, d_gates = b.gru_block_cell_grad(
        *op.inputs, r=reset, u=update, c=c, d_h=grads[3]
    )
    d_w_ru = b.matmul(b.concat([x, h_prev], 1), d_gates, transpose_a=True)
    d_w_c = b.matmul(b.concat([x, h_prev * reset], 1), d_c_bar, transpose_a=True)
    return d_x, d_h_prev, d_w_ru, d_w_c, b.reduce_sum(d_gates, 0), b.reduce_sum(d_c_bar, 0)


_GRU_SAMPLE = (r(2, 2), r(2, 3), r(5, 6), r(5, 3), r(6), r(3))


@define(
    "GRUBlockCell",
    f"{_GRU_INPUTS} -> r: T, u: T, c: T, h: T",
    "T: {float32}",
    infer=_gru_infer,
    kernel=kernels.gru_step,
    gradient=_gru_gradient,
    samples=[Sample(*_GRU_SAMPLE)],
)
def gru_block_cell(x, h_prev, w_ru, w_c, b_ru, b_c, name=None):
    """Return one step of a GRU: the reset and update gates, the candidate, and the new state."""


def _gru_grad_infer(c: Any, x: TensorShape, h_prev: TensorShape, *rest: TensorShape) -> list[Any]:
    state = _state_shape(x.with_rank(2)[:1], h_prev)
    return [x.with_rank(2), state, state, state[:1].concatenate(rest[0].with_rank(2)[1:])]


@define(
    "GRUBlockCellGrad",
    f"{_GRU_INPUTS}, r: T, u: T, c: T, d_h: T -> d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T",
    "T: {float32}",
    infer=_gru_grad_infer,
    kernel=kernels.gru_step_grad,
    gradient=NOT_DIFFERENTIABLE,
    samples=[Sample(*_GRU_SAMPLE, *[r(2, 3)] * 4)],
)
def gru_block_cell_grad(x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, d_h, name=None):
    """Return the gradients of GRUBlockCell for x, h_prev, and the pre-activation candidate and
    gates.
    """
