"""The printed plan of a small cluster."""

import re

import headrace as tf
from headrace._src.pipeline import Options, compile_step

PLAN = """\
b0: input0 float32 64B x:0
b1: arena+0 float32 64B Tanh:0
b2: arena+64 float32 64B transpose:0
b3: output0 float32 8B total:0
Map(x0=b0, out:y0=b1)  # Tanh
Map(x0=b1, out:y0=b2)  # copy
ReduceKernel(x0=b2, out:y0=b3)  # total
arena 128"""


def without_specs(plan):
    """The plan with the kernels' names only: their fields are tested where they mean something."""
    return re.sub(r"^(\w+)\(.*\)(\([^()]*\)  #)", r"\1\2", plan, flags=re.MULTILINE)


def test_a_plan_prints():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [4, 4], name="x")
        y = tf.transpose(tf.tanh(x, name="Tanh"))
        total = tf.reduce_sum(tf.exp(tf.reshape(y, [2, 8])), 1, name="total")
        seen = {}
        options = Options(jit="always")
        compile_step([total], [], [x], [(4, 4)], options, lambda n, f: seen.update({n: f}))
    (cluster,) = [n.definition.kernel for n in seen["cluster"].nodes if n.type == "_Cluster"]
    assert without_specs(str(cluster)) == PLAN
