"""One or more cases per op family: how it's written in TensorFlow and, where there is a short way,
in NumPy. Valid Python 3.7.
"""

CASES = {}


def case(name, arrays, build, plain=None):
    """Time `build(tf, *placeholders)` fed with `arrays(np)`, and `plain(np, *arrays)` for NumPy."""

    def make(tf, np):
        values = arrays(np)
        if tf is None:
            return None if plain is None else lambda: plain(np, *values)
        with tf.Graph().as_default():
            places = [tf.placeholder(tf.as_dtype(v.dtype), v.shape) for v in values]
            # Not a group of it: TensorFlow would prune what nobody reads.
            fetch = build(tf, *places)
            session = tf.Session()
            for v in tf.global_variables():
                session.run(v.initializer)
            call = session.make_callable(fetch, places)
        return lambda: call(*values)

    CASES[name] = make


def f32(*shapes):
    return lambda np: [
        np.random.RandomState(i).rand(*s).astype("f") + 0.1 for i, s in enumerate(shapes)
    ]


MILLION = (1000, 1000)

# Element-wise math
case("add_1M", f32(MILLION, MILLION), lambda tf, x, y: x + y, lambda np, x, y: x + y)
case("add_broadcast_1M", f32(MILLION, (1000,)), lambda tf, x, y: x + y, lambda np, x, y: x + y)
case("mul_100", f32((100,), (100,)), lambda tf, x, y: x * y, lambda np, x, y: x * y)
case("exp_1M", f32(MILLION), lambda tf, x: tf.exp(x), lambda np, x: np.exp(x))
case("log_1M", f32(MILLION), lambda tf, x: tf.log(x), lambda np, x: np.log(x))
case("tanh_1M", f32(MILLION), lambda tf, x: tf.tanh(x), lambda np, x: np.tanh(x))
case("sigmoid_1M", f32(MILLION), lambda tf, x: tf.sigmoid(x), lambda np, x: 1 / (1 + np.exp(-x)))
case("erf_1M", f32(MILLION), lambda tf, x: tf.erf(x))
case("erfc_1M", f32(MILLION), lambda tf, x: tf.erfc(x))
case("lgamma_100k", f32((100000,)), lambda tf, x: tf.lgamma(x))
case("digamma_100k", f32((100000,)), lambda tf, x: tf.digamma(x))
case(
    "pow_1M", f32(MILLION, MILLION), lambda tf, x, y: tf.pow(x, y), lambda np, x, y: np.power(x, y)
)
case("greater_1M", f32(MILLION, MILLION), lambda tf, x, y: x > y, lambda np, x, y: x > y)
case("cast_1M", f32(MILLION), lambda tf, x: tf.cast(x, tf.float64), lambda np, x: x.astype("d"))

# Reductions
case("sum_all_1M", f32(MILLION), lambda tf, x: tf.reduce_sum(x), lambda np, x: x.sum())
case("sum_rows_1M", f32(MILLION), lambda tf, x: tf.reduce_sum(x, 1), lambda np, x: x.sum(1))
case("sum_columns_1M", f32(MILLION), lambda tf, x: tf.reduce_sum(x, 0), lambda np, x: x.sum(0))
case("mean_1M", f32(MILLION), lambda tf, x: tf.reduce_mean(x), lambda np, x: x.mean())
case("max_rows_1M", f32(MILLION), lambda tf, x: tf.reduce_max(x, 1), lambda np, x: x.max(1))
case("argmax_1M", f32(MILLION), lambda tf, x: tf.argmax(x, 1), lambda np, x: x.argmax(1))
case("cumsum_1M", f32(MILLION), lambda tf, x: tf.cumsum(x, 1), lambda np, x: x.cumsum(1))
case(
    "unsorted_segment_sum_100k",
    lambda np: [
        np.ones((100000, 8), "f"),
        np.random.RandomState(0).randint(0, 1000, 100000).astype("i"),
    ],
    lambda tf, x, i: tf.unsorted_segment_sum(x, i, 1000),
)

# Products
case("matmul_64", f32((64, 64), (64, 64)), lambda tf, x, y: tf.matmul(x, y), lambda np, x, y: x @ y)
case(
    "matmul_1024",
    f32((1024, 1024), (1024, 1024)),
    lambda tf, x, y: tf.matmul(x, y),
    lambda np, x, y: x @ y,
)
case(
    "matmul_transposed_1024",
    f32((1024, 1024), (1024, 1024)),
    lambda tf, x, y: tf.matmul(x, y, transpose_b=True),
    lambda np, x, y: x @ y.T,
)
case(
    "batch_matmul_64x128x64",
    f32((64, 128, 64), (64, 64, 128)),
    lambda tf, x, y: tf.matmul(x, y),
    lambda np, x, y: x @ y,
)
case(
    "einsum_bhqd_bhkd",
    f32((8, 8, 64, 32), (8, 8, 64, 32)),
    lambda tf, x, y: tf.einsum("bhqd,bhkd->bhqk", x, y),
    lambda np, x, y: np.einsum("bhqd,bhkd->bhqk", x, y, optimize=True),
)

