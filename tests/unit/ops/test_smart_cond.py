"""smart_cond builds one branch where the predicate is known, and both where it is not."""

import numpy as np
import pytest

import headrace as tf
from headrace._src.ops.control.cond import smart_cond


@pytest.mark.parametrize("known", [True, 1, np.bool_(True), lambda: tf.constant(2) > 1])
def test_known(known):
    with tf.Graph().as_default() as graph:
        assert (
            smart_cond(known() if callable(known) else known, lambda: "yes", lambda: "no") == "yes"
        )
        assert "Switch" not in {op.type for op in graph.get_operations()}
    assert smart_cond(False, lambda: "yes", lambda: "no") == "no"


def test_unknown():
    with tf.Graph().as_default(), tf.Session() as session:
        p = tf.placeholder(tf.bool, [])
        y = smart_cond(p, lambda: 1, lambda: 2, name="named")
        assert y.op.name == "named/Merge"
        assert [session.run(y, {p: v}) for v in (True, False)] == [1, 2]


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_is_unknown(resource):
    with tf.Graph().as_default(), tf.Session() as session:
        p = tf.Variable(True, trainable=False, use_resource=resource)
        assert tf.contrib.framework.smart_constant_value(p) is None
        y = tf.contrib.framework.smart_cond(p, lambda: 1, lambda: 2)
        session.run(p.initializer)
        assert session.run(y) == 1


@pytest.mark.parametrize("pred", ["a", 2, None])
def test_refused(pred):
    with pytest.raises(TypeError, match="`pred` must be a Tensor, or a Python bool, or 1 or 0"):
        smart_cond(pred, lambda: 1, lambda: 2)
