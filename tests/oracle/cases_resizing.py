"""Images of other sizes, and their gradients."""

import numpy as np

from tests.oracle.case import case

SIZES = [(3, 4, 6, 9), (7, 5, 3, 2), (4, 4, 4, 4), (1, 6, 5, 1), (6, 7, 1, 3), (9, 9, 4, 5)]


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


def pixels(tf, height, width, dtype=None):
    values = np.random.RandomState(height * 10 + width).uniform(0, 255, (2, height, width, 3))
    return tf.constant(values.astype(np.float32) if dtype is None else values.astype(dtype))


def resized(op, options, differentiable=True):
    def build(tf):
        results = []
        for height, width, rows, columns in SIZES:
            x = pixels(tf, height, width)
            y = getattr(tf.image, op)(x, [rows, columns], **options)
            results.append(y)
            if differentiable:
                results += tf.gradients(y, x, tf.sin(y))
        for dtype in (np.uint8, np.int32, np.float64):
            results.append(getattr(tf.image, op)(pixels(tf, 4, 5, dtype), [3, 7], **options))
        return results

    return build


for _op in ("resize_bilinear", "resize_nearest_neighbor", "resize_bicubic"):
    register(_op, resized(_op, {}), rtol=1e-4, atol=1e-4)
    register(_op + "_aligned", resized(_op, {"align_corners": True}), rtol=1e-4, atol=1e-4)
    _half = {"half_pixel_centers": True}
    register(_op + "_half", resized(_op, _half), rtol=1e-4, atol=1e-4)
register("resize_area", resized("resize_area", {}, False), rtol=1e-4, atol=1e-4)
_aligned = {"align_corners": True}
register("resize_area_aligned", resized("resize_area", _aligned, False), rtol=1e-4, atol=1e-4)
