"""Random programs on reference variables compute what they compute in Python, where every read of a
variable gives its current value: as primitives, in structured form and compiled.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from tests.property import reference_programs as programs

number = st.integers(0, programs.NUMBERS - 1)
limit = st.integers(0, 9)
read = st.tuples(number, st.sampled_from(programs.WAYS))
flag = st.tuples(st.none(), st.sampled_from(programs.WAYS))


def blocks(statement):
    return st.lists(statement, min_size=1, max_size=3)


simple = st.one_of(
    st.tuples(st.just("set"), number, st.lists(read, min_size=1, max_size=2)),
    st.tuples(st.just("flag"), read, limit),
)
statement = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(st.just("if"), flag | read, limit, blocks(inner), blocks(inner)),
        st.tuples(st.just("loop"), st.integers(0, 3), blocks(inner)),
        st.tuples(st.just("until"), limit, blocks(inner)),
    ),
    max_leaves=8,
)


def config(**options):
    optimizer_options = tf.OptimizerOptions(**options)
    return tf.ConfigProto(graph_options=tf.GraphOptions(optimizer_options=optimizer_options))


PRIMITIVES = config(opt_level=tf.OptimizerOptions.L0)
STRUCTURED = config(global_jit_level=tf.OptimizerOptions.OFF)
COMPILED = config(global_jit_level=tf.OptimizerOptions.ON_1)


@settings(max_examples=25)
@given(blocks(statement))
def test_interpreted(block):
    expected = programs.expected(block, 1)
    assert programs.run_graph(tf, block, 1, PRIMITIVES) == expected
    assert programs.run_graph(tf, block, 1, STRUCTURED) == expected


@settings(max_examples=8)
@given(blocks(statement))
def test_compiled(block):
    expected = programs.expected(block, 2)
    assert programs.run_graph(tf, block, 2, COMPILED) == expected
    assert programs.run_graph(tf, block, 2) == expected
