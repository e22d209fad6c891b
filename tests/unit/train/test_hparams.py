"""tf.contrib.training.HParams: parsing, types and messages as in TensorFlow 1.15.5."""

import copy
import re

import pytest

import headrace as tf

HParams = tf.contrib.training.HParams


@pytest.fixture
def params():
    return HParams(a=1, b=0.5, c="s", d=[1, 2], e=True, f=None, h=["x"])


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a=2", {"a": 2}),
        ("a=2,b=3", {"a": 2, "b": 3.0}),
        ("c=hello world,b=-1e-3", {"c": "hello world", "b": -0.001}),
        ("c=", {"c": ""}),
        ("c=a=b", {"c": "a=b"}),
        ("d=[3,4, 5]", {"d": [3, 4, 5]}),
        ("h=[p,q],a=3", {"h": ["p", "q"], "a": 3}),
        ("e=false", {"e": False}),
        ("e=0", {"e": False}),
    ],
)
def test_texts(params, text, changed):
    before = params.values()
    assert params.parse(text) is params
    assert params.values() == before | changed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=x", "Could not parse hparam 'a' of type 'int' with value 'x' in a=x"),
        ("a=2.5", "Could not parse hparam 'a' of type 'int' with value '2.5' in a=2.5"),
        ("e=no", "Could not parse hparam 'e' of type 'bool' with value 'no' in e=no"),
        ("zz=1", "Unknown hyperparameter type for zz"),
        ("a 2", "Malformed hyperparameter value: a 2"),
        ('c="x,y"', 'Malformed hyperparameter value: y"'),
        ("a=1,a=2", "Multiple assignments to variable 'a' in a=1,a=2"),
        ("d[0]=1,d[0]=2", "Multiple assignments to variable 'd[0]' in d[0]=1,d[0]=2"),
        ("d[1]=[1]", "Assignment of a list to a list index."),
        ("d=3", "Must pass a list for multi-valued parameter: d."),
        ("a=[1,2]", "Must not pass a list for single-valued parameter: a"),
    ],
)
def test_texts_that_make_no_sense(params, text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        params.parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("a", 7.0), ("a", "x"), ("a", True), ("a", None), ("b", "2"), ("c", 3), ("e", 1)],
)
def test_types_stay(params, name, value):
    with pytest.raises(ValueError, match=f"Could not cast hparam '{name}' of type"):
        params.set_hparam(name, value)


def test_values_change(params):
    params.set_hparam("b", 2)
    assert isinstance(params.b, float)
    params.set_hparam("f", "anything")
    params.a = 9
    assert params.override_from_dict({"c": "q"}).parse_json('{"d": [7]}').d == [7]
    assert params.values()["a"] == 9
    with pytest.raises(KeyError, match="zz"):
        params.set_hparam("zz", 1)


def test_adding_and_removing(params):
    params.add_hparam("n", 5)
    assert params.n == 5 and "n" in params
    for name in ("n", "parse"):
        with pytest.raises(ValueError, match=f"Hyperparameter name is reserved: {name}"):
            params.add_hparam(name, 1)
    with pytest.raises(ValueError, match="cannot be empty"):
        params.add_hparam("empty", [])
    params.del_hparam("n")
    assert "n" not in params and not hasattr(params, "n")


def test_defaults_have_the_type(params):
    assert [params.get("a"), params.get("a", 2)] == [1, 1]
    assert [params.get("zz"), params.get("zz", 3)] == [None, 3]
    with pytest.raises(ValueError, match=r"Hparam 'a' of type .* is incompatible with default=s"):
        params.get("a", "s")
    with pytest.raises(ValueError, match="list<<class 'int'>>' is incompatible with default=2"):
        params.get("d", 2)


def test_shown(params):
    assert str(params) == "a=1,b=0.5,c=s,d=[1, 2],e=True,f=None,h=['x']"
    assert repr(HParams(b=1, a="x")) == "HParams([('a', 'x'), ('b', 1)])"
    params.add_hparam("function", print)
    assert params.to_json(sort_keys=True, separators=(",", ":")).startswith('{"a":1,"b":0.5')
    assert copy.deepcopy(params).values() == params.values()


def test_parse_values():
    types = {"a": int, "b": float}
    parse = tf.contrib.training.parse_values
    assert parse("a=1,b=2.5", types) == {"a": 1, "b": 2.5}
    assert parse("a[1]=1,a[0]=2", types) == {"a": {1: 1, 0: 2}}
    assert parse("a=1,z=2", types, ignore_unknown=True) == {"a": 1}
