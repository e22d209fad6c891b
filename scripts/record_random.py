"""Record what TensorFlow 1.15.5's random kernels return, for tests/unit/ops/test_philox.py.

In: nothing. Out: tests/fixtures/random/tf115.npz, holding `cases`, a JSON list of op, seeds,
arguments and the shape, dtype and number of outputs; and for each dtype one flat array, the outputs
of all cases of that dtype end to end. Stateful ops are run twice in one session, so that the second
output shows how far the first run moved the generator.

Run by hand with an interpreter that has TensorFlow 1.15.5 (CPU); CI only reads the result:

    python scripts/record_random.py

bfloat16 has no NumPy type there: those arrays are stored as their bits, uint16. One intra-op thread
is used, because Multinomial and ParameterizedTruncatedNormal depend on the number of threads.
"""

import json
import os

import numpy as np
import tensorflow as tf

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "random", "tf115.npz")
RUNS = 2
SEEDS = [(87654321, 42), (0, 7), (-3, 2**40 + 5)]
STATELESS_SEEDS = [(0, 0), (12345, -9), (2**45 + 1, 3)]
SHAPES = [[], [0], [7], [3, 0, 2]]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def case(op, seed, **args):
    return {"op": op, "seed": list(seed), "args": args}


def shaped_cases():
    """The ops that take only a shape and a dtype, and the integers."""
    for prefix, seeds, large in [("", SEEDS, 1003), ("stateless_", STATELESS_SEEDS, 101)]:
        for number, seed in enumerate(seeds):
            for shape in SHAPES + [[large]] if number == 0 else [[2, 9]]:
                for dtype in FLOATS:
                    for name in ["uniform", "standard_normal", "truncated_normal"]:
                        yield case(prefix + name, seed, shape=shape, dtype=dtype)
                for dtype, low, high in [
                    ("int32", -5, 17),
                    ("int32", -(2**31), 2**31 - 1),
                    ("int64", 0, 10),
                    ("int64", -(2**62), 2**62 + 12345),
                ]:
                    args = {"shape": shape, "minval": low, "maxval": high, "dtype": dtype}
                    yield case(prefix + "uniform_int", seed, **args)


def shuffle_cases():
    for shape in [[0], [1], [2], [10], [1003], [7, 3], [4, 0], [1, 5], [3, 2, 2]]:
        yield case("shuffle", SEEDS[0], shape=shape)
    yield case("shuffle", SEEDS[2], shape=[33])


def parameterized_cases():
    one = [  # mean, stdev, min, max: every sampler, each of them also mirrored
        (0.0, 1.0, -2.0, 2.0),
        (1.0, 2.0, -10.0, 1.5),
        (0.0, 1.0, 0.1, 0.7),
        (0.0, 1.0, -0.9, -0.2),
        (0.0, 1.0, 4.0, 100.0),
        (0.0, 3.0, -90.0, -12.0),
        (-1.0, 0.5, 0.5, float("inf")),
        (-1.0, 0.5, float("-inf"), -3.0),
        (0.0, 1.0, -0.5, 0.8),
    ]
    for dtype in ["float16", "float32", "float64"]:
        for number, parameters in enumerate(one):
            # Scalars and vectors of length one differ: the latter keep the rows apart.
            own = parameters if number % 3 else [[p] for p in parameters]
            yield parameterized(SEEDS[0], [3, 41], own, dtype)
        rows = [list(p) for p in zip(*one)]
        yield parameterized(SEEDS[1], [len(one), 6], rows, dtype)
        yield parameterized(SEEDS[1], [len(one), 2, 11], rows, dtype)
        yield parameterized(SEEDS[1], [2, 0], one[0], dtype)
    yield parameterized(SEEDS[2], [1501], one[1], "float32")


def parameterized(seed, shape, parameters, dtype):
    names = ["means", "stdevs", "minvals", "maxvals"]
    args = dict(zip(names, parameters), shape=shape, dtype=dtype)
    return case("parameterized_truncated_normal", seed, **args)


def multinomial_cases():
    random = np.random.RandomState(0)
    inf = float("inf")
    odd = [[0.0, -inf, 1.0], [-inf, -inf, 2.0], [inf, 1.0, 0.0], [float("nan"), 1.0, 1.0]]
    for dtype in ["float16", "float32", "float64"]:
        for output_dtype in ["int32", "int64"]:
            for rows, classes, samples in [
                (1, 2, 5),
                (3, 10, 7),
                (5, 33, 64),
                (2, 4, 0),
                (0, 4, 3),
            ]:
                logits = np.round(random.randn(rows, classes) * 2, 2).reshape(rows, classes)
                yield case(
                    "multinomial",
                    SEEDS[0],
                    logits=logits.tolist(),
                    logits_shape=[rows, classes],
                    logits_dtype=dtype,
                    num_samples=samples,
                    dtype=output_dtype,
                )
        yield case(
            "multinomial",
            SEEDS[1],
            logits=odd,
            logits_shape=[4, 3],
            logits_dtype=dtype,
            num_samples=20,
            dtype="int64",
        )


