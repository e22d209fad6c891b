"""tf.print: the characters that TensorFlow 1.15.5 writes for tensors, variables and structures."""

import collections

import numpy as np
import pytest

import headrace as tf

Point = collections.namedtuple("Point", "x y")

CASES = {
    "variable": (lambda: [tf.Variable(tf.range(10))], "[0 1 2 ... 7 8 9]"),
    "resource": (
        lambda: [tf.get_variable("v", initializer=tf.range(10), use_resource=True)],
        "[0 1 2 ... 7 8 9]",
    ),
    "variable in a list": (lambda: [[tf.Variable(1.0)]], "[1]"),
    "one string": (lambda: [tf.constant("scalar")], "scalar"),
    "one formatted string": (lambda: [tf.strings.format("{}", tf.range(3))], "[0 1 2]"),
    "a string of unknown rank": (lambda: [tf.placeholder_with_default("u", None)], '"u"'),
    "a string among others": (lambda: ["x", tf.constant("s"), "y"], 'x "s" y'),
    "strings": (lambda: [tf.constant(["a", "b c"])], '["a" "b c"]'),
    "sparse": (
        lambda: [tf.SparseTensor([[0, 0]], [1], [2, 2])],
        "'SparseTensor(indices=[[0 0]], values=[1], shape=[2 2])'",
    ),
    "sparse in a dict": (
        lambda: [{"a": tf.SparseTensor([[0, 0]], ["x"], [2, 2])}],
        "{'a': 'SparseTensor(indices=[[0 0]], values=[\"x\"], shape=[2 2])'}",
    ),
    "braces": (lambda: ["{}6", {"{}": tf.range(3)}], "{}6 {'{}': [0 1 2]}"),
    "braces alone": (lambda: ["{} {a}", 5], "{} {a} 5"),
    "braces in tensors": (lambda: [tf.constant("{}"), "{}", tf.constant(1)], '"{}" {} 1'),
    "dict": (
        lambda: ["a:", {"s": tf.constant([0.3]), "B": tf.range(2)}, 10, [tf.range(2)]],
        "a: {'B': [0 1], 's': [0.3]} 10 [[0 1]]",
    ),
    "nested": (
        lambda: [{"a": [1, 2, {"b": tf.constant(1)}], "c": (tf.constant(2.5), "s")}],
        "{'a': [1, 2, {'b': 1}], 'c': (2.5, 's')}",
    ),
    "numbers as keys": (lambda: [{2: tf.constant(1), 1: "a"}], "{1: 'a', 2: 1}"),
    "named tuple": (
        lambda: [Point(tf.constant(1), "q"), Point(1, 2)],
        "Point(x=1, y='q') Point(x=1, y=2)",
    ),
    "tuples": (lambda: [(1,), (tf.constant(1),)], "(1,) (1,)"),
    "nothing in them": (lambda: [{}, [], ()], "{} [] ()"),
    "values": (lambda: [None, True, 1.5, "s"], "None True 1.5 s"),
    "arrays": (lambda: [np.arange(3), [np.arange(2)]], "array([0, 1, 2]) [array([0, 1])]"),
    "operation": (lambda: [tf.no_op()], "<tf.Operation 'NoOp' type=NoOp>"),
    "type": (lambda: [tf.float32], "tf.float32"),
    "nothing": (list, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_text_is_tensorflows(name, tmp_path):
    build, expected = CASES[name]
    path = tmp_path / "out"
    with tf.Graph().as_default(), tf.Session() as session:
        printed = tf.print(*build(), output_stream=f"file://{path}")
        session.run(tf.global_variables_initializer())
        session.run(printed)
    assert path.read_text() == expected + "\n"


def test_an_ordered_dict_is_printed_in_its_order(tmp_path):
    path = tmp_path / "out"
    with tf.Graph().as_default(), tf.Session() as session:
        values = collections.OrderedDict([("z", tf.constant(1)), ("a", tf.constant(2))])
        nested = [collections.OrderedDict(k=values), collections.OrderedDict()]
        for printed in (values, nested):
            session.run(tf.print(printed, output_stream=f"file://{path}"))
    ordered = "OrderedDict([('z', 1), ('a', 2)])"
    assert path.read_text() == f"{ordered}\n[OrderedDict([('k', {ordered})]), OrderedDict()]\n"


def test_names():
    with tf.Graph().as_default() as graph:
        tf.print(tf.range(3), "b", name="p")
        assert {"p", "p_format"} <= {op.name for op in graph.get_operations()}
