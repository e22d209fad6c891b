"""What notebooks show: facts about tensors, variables, graphs and sessions, as well-formed HTML."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import headrace as tf
from headrace._src.core.html import card, fold, table


class Checker(HTMLParser):
    """Collects the text, and notes tags that aren't closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text(shown):
    checker = Checker()
    checker.feed(shown._repr_html_() if hasattr(shown, "_repr_html_") else shown)
    checker.close()
    assert not checker.open
    return "|".join(checker.text)


def test_text_is_escaped():
    shown = card("<kind>", "<i>", [("a&b", "<script>")], [fold("<s>", table(("<h>",), [("<c>",)]))])
    assert not re.search("<(kind|i|script|s|h|c)>", shown)
    assert text(shown) == "<kind>| |<i>|a&b|<script>|<s>|<h>|<c>"


def test_a_tensor():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        y = tf.nn.relu(x, name="y")
        for i in range(20):
            tf.identity(y, name=f"reader{i}")
    shown = text(y)
    assert "Tensor| |y:0|dtype|float32|shape|(?, 3)|operation|Relu(x:0)|used by|reader0" in shown
    assert "reader11 and 8 more|made at|" in shown and "tf.nn.relu(x" in shown


def test_a_variable_shows_its_value_in_the_default_session():
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable([[1.0, 2.5]], name="v", trainable=False)
        large = tf.Variable(tf.zeros([2000]), name="large")
        assert "|value|Attempting to use uninitialized value v|" in text(v)
        session.run(v.initializer)
        assert "|parameters|2 (8 bytes)|trainable|False|value|[[1.  2.5]]|" in text(v)
        assert "value" not in text(large)  # not even tried
    assert "value" not in text(v)


def test_a_graph_lists_what_it_holds_by_scope():
    with tf.Graph().as_default() as graph:
        tf.placeholder(tf.float32, [None, 4], name="images")
        with tf.name_scope("outer"), tf.name_scope("inner"):
            tf.constant(1, name="one")
        tf.get_variable("w", [4, 2])
    shown = text(graph)
    assert "|placeholders (1)|name|dtype|shape|images|float32|(?, 4)|" in shown
    assert "|parameters|8 in 1 variables|trainable|8 in 1 variables|" in shown
    assert "|outer/ (1)|inner/ (1)|one|Const|int32 ()" in shown
    assert text(tf.Graph()) == "Graph| |0 operations"


def test_a_large_graph_is_listed_in_part():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [])
        for _ in range(1500):
            x = tf.negative(x)
        shown = graph._repr_html_()
    assert "and 1,001 more" in text(shown) and len(shown) < 500_000


@pytest.mark.parametrize("kind", [tf.Session, tf.InteractiveSession])
def test_a_session(kind):
    with tf.Graph().as_default():
        tf.Variable(np.zeros(4, np.float32), name="v")
        session = kind()
        try:
            assert f"{kind.__name__}| |open|graph|" in text(session)
            session.run(tf.global_variables_initializer())
            shown = text(session)
            assert "|steps|1 prepared|variables|1 have values, 16 bytes|" in shown
            assert shown.endswith("|v|float32|(4,)")
        finally:
            session.close()
        assert f"{kind.__name__}| |closed|closed at|" in text(session)
