"""Expressions whose static shapes TensorFlow 1.15.5 and Headrace must agree on. Valid Python 3.7.

Each line of fixtures/static_shapes.txt is `expression => shape`, or `expression => refused` if
building it raises a ValueError or TypeError; scripts/record_oracle writes the right sides.
"""

import os

PATH = os.path.join(os.path.dirname(os.path.dirname(__file__)), "fixtures", "static_shapes.txt")
REFUSED = "refused"


def recorded():
    """Pairs (expression, what TensorFlow says of it)."""
    with open(PATH) as lines:
        return [tuple(line.rstrip("\n").split(" => ")) for line in lines]


def evaluate(tf, expression):
    """The static shape of a tensor, or of those of a list, as text."""
    names = {
        "tf": tf,
        "P": tf.placeholder,
        "f32": tf.float32,
        "i32": tf.int32,
        "i64": tf.int64,
        "shape_of": lambda x: tf.raw_ops.Shape(input=x, out_type=tf.int32),
        "by": lambda f, x: tf.gradients(f(x), x)[0],
    }
    with tf.Graph().as_default():
        try:
            found = eval(expression, names)
        except (ValueError, TypeError):
            return REFUSED
    many = found if isinstance(found, (list, tuple)) else [found]
    return " ".join(str(getattr(value, "shape", value)) for value in many)


def record(tf):
    """Write what TensorFlow says."""
    lines = [f"{e} => {evaluate(tf, e)}\n" for e, _ in recorded()]
    with open(PATH, "w") as out:
        out.writelines(lines)
    print(f"static_shapes: {len(lines)} expressions")
