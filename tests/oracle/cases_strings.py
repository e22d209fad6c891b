"""String ops: the public functions of tf.strings, tf.io and their older top-level names."""

from tests.oracle.case import case

TEXTS = ["a b", "", "Caf\u00e9 au  lait", " x\ty "]


@case
def joins(tf):
    words = tf.constant([["a", "b"], ["c", "d"]])
    return [
        tf.string_join(["pre", words]),
        tf.strings.join([words, words], separator="/", name="pairs"),
        tf.reduce_join(words, 0),
        tf.reduce_join(words, axis=-1, separator=", "),
        tf.reduce_join(words, [0, 1], keep_dims=True),
        tf.strings.reduce_join(words),
        tf.strings.reduce_join(words, reduction_indices=[1], keepdims=True, name="kept"),
        tf.strings.unsorted_segment_join(words, [2, 0], 3, separator="+"),
    ]


@case
def joins_of_unknown_rank(tf):
    return tf.reduce_join(tf.placeholder_with_default([["a", "b"], ["c", "d"]], None))


@case
def splits(tf):
    return [
        tf.string_split(TEXTS),
        tf.string_split(["a,b;c", ",", "d"], ",;", skip_empty=False),
        tf.string_split(["ab", "c"], delimiter="", name="bytes"),
        tf.strings.split(TEXTS),
        tf.strings.split(["a<>b<>c", "<>", "d"], sep="<>", maxsplit=1, name="once"),
        tf.strings.split(source=TEXTS, maxsplit=1),
    ]


@case
def measures(tf):
    return [
        tf.strings.length(TEXTS),
        tf.strings.length(TEXTS, unit="UTF8_CHAR"),
        tf.substr(["hello", "world"], 1, 3),
        tf.strings.substr([["hello"], ["world"]], [-2, 0], [1, 9]),
        tf.strings.substr(["\u00e9t\u00e9"], tf.constant([-2], tf.int64), [2], unit="UTF8_CHAR"),
    ]


@case
def changes(tf):
    return [
        tf.strings.lower(TEXTS),
        tf.strings.upper(TEXTS, encoding="utf-8"),
        tf.string_strip(TEXTS),
        tf.string_strip(" a ", name="one"),
    ]


@case
def regular_expressions(tf):
    return [
        tf.strings.regex_full_match(TEXTS, "[a-z ]*"),
        tf.strings.regex_full_match(TEXTS, tf.constant(r"\s*x\s.*")),
        tf.regex_replace(TEXTS, "([a-z])", r"<\1>"),
        tf.strings.regex_replace(TEXTS, tf.constant("a"), "-", replace_global=False),
        tf.strings.regex_replace(TEXTS, "a", tf.constant("-"), name="mixed"),
    ]


@case
def regular_expressions_that_match_nothing(tf):
    """Empty matches: between characters, not between bytes, and not at the end of another match."""
    texts = ["", "baac", "\u00e9t\u00e9", b"\xff\xfea", b"\xed\xa0\x80", "a\nb\n", "ab cd"]
    patterns = ["", "a*", "a*?", "(|a)+", "(a*)+", "^", "(?m)^", "$", "(?m)$", r"\b", r"\B", r"\z"]
    replaced = [tf.regex_replace(texts, pattern, "<>") for pattern in patterns]
    return replaced + [tf.regex_replace(texts, p, "<>", replace_global=False) for p in patterns]


@case
def regular_expressions_and_bytes(tf):
    """Characters are those of UTF-8: nothing but \\C matches a byte that is none."""
    texts = [b"\xc3\xa9", b"a\xffb\n", b"\xc3", b"a\x00b", "\u212a k \u00c9"]
    patterns = [
        ".",
        "(?s).",
        "[^a]",
        r"\C",
        r"\pL",
        r"\w",
        "(?i)k",
        "(?i)\u00e9",
        "a\x00",
        r"\x{e9}",
    ]
    return [tf.regex_replace(texts, pattern, r"<\0>") for pattern in patterns] + [
        tf.strings.regex_full_match(texts, pattern + "+") for pattern in patterns
    ]