def gamma_cases():
    alphas = [[0.05, 0.7, 1.0, 1.5], [30.0, 1e3, 0.999, 1e-3]]
    for dtype in ["float16", "float32", "float64"]:
        for shape in [[], [0], [9], [2, 30]]:
            yield case("random_gamma", SEEDS[0], shape=shape, alpha=alphas, dtype=dtype)
        yield case("random_gamma", SEEDS[1], shape=[200], alpha=0.3, dtype=dtype)
        yield case("random_gamma", SEEDS[2], shape=[5], alpha=[], dtype=dtype)


def poisson_cases():
    rates = [[0.0, 0.5, 3.0, 9.99], [10.0, 12.5, 100.0, 1e4]]
    for rate_dtype, dtype in [
        ("float16", "float16"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("float32", "int32"),
        ("float64", "int64"),
        ("int32", "float64"),
        ("int64", "int32"),
    ]:
        for shape in [[], [0], [9], [2, 30]]:
            yield case(
                "random_poisson_v2",
                SEEDS[0],
                shape=shape,
                rate=rates,
                rate_dtype=rate_dtype,
                dtype=dtype,
            )


def build(op, seed, args):
    """The TensorFlow op of one case."""
    raw = tf.raw_ops
    dtype = args.get("dtype")
    if op == "shuffle":
        value = tf.constant(np.arange(np.prod(args["shape"], dtype=int)).reshape(args["shape"]))
        return raw.RandomShuffle(value=value, seed=seed[0], seed2=seed[1])
    if op == "multinomial":
        logits = np.array(args["logits"], args["logits_dtype"]).reshape(args["logits_shape"])
        return raw.Multinomial(
            logits=logits,
            num_samples=args["num_samples"],
            output_dtype=dtype,
            seed=seed[0],
            seed2=seed[1],
        )
    shape = tf.constant(args["shape"], tf.int32)
    stateless = op.startswith("stateless_")
    seeds = (
        {"seed": tf.constant(seed, tf.int64)} if stateless else dict(zip(["seed", "seed2"], seed))
    )
    if op == "parameterized_truncated_normal":
        names = ["means", "stdevs", "minvals", "maxvals"]
        parameters = {name: np.array(args[name], dtype) for name in names}
        return raw.ParameterizedTruncatedNormal(shape=shape, **parameters, **seeds)
    if op == "random_gamma":
        return raw.RandomGamma(shape=shape, alpha=np.array(args["alpha"], dtype), **seeds)
    if op == "random_poisson_v2":
        rate = np.array(args["rate"], args["rate_dtype"])
        return raw.RandomPoissonV2(shape=shape, rate=rate, dtype=dtype, **seeds)
    kind = op[len("stateless_") :] if stateless else op
    if kind == "uniform_int":
        bounds = {name: np.array(args[name], dtype) for name in ["minval", "maxval"]}
        make = raw.StatelessRandomUniformInt if stateless else raw.RandomUniformInt
        return make(shape=shape, **bounds, **seeds)
    make = {
        "uniform": raw.RandomUniform,
        "standard_normal": raw.RandomStandardNormal,
        "truncated_normal": raw.TruncatedNormal,
        "stateless_uniform": raw.StatelessRandomUniform,
        "stateless_standard_normal": raw.StatelessRandomNormal,
        "stateless_truncated_normal": raw.StatelessTruncatedNormal,
    }[op]
    return make(shape=shape, dtype=dtype, **seeds)


def bits(array):
    return array.view(np.uint16) if array.dtype == tf.bfloat16.as_numpy_dtype else array


def main():
    generators = [
        shaped_cases,
        shuffle_cases,
        parameterized_cases,
        multinomial_cases,
        gamma_cases,
        poisson_cases,
    ]
    cases = [c for generator in generators for c in generator()]
    with tf.Graph().as_default():
        fetches = [build(c["op"], c["seed"], c["args"]) for c in cases]
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
        with tf.compat.v1.Session(config=config) as session:
            runs = [[bits(session.run(fetch)) for fetch in fetches] for _ in range(RUNS)]
    pools = {}
    for index, entry in enumerate(cases):
        outputs = [run[index] for run in runs]
        if entry["op"].startswith("stateless_"):
            outputs = outputs[:1]
        shape, dtype = list(outputs[0].shape), outputs[0].dtype.name
        entry["outputs"] = {"shape": shape, "dtype": dtype, "count": len(outputs)}
        pools.setdefault(dtype, []).extend(array.ravel() for array in outputs)
    arrays = {dtype: np.concatenate(pool) for dtype, pool in pools.items()}
    arrays["cases"] = np.array(json.dumps(cases))
    np.savez_compressed(OUT, **arrays)
    print(f"{len(cases)} cases, {os.path.getsize(OUT)} bytes")


if __name__ == "__main__":
    main()