# Linear algebra
case(
    "cholesky_256",
    lambda np: [(np.eye(256) * 9 + 0.1).astype("f")],
    lambda tf, x: tf.cholesky(x),
    lambda np, x: np.linalg.cholesky(x),
)
case(
    "inverse_256",
    lambda np: [(np.eye(256) * 9 + 0.1).astype("f")],
    lambda tf, x: tf.matrix_inverse(x),
    lambda np, x: np.linalg.inv(x),
)
case("svd_128", f32((128, 128)), lambda tf, x: tf.svd(x), lambda np, x: np.linalg.svd(x))
case(
    "fft_64k",
    lambda np: [np.ones(65536, np.complex64)],
    lambda tf, x: tf.fft(x),
    lambda np, x: np.fft.fft(x),
)
case("rfft_64k", f32((65536,)), lambda tf, x: tf.signal.rfft(x), lambda np, x: np.fft.rfft(x))
case(
    "fft2d_512",
    lambda np: [np.ones((512, 512), np.complex64)],
    lambda tf, x: tf.fft2d(x),
    lambda np, x: np.fft.fft2(x),
)

# Array ops
case(
    "transpose_1M",
    f32(MILLION),
    lambda tf, x: tf.transpose(x),
    lambda np, x: np.ascontiguousarray(x.T),
)
case(
    "concat_1M",
    f32(MILLION, MILLION),
    lambda tf, x, y: tf.concat([x, y], 1),
    lambda np, x, y: np.concatenate([x, y], 1),
)
case(
    "split_1M",
    f32(MILLION),
    lambda tf, x: tf.split(x, 4, 1),
    lambda np, x: [p.copy() for p in np.split(x, 4, 1)],
)
case(
    "stack_1M",
    f32(MILLION, MILLION),
    lambda tf, x, y: tf.stack([x, y]),
    lambda np, x, y: np.stack([x, y]),
)
case(
    "strided_slice_1M",
    f32(MILLION),
    lambda tf, x: x[::2, 1:-1] + 0.0,
    lambda np, x: x[::2, 1:-1] + np.float32(0),
)
case(
    "pad_1M",
    f32(MILLION),
    lambda tf, x: tf.pad(x, [[1, 1], [2, 2]]),
    lambda np, x: np.pad(x, [[1, 1], [2, 2]]),
)
case(
    "tile_1M",
    f32((1000, 100)),
    lambda tf, x: tf.tile(x, [1, 10]),
    lambda np, x: np.tile(x, (1, 10)),
)
case(
    "gather_rows_100k",
    lambda np: [
        np.ones((50000, 64), "f"),
        np.random.RandomState(0).randint(0, 50000, 10000).astype("i"),
    ],
    lambda tf, x, i: tf.gather(x, i),
    lambda np, x, i: x[i],
)
case(
    "where_1M",
    f32(MILLION, MILLION),
    lambda tf, x, y: tf.where(x > y, x, y),
    lambda np, x, y: np.where(x > y, x, y),
)
case(
    "one_hot_10k",
    lambda np: [np.arange(10000, dtype="i") % 100],
    lambda tf, i: tf.one_hot(i, 100),
    lambda np, i: np.eye(100, dtype="f")[i],
)
case("top_k_1M", f32(MILLION), lambda tf, x: tf.nn.top_k(x, 10))
case("sort_1M", f32(MILLION), lambda tf, x: tf.sort(x), lambda np, x: np.sort(x))
case(
    "unique_100k",
    lambda np: [np.random.RandomState(0).randint(0, 1000, 100000)],
    lambda tf, x: tf.unique(x),
)

# Random numbers
case(
    "random_uniform_1M",
    lambda np: [],
    lambda tf: tf.random_uniform([1000000]),
    lambda np: np.random.rand(1000000),
)
case(
    "random_normal_1M",
    lambda np: [],
    lambda tf: tf.random_normal([1000000]),
    lambda np: np.random.randn(1000000),
)
case("truncated_normal_1M", lambda np: [], lambda tf: tf.truncated_normal([1000000]))
case(
    "random_integers_1M",
    lambda np: [],
    lambda tf: tf.random_uniform([1000000], 0, 1000, tf.int32),
    lambda np: np.random.randint(0, 1000, 1000000),
)
case("random_uniform_10", lambda np: [], lambda tf: tf.random_uniform([10]))

