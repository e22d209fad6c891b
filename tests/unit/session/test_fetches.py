"""Fetch structures: results have the structure of the fetches."""

import collections

import numpy as np
import pytest

import headrace as tf

Pair = collections.namedtuple("Pair", ["a", "b"])


class Named(Pair):
    """A subclass of a named tuple."""


class Record:
    """What the attrs package makes of a class, as far as sessions look at it."""

    class _Attribute:
        def __init__(self, name):
            self.name = name

    __attrs_attrs__ = (_Attribute("x"), _Attribute("y"))

    def __init__(self, x, y):
        self.x = x
        self.y = y


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as s:
        yield s


@pytest.mark.parametrize("repeat", [1, 3])  # a plan is made, then found again
def test_nestings(session, repeat):
    a, b = tf.constant(1.0), tf.constant([1, 2])
    counted = collections.defaultdict(list, {"k": a})
    ordered = collections.OrderedDict([("q", b), ("p", a)])
    fetches = [a, (a, b), Pair(a, b), Named(a, b), {"z": [b]}, ordered, counted, [], (), {}, a.op]
    for _ in range(repeat):
        got = session.run(fetches)
        assert [type(g) for g in got[1:-1]] == [type(f) for f in fetches[1:-1]]
        assert got[2].a == 1
        assert list(got[5]) == ["q", "p"]
        assert got[6]["k"] == 1
        assert got[-1] is None
        record = session.run(Record(a, [b]))
        assert isinstance(record, Record)
        assert record.x == 1


def test_equal_tuples_of_different_types_keep_their_types(session):
    a, b = tf.constant(1.0), tf.constant(2.0)
    for fetch in ((a, b), Pair(a, b), [a, b], Named(a, b)) * 2:
        got = session.run(fetch)
        assert type(got) is type(fetch)
        assert list(got) == [1, 2]


def test_empty_fetches_and_duplicates(session):
    a = tf.constant([1.0])
    assert session.run([]) == []
    assert session.run(()) == ()
    assert session.run({}) == {}
    first, second = session.run([a, a])
    assert first is second


def test_thousands_of_fetches(session):
    x = tf.placeholder(tf.float32, [])
    fetches = [x + float(i) for i in range(1000)]
    assert session.run(fetches, {x: 1}) == [1.0 + i for i in range(1000)]
    assert session.run(tf.add_n(fetches), {x: 0}) == np.arange(1000.0).sum()


def test_elements_of_other_graphs_and_unfetchable_ones(session):
    a = tf.constant(1.0, name="a")
    with tf.Graph().as_default():
        other = tf.constant(2.0)
    with pytest.raises(ValueError, match="is not an element of this graph"):
        session.run(other)
    with pytest.raises(TypeError, match="Cannot interpret feed_dict key as Tensor"):
        session.run(a, {other: 1})
    a.graph.prevent_fetching(a.op)
    with pytest.raises(ValueError, match="Operation 'a' has been marked as not fetchable"):
        session.run(a)
    a.graph.prevent_feeding(a)
    with pytest.raises(ValueError, match=r"a:0.* may not be fed"):
        session.run(tf.identity(a), {a: 1})