@case
def rewrites(tf):
    texts = ["ab", "aab", "xyz", ""]
    groups = ["", r"\0\0", r"[\1|\2]", r"\2\1", "\\\\", "$1 &"]
    named = tf.regex_replace(texts, "(?P<first>a)(?P<second>b)?", r"\2-\1", name="named")
    many = tf.regex_replace("abcdefghij", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", r"\9\10", name="many")
    return [tf.regex_replace(texts, "(a)(b)?", rewrite) for rewrite in groups] + [named, many]


@case
def preferences(tf):
    """The leftmost match, and of these the one that comes first in the pattern."""
    texts = ["ab", "abcd", "aaa", "xaaby"]
    patterns = ["a|ab", "ab|a", "(a|ab)(c|bcd)", "a+?", "(?U)a+", "(?U)a+?", "a??b", "(a+)(a*)"]
    return [tf.regex_replace(texts, pattern, r"<\0>") for pattern in patterns] + [
        tf.strings.regex_full_match(texts, pattern) for pattern in patterns
    ]


@case
def numbers_as_text(tf):
    return [
        tf.as_string([1.5, -2.25]),
        tf.strings.as_string([1.5, -2.25], precision=3, width=9, fill="0"),
        tf.as_string([True, False]),
        tf.as_string(tf.constant([1 + 2j]), scientific=True),
        tf.as_string([12, -7], width=5, fill="-"),
        tf.string_to_number(["1.5", " -3e2 "]),
        tf.strings.to_number(input=["7", "-12"], out_type=tf.int64),
        tf.strings.format("x = {}, y = {}", [tf.range(9), [1.5]], summarize=2),
        tf.strings.format("only %s", tf.constant("it"), placeholder="%s"),
    ]


@case
def records(tf):
    return [
        tf.decode_csv(["1.5,a,3", ',"b,""c""",'], [[2.0], [""], [7]]),
        tf.io.decode_csv(
            "4|NA", [tf.constant([9], tf.int64)], field_delim="|", na_value="NA", select_cols=[1]
        ),
        tf.decode_raw(["\1\2\3\4", "\5\6\7\0"], tf.int16),
        tf.io.decode_raw(["\1\2\3\4"], tf.uint16, little_endian=False),
        tf.decode_compressed(["plain"]),
        tf.io.decode_compressed([b"x\x9cKL\x04\x00\x01%\x00\xc3"], "ZLIB"),
        tf.encode_base64(["a", "ab", "\u00ff\u00fe"]),
        tf.io.encode_base64(["a"], pad=True),
        tf.decode_base64(["YQ", "YWI="]),
    ]


@case
def hashes(tf):
    return [
        tf.string_to_hash_bucket(TEXTS, 1000),
        tf.strings.to_hash_bucket(input=TEXTS, num_buckets=7),
        tf.string_to_hash_bucket_fast(TEXTS, 1000),
        tf.strings.to_hash_bucket_strong(TEXTS, 1000, key=[1, 2]),
        tf.fingerprint([["a", "b"], ["c", "d"]]),
        tf.fingerprint(tf.constant([[1.0, 2.0], [3.0, 4.0]])),
    ]


@case
def encodings(tf):
    return [
        tf.strings.unicode_transcode(["h\u00e9", ""], "UTF-8", "UTF-16-BE"),
        tf.strings.unicode_script([65, 0x4E2D, -1]),
    ]


@case(graph=False)
def code_points(tf):
    return [
        tf.strings.unicode_encode([[104, 233], [0x4E2D, 105]], "UTF-8"),
        tf.strings.unicode_encode([104, 233], "UTF-16-BE"),
        tf.strings.unicode_encode([[[104, 233], [1, 2]]], "UTF-8", errors="ignore"),
    ]
