"""Regular expressions by automata: for random patterns and texts, the answers of RE2."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._src.lowering import generated
from headrace._src.ops.strings import regex
from headrace._src.ops.strings.automata import automaton

CLASSES = [
    "[ab]", "[^a]", "[a-c]", "[]a]", "[^]a]", "[a-]", "[-a]", "[a-b-c]", r"[\d-a]", r"[\w.]",
    "[[:alpha:]]", "[^[:space:]b]", r"[\]a]", r"[\x61-\x{63}]", "[[a]", r"[^\x00-\x7f]", "[Z-a]",
]  # fmt: skip
ATOMS = [
    "a", "b", "k", "S", "A", " ", "1", "-", "{", "}", "a{", "a{,2}", "]", ".", "^", "$", r"\A",
    r"\z", r"\d", r"\D", r"\s", r"\S", r"\w", r"\W", r"\.", r"\n", r"\t", r"\x41", r"\-", r"\b",
    "é", "(?i)",
    *CLASSES,
]  # fmt: skip
QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}", "{0}", "{0,}?"]


def longer(part):
    return st.one_of(
        st.lists(part, max_size=4).map("".join),
        st.lists(part, min_size=1, max_size=3).map("|".join),
        part.map(lambda p: f"({p})"),
        st.sampled_from(["?:", "?i:", "?s:", "?is:", "?i)(", "?P<n>"]).flatmap(
            lambda f: part.map(lambda p: f"({f}{p})")
        ),
        st.tuples(part, st.sampled_from(QUANTIFIERS)).map(lambda t: f"(?:{t[0]}){t[1]}"),
        st.tuples(st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS)).map("".join),
    )


PATTERNS = st.recursive(st.sampled_from(ATOMS), longer, max_leaves=12)
TEXTS = st.lists(
    st.one_of(
        st.text("abcABC 1-{}]\n\t.", max_size=8).map(str.encode),
        st.binary(max_size=4),
        st.text("aébkS\u212a\u017f€\U0001f600\U0010ffff", max_size=6).map(str.encode),
        st.lists(
            st.sampled_from(
                [
                    b"a",
                    b"\xc3",
                    b"\xa9",
                    b"\xe2\x82\xac",
                    b"\xed\xa0\x80",
                    b"\xe0\x80\x80",
                    b"\xf4\x90\x80\x80",
                    b"\xf0\x9f\x98",
                    b"\xc0\x80",
                ]
            ),
            max_size=3,
        ).map(b"".join),
    ),
    max_size=8,
)


def array(values):
    found = np.empty(len(values), object)
    found[:] = values
    return found


@pytest.fixture(autouse=True, scope="module")
def _few_texts_are_many():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regex, "_MANY", 0)
        yield


def both(run, *arguments, **attributes):
    """The answers without and with generated code."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for worthwhile in (False, True):
            patch.setattr(generated, "worthwhile", lambda elements, answer=worthwhile: answer)
            try:
                found.append(run(*arguments, **attributes).tolist())
            except ValueError as error:
                found.append(str(error))
    return found


@settings(max_examples=400, deadline=None)
@given(PATTERNS, TEXTS)
def test_whole_matches(pattern, texts):
    expected, found = both(regex.static_regex_full_match, array(texts), pattern=pattern)
    assert found == expected


@settings(max_examples=400, deadline=None)
@given(PATTERNS, TEXTS, st.sampled_from([b"", b"-", b"<new>", rb"<\0>", rb"\q"]), st.booleans())
def test_replacements(pattern, texts, rewrite, everywhere):
    expected, found = both(
        regex.static_regex_replace,
        array(texts),
        pattern=pattern,
        rewrite=rewrite,
        replace_global=everywhere,
    )
    assert found == expected


@pytest.mark.parametrize(
    "pattern", ["[0-9]+", "a|ab", "(ab|a)(c|bcd)?", "^ *", " *$", r"\w+@\w+\.(com|org)", "(?i)word"]
)
def test_common_patterns_have_one(pattern):
    assert automaton(pattern.encode(), ordered=True) is not None


@pytest.mark.parametrize(
    "pattern",
    [r"\bword", "é", r"\pL", "(?m)^a", "(a|b*)*", "(a?b?c?){0,300}", ".{1000}", "[ab]*a[ab]{12}"],
)
def test_others_are_left_to_re2(pattern):
    assert automaton(pattern.encode(), ordered=True) is None


@pytest.mark.timeout(30)
def test_a_search_that_would_take_long_is_left_to_re2():
    texts = array([b"a" * 60000, b"a" * 200000, b"aa1", b""])
    expected, found = both(regex.static_regex_replace, texts, pattern="[a-z]+[0-9]", rewrite="-")
    assert found == expected == [texts[0], texts[1], b"-", b""]


def test_a_text_without_a_match_is_the_same_object():
    texts = array([b"word", b"other"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "worthwhile", lambda elements: True)
        for _ in range(1000):
            found = regex.static_regex_replace(texts, pattern="[0-9]+", rewrite="-")
    assert all(a is b for a, b in zip(found, texts, strict=True))


@pytest.mark.parametrize("lead", range(0x80, 0x100))
def test_every_character_of_two_and_three_bytes(lead):
    """Also those that are none."""
    texts = array([bytes([lead, second, *more, 97]) for second in range(256)
                   for more in ([], [0x80], [0xbf], [0x80, 0x80], [0x41])])  # fmt: skip
    for pattern in (".a", "[^b]+", r"\W"):
        expected, found = both(regex.static_regex_full_match, texts, pattern=pattern)
        assert found == expected
        expected, found = both(regex.static_regex_replace, texts, pattern=pattern, rewrite="-")
        assert found == expected


def test_shapes():
    texts = array([b"a1", b"b", b"", b"22"]).reshape(2, 2)
    for value in (texts, texts.T, texts[:0], texts[0, 0:1].reshape(())):
        expected, found = both(regex.static_regex_replace, value, pattern="[0-9]", rewrite="<>")
        assert found == expected
        expected, found = both(regex.static_regex_full_match, value, pattern="[0-9]*")
        assert found == expected
