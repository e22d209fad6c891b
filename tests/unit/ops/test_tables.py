"""Lookup tables: mistakes, files, vocabularies. Numbers are TensorFlow 1.15.5's."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import dtypes
from headrace._src.devices.tables import MutableTable
from headrace._src.ops.state.table_classes import HashTable, MutableHashTable
from headrace._src.ops.state.vocabularies import (
    HasherSpec,
    IdTableWithHashBuckets,
    StrongHashSpec,
    index_table_from_file,
    index_table_from_tensor,
    index_to_string_table_from_file,
    index_to_string_table_from_tensor,
)

WORDS = "emerson\nlake\npalmer\n"


def run(fetches):
    with tf.Session() as session:
        session.run(tf.tables_initializer())
        return session.run(fetches)


def table(keys, values, default=-1, **types):
    return HashTable(tf.lookup.KeyValueTensorInitializer(keys, values, **types), default)


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "words.txt"
        path.write_text(text)
        return str(path)

    return make


@pytest.fixture(autouse=True)
def own_graph():
    with tf.Graph().as_default():
        yield


# -- State -----------------------------------------------------------------------------------------


def test_many_numbers_are_found_as_few_are():
    state = MutableTable(dtypes.int64, dtypes.float32)
    keys = np.random.default_rng(3).permutation(1000)
    state.insert(keys, keys * 0.5)
    state.remove(keys[:100])
    state.insert(np.array([keys[0], 5000]), np.array([7.0, 8.0]))
    wanted = np.arange(-5, 5005)
    many = state.find(wanted, np.float32(-1))
    few = [float(state.find(np.array([k]), np.float32(-1))[0]) for k in wanted]
    assert many.tolist() == few
    assert state.size == 902
    exported = dict(zip(*map(np.ndarray.tolist, state.export()), strict=True))
    assert exported == {k: v for k, v in zip(wanted.tolist(), few, strict=True) if v != -1}


def test_a_failed_initialization_leaves_the_table_empty():
    ambiguous = table(["a", "a"], [1, 2])
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="Key a has 1 and trying"):
            session.run(ambiguous.init)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Table not initialized"):
            session.run(ambiguous.size())


def test_equal_values_of_one_key_are_no_mistake():
    assert run(table(["a", "a"], [1, 1]).size()) == 1


def test_a_table_is_filled_once():
    words = table(["a", "b"], [1, 2])
    with tf.Session() as session:
        session.run(words.init)
        session.run(words.init)
        assert session.run(words.lookup(tf.constant(["b"]))).tolist() == [2]


def test_a_change_is_seen_by_the_next_step():
    words = MutableHashTable("string", "int64", -1)
    key, value = tf.placeholder("string", [1]), tf.placeholder("int64", [1])
    put, found = words.insert(key, value), words.lookup(tf.constant(["a", "b"]))
    with tf.Session() as session:
        for k, v in ((b"a", 1), (b"b", 2), (b"a", 3)):
            session.run(put, {key: [k], value: [v]})
        assert session.run(found).tolist() == [3, 2]
        session.run(words.remove(["a"]))
        assert session.run(found).tolist() == [-1, 2]
        assert [v.tolist() for v in session.run(words.export())] == [[b"b"], [2]]


def test_a_saver_can_put_a_table_back():
    words = MutableHashTable("string", "int64", -1, name="words")
    (saveable,) = tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
    assert [(s.name, s.dtype.name) for s in saveable.specs] == [
        ("words-keys", "string"),
        ("words-values", "int64"),
    ]
    restore = saveable.restore([tf.constant(["x"]), numbers(5)])
    with tf.Session() as session:
        session.run(words.insert(["old"], [1]))
        session.run(restore)
        assert session.run([s.tensor for s in saveable.specs])[0].tolist() == [b"x"]
    assert not MutableHashTable("string", "int64", -1, checkpoint=False).name.startswith("words")
    assert len(tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)) == 1


# -- Mistakes --------------------------------------------------------------------------------------


def dense(**options):
    keys = {"empty_key": 0, "deleted_key": -1, **options}
    return tf.lookup.experimental.DenseHashTable("int64", "int64", -1, **keys)


def numbers(*values):
    return tf.constant(values, tf.int64)


STEPS = {
    "empty_key as a table key": lambda: dense().insert(numbers(0), numbers(0)),
    "deleted_key as a table key": lambda: dense().lookup(numbers(-1)),
    "Empty and deleted keys cannot be equal": lambda: dense(deleted_key=0).size(),
    "at least 4 and a power of 2": lambda: dense(initial_num_buckets=3).size(),
    "Insert not supported": lambda: tf.raw_ops.LookupTableInsertV2(
        table_handle=table(["a"], [1]).resource_handle, keys=["c"], values=[3]
    ),
    "Signature mismatch, have: string -> float32": lambda: tf.raw_ops.LookupTableFindV2(
        table_handle=table(["a"], [1]).resource_handle, keys=["c"], default_value=3.0
    ),
}


@pytest.mark.parametrize("message", STEPS)
def test_mistakes_of_a_step(message):
    with pytest.raises(tf.errors.OpError, match=message):
        run(STEPS[message]())


GRAPHS = {
    "Keys must be dtype": lambda: table(["a"], [1]).lookup(tf.constant([1])),
    "not compatible": lambda: table(["a"], [1], [1, 2]),
    "vocabulary_list must be": lambda: index_table_from_tensor(None),
    "vocabulary_file must be": lambda: index_table_from_file(""),
    "vocab_size must be greater": lambda: index_table_from_file("f", vocab_size=0),
    "num_oov_buckets must be": lambda: index_table_from_tensor(["a"], num_oov_buckets=-1),
    "Only integer and string": lambda: index_table_from_tensor(["a"], dtype="float32"),
    "Expected integer, got": lambda: index_table_from_tensor(["a"], dtype="int64"),
    "oov_buckets must be > 0": lambda: IdTableWithHashBuckets(None, 0),
    "hasher_spec must be of type": lambda: IdTableWithHashBuckets(None, 1, hasher_spec=3),
    "Unknown hasher zz": lambda: IdTableWithHashBuckets(None, 1, HasherSpec("zz", None)).lookup(
        tf.constant(["a"])
    ),
    "key must have size 2": lambda: StrongHashSpec([1]),
    "Must be unsigned": lambda: StrongHashSpec([1, -2]),
    "Invalid key index -3": lambda: tf.lookup.TextFileInitializer("f", "string", -3, "int64", -1),
    "Invalid vocab_size 0": lambda: tf.lookup.TextFileInitializer(
        "f", "string", -2, "int64", -1, vocab_size=0
    ),
    "Filename required": lambda: tf.lookup.TextFileInitializer("", "string", -2, "int64", -1),
}


@pytest.mark.parametrize("message", GRAPHS)
def test_mistakes_of_the_graph(message):
    with pytest.raises((ValueError, TypeError), match=message):
        GRAPHS[message]()


# -- Files and vocabularies ------------------------------------------------------------------------


def columns(path, **options):
    initializer = tf.lookup.TextFileInitializer(path, "string", 0, "int64", 1, **options)
    return HashTable(initializer, -1).lookup(tf.constant(["a", "c", "d"]))


def test_columns_of_a_file(write):
    assert run(columns(write("a\t1\nb\t2\nc\t3\n"))).tolist() == [1, 3, -1]
    with tf.Graph().as_default():
        assert run(columns(write("a,1\r\nc,4"), delimiter=",")).tolist() == [1, 4, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t1\nb\tx\n", "Field x in line 1 is not a valid int64"),
        ("a\t1\nb\n", r"Invalid number of columns in .* line 1 \(b\)"),
        ("a\t1\n\nb\t2\n", "empty line found at position 5"),
        ("a\t1_0\n", "Field 1_0 in line 0 is not a valid int64"),
        ("a\t+1\n", r"Field \+1 in line 0 is not a valid int64"),
        ("a\t99999999999999999999\n", "Field 99999999999999999999 in line 0 is not a valid int64"),
    ],
)
def test_mistakes_in_a_file(write, text, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(columns(write(text)))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="No such file"):
        run(columns(str(tmp_path / "none")))


def test_words_of_a_file(write):
    path = write(WORDS)
    words = tf.constant(["lake", "z", "y", "x"])
    assert run(index_table_from_file(path).lookup(words)).tolist() == [1, -1, -1, -1]
    assert run(index_table_from_file(path, 2).lookup(words)).tolist() == [1, 4, 4, 3]
    few = index_table_from_file(path, vocab_size=2)
    assert run(few.lookup(tf.constant(["lake", "palmer"]))).tolist() == [1, -1]
    back = index_to_string_table_from_file(path)
    assert run(back.lookup(numbers(1, 5))).tolist() == [b"lake", b"UNK"]
    assert len(tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)) == 4


def test_a_file_with_too_few_words(write):
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected 5 but got 3"):
        run(index_table_from_file(write(WORDS), vocab_size=5).size())


def test_words_of_a_tensor():
    strong = index_table_from_tensor(["x", "y"], 5, hasher_spec=StrongHashSpec([1, 2]))
    assert run(strong.lookup(tf.constant(["y", "q", "r"]))).tolist() == [1, 5, 4]
    integers = index_table_from_tensor([10, 20], num_oov_buckets=1, dtype="int32")
    assert run(integers.lookup(tf.constant([20, 5]))).tolist() == [1, 2]
    back = index_to_string_table_from_tensor(["x", "y"], default_value="U")
    assert run(back.lookup(numbers(1, 5))).tolist() == [b"y", b"U"]


# -- Integers --------------------------------------------------------------------------------------

NUMBERS = "42\n1\n-1000\n"


@pytest.mark.parametrize(("buckets", "expected"), [(0, [1, 0, -1]), (1, [1, 0, 3])])
def test_whole_lines_may_be_integers(write, buckets, expected):
    made = index_table_from_file(write(NUMBERS), buckets, key_dtype=tf.int64)
    assert run(made.lookup(numbers(1, 42, 7))).tolist() == expected


def test_a_vocabulary_of_integers_takes_int32(write):
    lines = tf.lookup.TextFileInitializer(write(NUMBERS), tf.int64, -2, tf.int64, -1)
    made = tf.lookup.StaticVocabularyTable(lines, 2, lookup_key_dtype=tf.int32)
    assert run(made.lookup(tf.constant([1, 42, 7]))).tolist() == [1, 0, 3]


def test_a_line_that_is_no_integer(write):
    made = index_table_from_file(write("42\nx\n"), key_dtype=tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Field x in line 1 is not a valid"):
        run(made.size())


def test_lines_as_values_are_strings():
    with pytest.raises(ValueError, match=r"Values must be dtype <dtype: 'string'>, got <dtype:"):
        tf.lookup.TextFileInitializer("f", tf.int64, -1, tf.int64, -2)


# -- Vocabularies that can't be --------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [0, 1])
@pytest.mark.parametrize("words", [np.array([], dtype=np.str_), np.array([], dtype=np.int64)])
def test_a_vocabulary_has_words(words, buckets):
    dtype = tf.string if words.dtype.kind == "U" else tf.int64
    made = index_table_from_tensor(words, buckets, dtype=dtype)
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be empty tensors"):
        run(made.size())


def test_a_vocabulary_file_has_lines(write):
    with pytest.raises(tf.errors.OutOfRangeError, match="Read less bytes than requested"):
        run(index_table_from_file(write("")).size())


@pytest.mark.parametrize(
    ("key", "value"), [("int32", "int64"), ("float32", "int64"), ("int64", "bool")]
)
def test_types_that_tables_do_not_have(key, value):
    made = table(tf.cast([1, 0], key), tf.cast([0, 1], value), tf.cast(1, value))
    with pytest.raises(tf.errors.InvalidArgumentError, match="No OpKernel was registered to sup"):
        run(made.size())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
def test_keys_that_are_not_hashed(dtype):
    with pytest.raises(TypeError, match=f"expected integer or string, got <dtype: '{dtype}'>"):
        IdTableWithHashBuckets(None, 5, key_dtype=dtype)


def test_tables_of_one_path_share_their_content(write):
    path = write(WORDS)
    with tf.Session() as session:
        seen = []
        for file in (path, tf.constant(path), path, tf.constant(path)):
            word = index_to_string_table_from_file(file).lookup(numbers(0))
            try:
                seen.append(session.run(word).tolist())
            except tf.errors.FailedPreconditionError:
                seen.append("empty")
            session.run(tf.tables_initializer())
            assert session.run(word).tolist() == [b"emerson"]
    assert seen == ["empty", "empty", [b"emerson"], "empty"]
