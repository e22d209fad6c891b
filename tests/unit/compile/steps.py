"""Steps run by both tiers, and what the compiler makes of them, for tests."""

import numpy as np

import headrace as tf
from headrace._src.pipeline import Options, compile_step

CLOSE = {"float64": 1e-11, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def session(jit):
    """A session that compiles every step at once, or none."""
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = 1 if jit else -1
    return tf.Session(config=config)


def results(jit, fetches, feeds, steps=2):
    """The fetches of some steps in a new session, and the variables at their end."""
    with session(jit) as run:
        run.run(tf.global_variables_initializer())
        found = [run.run(fetches, feeds) for _ in range(steps)]
        return found, run.run([v.value() for v in tf.global_variables()])


def assert_tiers_agree(fetches, feeds=None, steps=2):
    """Compiled, the step gives what it gives interpreted, several times in a row."""
    wanted = _flat(results(False, fetches, feeds, steps))
    found = _flat(results(True, fetches, feeds, steps))
    assert len(found) == len(wanted)
    for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
        assert_close(f, w, f"value {i}")


def _flat(nested):
    if isinstance(nested, list | tuple):
        return [leaf for part in nested for leaf in _flat(part)]
    return [] if nested is None else [np.asarray(nested)]


def assert_close(found, wanted, where=""):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), where
    close = CLOSE.get(str(wanted.dtype))
    if close is None:
        assert np.array_equal(found, wanted), where
        return
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    np.testing.assert_allclose(found, wanted, close, close * scale, err_msg=where)


def clusters(fetches, feeds=None, targets=()):
    """The compiled clusters of a step, in order; `feeds` are arrays by placeholder."""
    feeds = feeds or {}
    seen = {}
    compile_step(
        fetches,
        targets,
        list(feeds),
        [np.shape(v) for v in feeds.values()],
        Options(jit="always"),
        lambda name, form: seen.update({name: form}),
    )
    return [n.definition.kernel for n in seen["cluster"].nodes if n.type == "_Cluster"]


def uniform(*shape, seed=0, dtype=np.float32):
    """Random numbers in [-1, 1)."""
    return np.random.default_rng((seed, *shape)).uniform(-1, 1, shape).astype(dtype)
