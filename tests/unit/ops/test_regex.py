"""Regular expressions in a session: RE2's grammar, its messages and its time. What matches what is
in the recorded cases of test_string_kernels.py and of tests/oracle/cases_strings.py.
"""

import subprocess
import sys

import numpy as np
import pytest

import headrace as tf


def run(fetch):
    with tf.Session(graph=fetch.graph) as session:
        return session.run(fetch)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("pattern", ["(a*)*b", "(a+)+b", "(a|aa)+b", "(.*)(.*)(.*)(.*)x"])
def test_time_grows_linearly_with_the_text(pattern):
    text = "a" * 50000
    assert not run(tf.strings.regex_full_match(text, pattern))
    assert run(tf.strings.regex_replace(text, pattern, "-")) == text.encode()


INVALID = {
    "(": "missing ): (",
    "a)": "missing ): a)",
    "[": "missing ]: [",
    "[b-a]": "invalid character class range: b-a",
    "[[:foo:]]": "invalid character class range: [:foo:]",
    r"\p{Foo}": r"invalid character class range: \p{Foo}",
    "*": "no argument for repetition operator: *",
    "a**": "bad repetition operator: **",
    "a{2}{3}": "bad repetition operator: {2}{3}",
    "a{1001}": "invalid repetition size: {1001}",
    "(a{1000}){1000}": "invalid repetition size: {1000}",
    r"\pL{1000}": "pattern too large - compile failed",
    r"(a)\1": r"invalid escape sequence: \1",
    r"\Z": r"invalid escape sequence: \Z",
    "\\": "trailing \\",
    "(?=a)": "invalid perl operator: (?=",
    "(?z)a": "invalid perl operator: (?z",
    "(?<n>a)": "invalid perl operator: (?<",
    "[a](?<n>a)": "invalid perl operator: (?<",
    "(?P<n": "invalid named capture group: (?P<n",
    "(?P<\u00e9>a)": "invalid named capture group: (?P<\u00e9>",
    b"\xff": "invalid UTF-8",
}


@pytest.mark.parametrize("pattern", INVALID)
@pytest.mark.parametrize("tensor", [False, True])
def test_an_invalid_pattern_is_refused_with_the_words_of_re2(pattern, tensor):
    shown = pattern if isinstance(pattern, str) else r"\xff"
    given = tf.constant(pattern) if tensor else pattern
    for op in (tf.strings.regex_full_match("a", given), tf.regex_replace("a", given, "b")):
        with pytest.raises(tf.errors.InvalidArgumentError) as found:
            run(op)
        assert f"Invalid pattern: {shown}, error: {INVALID[pattern]}" in found.value.message


@pytest.mark.parametrize("pattern", [r"\(?<a", "[(?<a]", r"\Q(?<\E|a", "[]([:alpha:](?<]|a"])
def test_an_angle_bracket_need_not_open_a_named_group(pattern):
    assert run(tf.strings.regex_replace("a<", pattern, "-")) != b""


def test_pattern_and_rewrite_are_scalars():
    place = tf.placeholder(tf.string)
    for fetch, what in (
        (tf.strings.regex_full_match("a", place), "Pattern"),
        (tf.strings.regex_replace("a", place, tf.constant("b")), "Pattern"),
        (tf.strings.regex_replace("a", tf.constant("a"), place), "Rewrite"),
    ):
        with (
            tf.Session() as session,
            pytest.raises(
                tf.errors.InvalidArgumentError, match=f"{what} must be scalar, but received"
            ),
        ):
            session.run(fetch, {place: ["a", "b"]})


def test_plain_text_is_replaced_as_a_pattern_is():
    texts = ["aaa", "", "banana", "\u00e9a"]
    for pattern in ("a", "an", "na ", "aa"):
        for once in (True, False):
            plain = tf.regex_replace(texts, pattern, "<->", replace_global=once)
            general = tf.regex_replace(texts, f"(?:{pattern})", "<->", replace_global=once)
            np.testing.assert_array_equal(run(plain), run(general))


def test_re2_is_imported_with_the_first_pattern():
    code = (
        "import sys, headrace as tf\n"
        "x = tf.strings.lower(['A'])\n"
        "y = tf.strings.regex_full_match(x, '[a-z]')\n"
        "with tf.Session() as session:\n"
        "    session.run(x)\n"
        "    print('re2' in sys.modules)\n"
        "    session.run(y)\n"
        "    print('re2' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert ran.stdout.split() == ["False", "True"], ran.stderr


def test_without_re2_a_pattern_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    fetch = tf.strings.regex_full_match("never compiled before", "never compiled before.")
    with pytest.raises(tf.errors.UnimplementedError, match="pip install google-re2"):
        run(fetch)


@pytest.mark.parametrize(
    "pattern",
    [
        "[0-9]+",
        "[^a]",
        "(a)(b)?",
        "a|ab",
        "a*",
        "(|a)",
        ".",
        "^a",
        "b$",
        r"\b",
        r"\C",
        "a.",
        "[ab]+?",
    ],
)
@pytest.mark.parametrize("rewrite", ["-", r"<\0>", r"\1", "", r"x\q"])
def test_a_text_is_replaced_as_if_it_were_alone(pattern, rewrite):
    """Nothing reaches over the end of a text, be it a match or part of a character."""
    texts = [b"", b"ab", b"aab a1", b"\xc3", b"\xa9a", b"a\xf0\x9f", b"\x98\x80", b"a\n", b"", b"b"]
    for more in ([], [b"\xff"]):
        together = run(tf.regex_replace([*texts, *more], pattern, rewrite))
        alone = [run(tf.regex_replace(text, pattern, rewrite)) for text in [*texts, *more]]
        assert together.tolist() == alone
