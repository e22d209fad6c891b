"""Brute-force definitions of what devices.onednn computes, in float64, straight from the formulas.

All take channels-last arrays; `channels_first` and `channels_last` convert. Windows are enumerated
by a loop over window positions, and everything else is vectorised.
"""

import itertools

import numpy as np


def channels_first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def channels_last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def padded(x, pads, fill=0.0):
    return np.pad(x.astype(np.float64), ((0, 0), *pads, (0, 0)), constant_values=fill)


def out_extents(extents, ksize, strides, dilations, pads):
    return tuple(
        (n + sum(p) - (k - 1) * d - 1) // s + 1
        for n, k, s, d, p in zip(extents, ksize, strides, dilations, pads)
    )


def window_slices(ksize, strides, dilations, out):
    """Yield (position in the window, slices of the padded input that it meets in all windows)."""
    for position in itertools.product(*map(range, ksize)):
        yield (
            position,
            (
                slice(None),
                *(
                    slice(p * d, p * d + (n - 1) * s + 1, s)
                    for p, d, n, s in zip(position, dilations, out, strides)
                ),
            ),
        )


def expand_groups(w, groups):
    """Return the dense filter [*window, in, out] of a grouped one [*window, in/groups, out]."""
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    dense = np.zeros((*w.shape[:-2], per_in * groups, w.shape[-1]))
    for g in range(groups):
        o = slice(g * per_out, (g + 1) * per_out)
        dense[..., g * per_in : (g + 1) * per_in, o] = w[..., o]
    return dense


def conv(x, w, strides, dilations, pads):
    ksize = w.shape[:-2]
    out = out_extents(x.shape[1:-1], ksize, strides, dilations, pads)
    xp = padded(x, pads)
    return sum(
        xp[at] @ w[position].astype(np.float64)
        for position, at in window_slices(ksize, strides, dilations, out)
    )


def conv_backward_input(x_shape, w, dy, strides, dilations, pads):
    dxp = padded(np.zeros(x_shape), pads)
    for position, at in window_slices(w.shape[:-2], strides, dilations, dy.shape[1:-1]):
        dxp[at] += dy.astype(np.float64) @ w[position].astype(np.float64).T
    return dxp[(slice(None), *(slice(p[0], p[0] + n) for p, n in zip(pads, x_shape[1:-1])))]


def conv_backward_filter(x, w_shape, dy, strides, dilations, pads):
    dw = np.zeros(w_shape)
    xp, flat = padded(x, pads), dy.astype(np.float64).reshape(-1, dy.shape[-1])
    for position, at in window_slices(w_shape[:-2], strides, dilations, dy.shape[1:-1]):
        dw[position] = xp[at].reshape(-1, x.shape[-1]).T @ flat
    return dw


def windows(x, ksize, strides, pads, fill):
    """Return every window's elements along a new first axis, in row-major order."""
    ones = (1,) * len(ksize)
    out = out_extents(x.shape[1:-1], ksize, strides, ones, pads)
    xp = padded(x, pads, fill)
    return np.stack([xp[at] for _, at in window_slices(ksize, strides, ones, out)])


def max_pool(x, ksize, strides, pads):
    return windows(x, ksize, strides, pads, -np.inf).max(0)


def max_pool_backward(x, dy, ksize, strides, pads):
    """Give each window's gradient to the first of its largest elements."""
    first = windows(x, ksize, strides, pads, -np.inf).argmax(0)
    dxp = padded(np.zeros(x.shape), pads)
    ones = (1,) * len(ksize)
    for i, (_, at) in enumerate(window_slices(ksize, strides, ones, dy.shape[1:-1])):
        dxp[at] += np.where(first == i, dy, 0)
    return dxp[(slice(None), *(slice(p[0], p[0] + n) for p, n in zip(pads, x.shape[1:-1])))]


def avg_pool(x, ksize, strides, pads):
    total = windows(x, ksize, strides, pads, 0).sum(0)
    return total / windows(np.ones_like(x), ksize, strides, pads, 0).sum(0)


def avg_pool_backward(x_shape, dy, ksize, strides, pads):
    count = windows(np.ones(x_shape), ksize, strides, pads, 0).sum(0)
    dxp = padded(np.zeros(x_shape), pads)
    ones = (1,) * len(ksize)
    for _, at in window_slices(ksize, strides, ones, dy.shape[1:-1]):
        dxp[at] += dy / count
    return dxp[(slice(None), *(slice(p[0], p[0] + n) for p, n in zip(pads, x_shape[1:-1])))]