# Neural networks
case(
    "conv_3x3_64_56",
    f32((8, 56, 56, 64), (3, 3, 64, 64)),
    lambda tf, x, w: tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"),
)
case(
    "conv_3x3_64_56_gradients",
    f32((8, 56, 56, 64), (3, 3, 64, 64)),
    lambda tf, x, w: tf.gradients(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), [x, w]),
)
case(
    "depthwise_3x3_64_56",
    f32((8, 56, 56, 64), (3, 3, 64, 1)),
    lambda tf, x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"),
)
case(
    "max_pool_2x2",
    f32((16, 112, 112, 32)),
    lambda tf, x: tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
)
case(
    "avg_pool_2x2",
    f32((16, 112, 112, 32)),
    lambda tf, x: tf.nn.avg_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME"),
)
case(
    "relu_1M", f32(MILLION), lambda tf, x: tf.nn.relu(x), lambda np, x: np.maximum(x, np.float32(0))
)
case("softmax_1000x1000", f32(MILLION), lambda tf, x: tf.nn.softmax(x))
case(
    "softmax_cross_entropy",
    f32((256, 1000), (256, 1000)),
    lambda tf, x, y: tf.gradients(
        tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x), x
    ),
)
case(
    "fused_batch_norm",
    f32((16, 56, 56, 64), (64,), (64,)),
    lambda tf, x, s, o: tf.nn.fused_batch_norm(x, s, o)[0],
)
case(
    "fused_batch_norm_gradients",
    f32((16, 56, 56, 64), (64,), (64,)),
    lambda tf, x, s, o: tf.gradients(tf.nn.fused_batch_norm(x, s, o)[0], [x, s, o]),
)
case("lrn", f32((8, 28, 28, 64)), lambda tf, x: tf.nn.lrn(x, 5, 1.0, 1e-4, 0.75))


