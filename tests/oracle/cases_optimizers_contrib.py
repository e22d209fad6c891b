"""One step of each of Adam's relatives in tf.contrib.opt: values."""

from tests.oracle.case import case
from tests.oracle.cases_optimizers import build_with


def optimizer(name, make):
    for use_resource in (False, True):
        build = build_with(make, use_resource)
        build.__name__ = name + ("_resource" if use_resource else "_ref")
        build.__module__ = __name__
        case(build, graph=False)


optimizer("ada_max", lambda tf, step: tf.contrib.opt.AdaMaxOptimizer(0.01))
optimizer("nadam", lambda tf, step: tf.contrib.opt.NadamOptimizer(0.01))
optimizer("lazy_adam", lambda tf, step: tf.contrib.opt.LazyAdamOptimizer(0.01))
optimizer("adam_w", lambda tf, step: tf.contrib.opt.AdamWOptimizer(0.001, 0.01))
optimizer("momentum_w", lambda tf, step: tf.contrib.opt.MomentumWOptimizer(0.001, 0.01, 0.9))
