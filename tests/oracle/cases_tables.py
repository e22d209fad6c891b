"""Lookup tables: static, mutable, dense, with buckets for unknown words."""

from tests.oracle.case import case


def filled(tf, keys, values, default, **types):
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values, **types)
    return tf.lookup.StaticHashTable(initializer, default)


def after_initializers(tf):
    return tf.control_dependencies([tf.tables_initializer()])


@case(graph=False)
def strings_to_numbers(tf):
    table = filled(tf, ["a", "b"], [1, 2], -1)
    with after_initializers(tf):
        return table.lookup(tf.constant([["b", "z"], ["a", "b"]])), table.size()


@case(graph=False)
def numbers_to_strings(tf):
    table = filled(tf, [7, 9], ["x", "y"], "?", key_dtype=tf.int64, value_dtype=tf.string)
    with after_initializers(tf):
        keys = tf.range(tf.constant(20, tf.int64))
        return table.lookup(keys), table.lookup(tf.constant(9, tf.int64))


@case(graph=False)
def sparse_keys(tf):
    table = filled(tf, ["a", "b"], [1, 2], -1)
    with after_initializers(tf):
        return table.lookup(tf.SparseTensor([[0, 0], [1, 1]], ["b", "q"], [2, 2]))


@case(graph=False)
def words_of_a_vocabulary(tf):
    initializer = tf.lookup.KeyValueTensorInitializer(
        ["x", "y"], [0, 1], key_dtype=tf.string, value_dtype=tf.int64
    )
    table = tf.lookup.StaticVocabularyTable(initializer, 5)
    with after_initializers(tf):
        return table.lookup(tf.constant(["y", "p", "q", "r", "s"])), table.size()


@case(graph=False)
def numbers_of_a_vocabulary(tf):
    initializer = tf.lookup.KeyValueTensorInitializer(
        [5, 6], [0, 1], key_dtype=tf.int64, value_dtype=tf.int64
    )
    table = tf.lookup.StaticVocabularyTable(initializer, 7)
    with after_initializers(tf):
        return table.lookup(tf.constant([6, 9, 10, 11], tf.int64))


@case(graph=False)
def buckets_only(tf):
    return tf.lookup.StaticVocabularyTable(None, 9).lookup(tf.constant(["a", "b", "c"]))


@case
def dense(tf):
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.float32, [0.0, -1.0], empty_key=0, deleted_key=-1, name="words"
    )
    put = table.insert(tf.constant([5, 6], tf.int64), [[1.0, 2.0], [3.0, 4.0]])
    with tf.control_dependencies([put]):
        found, size = table.lookup(tf.constant([6, 7], tf.int64)), table.size()
    with tf.control_dependencies([found, size]):
        erased = table.erase(tf.constant([6], tf.int64))
    with tf.control_dependencies([erased]):
        return found, size, table.lookup(tf.constant([5, 6], tf.int64)), table.size()


@case
def keys_of_two_numbers(tf):
    table = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.int64, -1, empty_key=[0, 0], deleted_key=[-1, -1], checkpoint=False
    )
    put = table.insert(tf.constant([[5, 6], [7, 8]], tf.int64), tf.constant([1, 2], tf.int64))
    with tf.control_dependencies([put]):
        return table.lookup(tf.constant([[7, 8], [8, 7], [0, 1]], tf.int64))


@case
def of_raw_ops(tf):
    handle = tf.raw_ops.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
    put = tf.raw_ops.LookupTableInsertV2(
        table_handle=handle, keys=["a", "b", "a"], values=tf.constant([1, 2, 3], tf.int64)
    )
    with tf.control_dependencies([put]):
        return tf.raw_ops.LookupTableFindV2(
            table_handle=handle, keys=["a", "b", "c"], default_value=tf.constant(-1, tf.int64)
        )


@case(graph=False)
def of_older_graphs(tf):
    handle = tf.raw_ops.HashTable(key_dtype=tf.string, value_dtype=tf.int64, shared_name="old")
    values = tf.constant([1, 2], tf.int64)
    put = tf.raw_ops.InitializeTable(table_handle=handle, keys=["a", "b"], values=values)
    with tf.control_dependencies([put]):
        return tf.raw_ops.LookupTableFind(
            table_handle=handle, keys=["b", "c"], default_value=tf.constant(-1, tf.int64)
        ), tf.raw_ops.LookupTableSize(table_handle=handle)


@case(graph=False)
def by_the_names_of_contrib(tf):
    lookup = tf.contrib.lookup
    words = lookup.index_table_from_tensor(mapping=tf.constant(["x", "y"]), num_oov_buckets=4)
    names = lookup.index_to_string_table_from_tensor(tf.constant(["x", "y"]), default_value="?")
    initializer = lookup.KeyValueTensorInitializer(["x"], [1.5])
    table = lookup.HashTable(initializer, -1.0, shared_name="shared", name="kept")
    twin = lookup.HashTable(initializer, -1.0, "shared")
    changing = lookup.MutableHashTable(tf.string, tf.int64, -1, checkpoint=False)
    put = changing.insert(tf.constant(["x"]), tf.constant([7], tf.int64))
    keys = tf.constant(["y", "p", "x"])
    with after_initializers(tf), tf.control_dependencies([put]):
        numbers = tf.constant([1, 9], tf.int64)
        found = [words.lookup(keys), names.lookup(numbers), changing.lookup(keys)]
        spoken = lookup.string_to_index(keys, tf.constant(["p", "y"]))
        return found, table.lookup(keys), twin.lookup(keys), spoken.op.type
