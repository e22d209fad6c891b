"""Small steps and their printed forms. `python -m tests.golden.steps` rewrites the golden files
(only those of the named steps, if any): read the difference before you keep it.
"""

import sys
from pathlib import Path

import headrace as tf
from headrace._src.devices.device import local_devices
from headrace._src.pipeline import Options, compile_step

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


def loop():
    """A loop that reads one tensor array and writes another."""
    x = tf.placeholder("float32", [3, 2], name="x")
    w = tf.constant([1.0, 2.0], name="w")
    rows = tf.TensorArray("float32", 3, name="rows").unstack(x)
    sums = tf.TensorArray("float32", 3, name="sums")

    def body(i, state, found):
        state = tf.tanh(state * w + rows.read(i))
        return i + 1, state, found.write(i, state)

    start = (0, tf.zeros([2]), sums)
    _, _, found = tf.while_loop(lambda i, *_: i < 3, body, start, name="loop")
    total = tf.reduce_sum(found.stack(), name="total")
    return [total], [], {x: (3, 2)}


def branch():
    """A branch with a write in one arm, and what is the same in both."""
    x = tf.placeholder("float32", [2], name="x")
    p = tf.placeholder("bool", [], name="p")
    v = tf.Variable([1.0, 2.0], name="v", use_resource=True)

    def then():
        with tf.control_dependencies([v.assign_add(x, read_value=False)]):
            return tf.identity(x * 2.0)

    y = tf.cond(p, then, lambda: x * 2.0 - v, name="choice")
    return [tf.reduce_sum(y, name="total")], [], {x: (2,), p: ()}


def queue():
    """An element is put into a queue, and one is taken from it; a close comes last."""
    x = tf.placeholder("float32", [2], name="x")
    queue = tf.FIFOQueue(4, "float32", [[2]], name="queue")
    put = queue.enqueue(x * 2.0, name="put")
    with tf.control_dependencies([put]):
        taken = tf.identity(queue.dequeue(name="take") + 1.0, name="taken")
    with tf.control_dependencies([taken]):
        close = queue.close(name="close")
    return [taken, queue.size(name="size")], [close], {x: (2,)}


def mixed_precision():
    """A training step whose contractions are rewritten to 16 bits."""
    x = tf.placeholder("float32", [None, 2], name="x")
    w = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="w", use_resource=True)
    hidden = tf.nn.relu(tf.matmul(x, w, name="y"), name="hidden")
    loss = tf.reduce_mean(tf.exp(hidden), name="loss")
    (gradient,) = tf.gradients(loss, w)
    train = w.assign_sub(0.1 * gradient, read_value=False, name="train")
    return [loss], [train], {x: (4, 2)}


def two_devices():
    """A training step whose value goes to another device, and whose gradient comes back."""
    x = tf.placeholder("float32", [None, 2], name="x")
    with tf.device("/cpu:0"):
        w = tf.Variable([[1.0], [2.0]], name="w", use_resource=False)
        y = tf.matmul(x, w, name="y")
    with tf.device("/cpu:1"):
        loss = tf.reduce_mean(tf.square(y), name="loss")
    (gradient,) = tf.gradients(loss, w, colocate_gradients_with_ops=True)
    train = tf.assign_sub(w, 0.1 * gradient, name="train")
    return [loss], [train.op], {x: (4, 2)}


STEPS = [
    *(training, reads_and_writes, checks, loop, branch, queue, mixed_precision),
    two_devices,
]


def forms(fetches, targets, feeds, mixed=False, devices=1):
    """Return the printed result of each pass, by the pass's name."""
    seen = {}
    compile_step(
        fetches,
        targets,
        list(feeds),
        list(feeds.values()),
        Options(local_devices({"CPU": devices}), jit="off", mixed=mixed),
        lambda name, form: seen.update({name: str(form)}),
    )
    return seen


def printed(step):
    """The forms of a step, each pass that changed something under its name."""
    with tf.Graph().as_default():
        seen = forms(*step(), mixed=step is mixed_precision, devices=1 + (step is two_devices))
    parts, last = [], None
    for name, text in seen.items():
        if text != last:
            parts.append(f"# {name}\n{text}\n")
        last = text
    return "\n".join(parts)


if __name__ == "__main__":
    for each in STEPS if len(sys.argv) < 2 else [s for s in STEPS if s.__name__ in sys.argv]:
        (HERE / f"{each.__name__}.txt").write_text(printed(each))
