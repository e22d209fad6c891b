"""Colors, windows, borders and mirror images."""

import numpy as np

from tests.oracle.case import case


def image(tf, *shape, **options):
    values = np.random.RandomState(len(shape)).uniform(0.05, 0.95, shape)
    if options.get("dtype") == "uint8":
        return tf.constant((values * 255).astype(np.uint8))
    return tf.constant(values.astype(np.float32))


def unknown(tf, *shape):
    """An image whose shape isn't known before the step."""
    x = tf.placeholder_with_default(image(tf, *shape), [None] * len(shape))
    return x


def register(name, build, **options):
    build.__name__ = name
    build.__module__ = __name__
    case(build, **options)


FUNCTIONS = {
    "resize_images": lambda tf, x: [
        tf.image.resize_images(x, [4, 9], method=m, align_corners=a)
        for m in range(4)
        for a in (False, True)
    ],
    "resize_proportionally": lambda tf, x: tf.image.resize_images(
        x, [9, 12], preserve_aspect_ratio=True
    ),
    "crop_to_bounding_box": lambda tf, x: tf.image.crop_to_bounding_box(x, 1, 2, 3, 4),
    "pad_to_bounding_box": lambda tf, x: tf.image.pad_to_bounding_box(x, 1, 2, 13, 14),
    "crop_or_pad": lambda tf, x: [
        tf.image.resize_image_with_crop_or_pad(x, h, w) for h, w in [(9, 4), (3, 9), (2, 2)]
    ],
    "central_crop": lambda tf, x: [tf.image.central_crop(x, f) for f in (0.3, 0.5, 0.7)],
    "flip": lambda tf, x: [tf.image.flip_left_right(x), tf.image.flip_up_down(x)],
    "transpose_image": lambda tf, x: tf.image.transpose_image(x),
    "per_image_standardization": lambda tf, x: tf.image.per_image_standardization(x),
    "total_variation": lambda tf, x: tf.image.total_variation(x),
    "random_flip": lambda tf, x: [
        f(x, seed=seed)
        for seed in (1, 2, 3)
        for f in (tf.image.random_flip_left_right, tf.image.random_flip_up_down)
    ],
    "adjust_brightness": lambda tf, x: [tf.image.adjust_brightness(x, d) for d in (-0.3, 0.4)],
    "adjust_contrast": lambda tf, x: [tf.image.adjust_contrast(x, f) for f in (0.4, 1.7)],
    "adjust_saturation": lambda tf, x: [tf.image.adjust_saturation(x, f) for f in (0.4, 1.7)],
    "adjust_hue": lambda tf, x: [tf.image.adjust_hue(x, d) for d in (-0.4, 0.1, 0.7)],
    "random_colors": lambda tf, x: [
        tf.image.random_brightness(x, 0.3, seed=1),
        tf.image.random_contrast(x, 0.3, 1.5, seed=2),
        tf.image.random_saturation(x, 0.3, 1.5, seed=3),
        tf.image.random_hue(x, 0.3, seed=4),
    ],
    "rgb_to_grayscale": lambda tf, x: tf.image.rgb_to_grayscale(x),
    "grayscale_to_rgb": lambda tf, x: tf.image.grayscale_to_rgb(x[..., :1]),
}
for _name, _function in FUNCTIONS.items():
    _imports = _name != "random_flip"
    register(
        _name,
        lambda tf, f=_function: [f(tf, image(tf, 6, 7, 3))],
        graph=_name != "resize_proportionally",
        imports=_imports,
    )
    # The way to the same values differs where sizes aren't known.
    _batch = lambda tf, f=_function: [f(tf, image(tf, 2, 6, 7, 3))]  # noqa: E731
    register(_name + "_batch", _batch, graph=False)
    if _name != "grayscale_to_rgb":
        _dynamic = lambda tf, f=_function: [f(tf, unknown(tf, 6, 7, 3))]  # noqa: E731
        register(_name + "_unknown", _dynamic, graph=False, imports=False)


@case(graph=False)
def of_bytes(tf):
    x = image(tf, 6, 7, 3, dtype="uint8")
    return [
        tf.image.adjust_brightness(x, 0.4),
        tf.image.adjust_contrast(x, 1.6),
        tf.image.adjust_saturation(x, 1.3),
        tf.image.rgb_to_grayscale(x),
        tf.image.per_image_standardization(tf.cast(x, tf.float32)),
        tf.image.resize_images(x, [3, 3], method=1),
    ]


@case(graph=False)
def hsv(tf):
    x = image(tf, 2, 4, 5, 3)
    y = tf.image.rgb_to_hsv(x)
    return [y, tf.image.hsv_to_rgb(y), tf.gradients(y, x, tf.cos(y))]