# Connectionist temporal classification
def _speech(np, time, batch, classes, labels):
    """Logits, labels in sparse form and the lengths of the sequences: from half to all steps."""
    state = np.random.RandomState(0)
    logits = (3 * state.randn(time, batch, classes)).astype("f")
    indices = np.stack(np.mgrid[:batch, :labels], 2).reshape(-1, 2).astype("q")
    values = state.randint(0, classes - 1, batch * labels).astype("i")
    lengths = np.linspace(time // 2, time, batch).astype("i")
    return [logits, indices, values, lengths]


def _ctc_loss(tf, x, indices, values, lengths):
    shape = [int(x.shape[1]), int(values.shape[0]) // int(x.shape[1])]
    return tf.nn.ctc_loss(tf.SparseTensor(indices, values, shape), x, lengths)


def _beam_search(**settings):
    def build(tf, x, lengths):
        decoded, scores = tf.nn.ctc_beam_search_decoder(x, lengths, **settings)
        return [scores] + [d.values for d in decoded]

    return build


def _sequences(time, batch):
    return lambda np: [_speech(np, time, batch, 28, 1)[i] for i in (0, 3)]


for _time, _batch, _labels in [(50, 16, 1), (50, 16, 10), (100, 1, 20), (200, 32, 40)]:
    _name = f"ctc_loss_{_time}x{_batch}x{_labels}"
    _arrays = lambda np, sizes=(_time, _batch, 28, _labels): _speech(np, *sizes)  # noqa: E731
    case(_name, _arrays, _ctc_loss)
    case(_name + "_gradients", _arrays, lambda tf, x, *y: tf.gradients(_ctc_loss(tf, x, *y), x))
for _time, _batch in [(50, 1), (50, 16), (100, 16)]:
    case(
        f"ctc_greedy_{_time}x{_batch}",
        _sequences(_time, _batch),
        lambda tf, x, n: tf.nn.ctc_greedy_decoder(x, n)[0][0].values,
    )
    for _width, _paths in [(10, 1), (100, 1), (100, 3)]:
        case(
            f"ctc_beam_{_time}x{_batch}_width{_width}_top{_paths}",
            _sequences(_time, _batch),
            _beam_search(beam_width=_width, top_paths=_paths, merge_repeated=_paths == 1),
        )


# State, sparse, strings
def _assign_add(tf, x):
    v = tf.Variable(tf.zeros([1000, 1000]))
    return tf.assign_add(v, x).op


def _scatter_add(tf, i, x):
    v = tf.Variable(tf.zeros([50000, 64]))
    return tf.scatter_add(v, i, x).op


case("assign_add_1M", f32(MILLION), _assign_add)
case(
    "scatter_add_10k_rows",
    lambda np: [
        np.random.RandomState(0).randint(0, 50000, 10000).astype("i"),
        np.ones((10000, 64), "f"),
    ],
    _scatter_add,
)
case(
    "sparse_dense_matmul",
    lambda np: [
        np.stack(
            [np.arange(20000) // 20, np.random.RandomState(0).randint(0, 1000, 20000)], 1
        ).astype("q"),
        np.ones(20000, "f"),
        np.ones((1000, 64), "f"),
    ],
    lambda tf, i, v, d: tf.sparse_tensor_dense_matmul(tf.SparseTensor(i, v, [1000, 1000]), d),
)


# Strings are fed: what a graph says of constants is computed once.
def texts(*patterns):
    """For each pattern a vector of 10000 strings, each with its number in it."""
    return lambda np: [np.array([p % i for i in range(10000)], object) for p in patterns]


_SHORT, _LONG = b"word%d", b"%d " + bytes(range(65, 91)) * 8


def string_case(name, build, *patterns):
    case("string_" + name + "_10k", texts(*patterns or [_SHORT]), build)


string_case("to_hash_bucket", lambda tf, x: tf.string_to_hash_bucket_fast(x, 1000))
string_case("to_hash_bucket_long", lambda tf, x: tf.string_to_hash_bucket_fast(x, 1000), _LONG)
string_case("to_hash_bucket_strong", lambda tf, x: tf.string_to_hash_bucket_strong(x, 1000, [1, 2]))
string_case("to_hash_bucket_old", lambda tf, x: tf.string_to_hash_bucket(x, 1000))
string_case("join", lambda tf, x, y: tf.string_join([x, y, "b"]), b"a%d", b"c%d")
string_case("split", lambda tf, x: tf.string_split(x).values, b"to be or not %d")
string_case("split_v2", lambda tf, x: tf.strings.split(x, result_type="SparseTensor").values,
            b"to be or not %d")  # fmt: skip
string_case("length", lambda tf, x: tf.strings.length(x))
string_case("lower", lambda tf, x: tf.strings.lower(x), b"Some WORD %d")
string_case("strip", lambda tf, x: tf.strings.strip(x), b"  word %d  ")
string_case("substr", lambda tf, x: tf.strings.substr(x, 1, 3))
string_case("to_number", lambda tf, x: tf.string_to_number(x), b"%d.5")
string_case("to_number_int", lambda tf, x: tf.string_to_number(x, tf.int64), b"%d")
string_case("regex_replace", lambda tf, x: tf.strings.regex_replace(x, "[0-9]+", "#"), b"a %d b")
string_case("regex_replace_plain", lambda tf, x: tf.strings.regex_replace(x, " b", "#"), b"a %d b")
string_case(
    "regex_match", lambda tf, x: tf.strings.regex_full_match(x, "[a-z]+[0-9]*[02468]"), _SHORT
)
string_case("decode_raw", lambda tf, x: tf.decode_raw(x, tf.uint8), b"%05d")
string_case("decode_csv", lambda tf, x: tf.decode_csv(x, [[0.0], [""], [0]]), b"1.5,word,%d")
case("as_string_int_10k", lambda np: [np.arange(10000)], lambda tf, x: tf.as_string(x))
case("as_string_float_10k", f32((10000,)), lambda tf, x: tf.as_string(x))


def _parse_example(tf, x):
    features = {
        "number": tf.FixedLenFeature([4], tf.float32),
        "word": tf.FixedLenFeature([], tf.string),
        "ids": tf.VarLenFeature(tf.int64),
    }
    parsed = tf.parse_example(x, features)
    return [parsed["number"], parsed["word"], parsed["ids"].values]


def _examples(np):
    """Serialized tf.train.Examples, put together by hand."""

    def field(number, body):
        return bytes([8 * number + 2, len(body)]) + body

    def entry(name, kind, values):
        return field(1, field(1, name) + field(2, field(kind, values)))

    numbers = entry(b"number", 2, field(1, np.arange(4, dtype="f").tobytes()))
    ids = entry(b"ids", 3, field(1, bytes(range(7))))
    rows = [numbers + ids + entry(b"word", 1, field(1, b"word%d" % i)) for i in range(1000)]
    return [np.array([field(1, row) if len(row) < 128 else None for row in rows], object)]


case("parse_example_1k", _examples, _parse_example)
