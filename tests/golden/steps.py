"""Small steps and their printed forms. `python -m tests.golden.steps` writes the golden files anew:
read the difference before you keep it.
"""

from pathlib import Path

import headrace as tf
from headrace.pipeline import Options, compile_step

HERE = Path(__file__).parent


def training():
    """A step of gradient descent on a reference variable."""
    x = tf.placeholder("float32", [None, 2], name="x")
    w = tf.Variable([[1.0], [2.0]], name="w", use_resource=False)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w, name="y")), name="loss")
    (slope,) = tf.gradients(loss, w)
    train = tf.assign_sub(w, 0.1 * slope, name="train")
    return [loss], [train.op], {x: (4, 2)}


def reads_and_writes():
    """A resource variable, read before and after it's written; shapes from shapes."""
    x = tf.placeholder("float32", [None, None], name="x")
    v = tf.Variable([0.0, 0.0], name="v", use_resource=True)
    before = v.read_value()
    flat = tf.reshape(x, [tf.shape(x)[0] * tf.shape(x)[1]], name="flat")
    write = v.assign(flat[:2], read_value=False)
    with tf.control_dependencies([write]):
        after = tf.identity(v.read_value() * 1.0, name="after")
    again = tf.maximum(v.read_value(), tf.zeros_like(flat[:2]), name="again")
    return [before, after, again], [], {x: (2, 2)}


def checks():
    """An assertion that others wait for, a random op, and a read through a reference."""
    x = tf.placeholder("float32", [None], name="x")
    w = tf.Variable([1.0, 2.0], name="w", use_resource=False)
    check = tf.Assert(tf.reduce_all(x > 0.0, name="all"), [x], name="check")
    noise = tf.random_uniform(tf.shape(x), seed=1, name="noise")
    with tf.control_dependencies([check]):
        y = tf.identity(x + 0.0 * noise, name="y")
    return [tf.multiply(y, w._ref(), name="z")], [], {x: (2,)}


STEPS = [training, reads_and_writes, checks]


def forms(fetches, targets, feeds):
    """What each pass makes, printed, by the pass's name."""
    seen = {}
    compile_step(
        fetches,
        targets,
        list(feeds),
        list(feeds.values()),
        Options(jit="off"),
        lambda name, form: seen.update({name: str(form)}),
    )
    return seen


def printed(step):
    """The forms of a step, each pass that changed something under its name."""
    with tf.Graph().as_default():
        seen = forms(*step())
    parts, last = [], None
    for name, text in seen.items():
        if text != last:
            parts.append(f"# {name}\n{text}\n")
        last = text
    return "\n".join(parts)


if __name__ == "__main__":
    for each in STEPS:
        (HERE / f"{each.__name__}.txt").write_text(printed(each))
