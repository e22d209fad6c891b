"""The functions of tf.strings with ragged arguments or results."""

from tests.oracle.case import case


def _words(tf):
    return tf.ragged.constant([["a", "b", "c"], ["d"]])


@case
def code_points(tf):
    return [
        tf.strings.unicode_decode(["ab", "\u00e9"], "UTF-8"),
        tf.strings.unicode_decode(tf.ragged.constant([["ab"], ["c", "d"]]), "UTF-8"),
        tf.strings.unicode_decode([b"a\xff"], "UTF-8", errors="ignore"),
        tf.strings.unicode_decode([b"a\xff\x01"], "UTF-8", "replace", 63, True),
        tf.strings.unicode_decode_with_offsets(["a\u00e9b", "c"], "UTF-8"),
    ]


@case(graph=False)
def characters(tf):
    return [
        tf.strings.unicode_decode("ab", "UTF-8"),
        tf.strings.unicode_decode([["ab"], ["c"]], "UTF-8"),
        tf.strings.unicode_decode_with_offsets("a\u00e9b", "UTF-8"),
        tf.strings.unicode_split(["a\u00e9b", "c"], "UTF-8"),
        tf.strings.unicode_split("a\u00e9b", "UTF-8"),
        tf.strings.unicode_split([["a\u00e9b", "c"]], "UTF-8"),
        tf.strings.unicode_split([b"a\xff"], "UTF-8", errors="replace", replacement_char=63),
        tf.strings.unicode_split(["a\u00e9".encode("utf-16-be")], "UTF-16-BE"),
        tf.strings.unicode_split_with_offsets(["a\u00e9b", "c"], "UTF-8"),
        tf.strings.unicode_split_with_offsets("a\u00e9b", "UTF-8"),
        tf.strings.unicode_encode(tf.ragged.constant([[97], [98, 99]]), "UTF-8"),
        tf.strings.unicode_encode(tf.ragged.constant([[[97], [98, 99]], [[100]]]), "UTF-8"),
        tf.strings.unicode_encode([97, 98], "UTF-16-BE"),
        tf.strings.unicode_encode([[97, 98], [99, 100]], "UTF-8"),
        tf.strings.unicode_encode([[[97, 98]], [[99, 100]]], "UTF-8"),
        tf.strings.unicode_encode(tf.ragged.constant([[97], [1114112]]), "UTF-8", "ignore"),
    ]


@case(graph=False)
def pieces(tf):
    texts = ["a b", "", "c"]
    split = tf.strings.split
    return [
        tf.strings.bytes_split(["ab", "", "\u00e9"]),
        tf.strings.bytes_split("ab"),
        tf.strings.bytes_split([["ab"], ["c"]]),
        tf.strings.bytes_split(tf.ragged.constant([["ab"], ["c", "de"]])),
        split(texts, result_type="RaggedTensor"),
        split("a b", result_type="RaggedTensor"),
        split([["a b"], ["c"]], result_type="RaggedTensor"),
        split(tf.ragged.constant([["a b"], ["c", "d e f"]]), result_type="RaggedTensor"),
        split(tf.ragged.constant([["a b"], ["c", "d e f"]])),
        split(["a,b,c", "c"], ",", 1, result_type="RaggedTensor"),
        split(tf.placeholder_with_default(["a b"], None)),
        tf.string_split(texts, result_type="RaggedTensor"),
        tf.string_split(["a,b;c", ""], ",;", skip_empty=False, result_type="RaggedTensor"),
    ]


@case(graph=False)
def n_grams(tf):
    words = _words(tf)
    ngrams = tf.strings.ngrams
    return [
        ngrams(["a", "b", "c"], 2),
        ngrams([["a", "b", "c"], ["d", "e", "f"]], 2),
        ngrams(words, 2),
        ngrams(words, (1, 2)),
        ngrams(words, [3], pad_values="<"),
        ngrams(words, 3, pad_values=("<", ">")),
        ngrams(words, 3, pad_values=("<", ">"), padding_width=1),
        ngrams(words, 2, preserve_short_sequences=True),
        ngrams(words, 2, separator="-", name="n"),
        ngrams(tf.ragged.constant([[["a", "b"], ["c"]], [["d", "e", "f"]]]), 2),
        ngrams([[["a", "b"]], [["c", "d"]]], 2),
        ngrams(["a", "b"], [2, 3], pad_values="*", padding_width=5),
    ]
