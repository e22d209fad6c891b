"""The nodes of savers."""

import numpy as np

from tests.oracle.case import case
from tests.oracle.cases_state import both


def variables(tf, use_resource=False):
    with tf.device("/cpu:0"):
        first = tf.get_variable("a", initializer=np.float32([1, 2]), use_resource=use_resource)
    tf.get_variable("b", initializer=np.int32(3), use_resource=use_resource)
    tf.get_variable(
        "p",
        [4, 2],
        initializer=tf.ones_initializer(),
        partitioner=tf.fixed_size_partitioner(2),
        use_resource=use_resource,
    )
    return first


@both
def plain(tf, use_resource):
    first = variables(tf, use_resource)
    tf.train.Saver()
    return first


@both
def two_with_names(tf, use_resource):
    first = variables(tf, use_resource)
    tf.train.Saver({"z": first}, filename="elsewhere")
    with tf.name_scope("scope"):
        tf.train.Saver([first], name="mine")
    return first


@both
def older_format(tf, use_resource):
    first = variables(tf, use_resource)
    tf.train.Saver(write_version=tf.train.SaverDef.V1)
    return first


@both
def older_format_sharded(tf, use_resource):
    first = variables(tf, use_resource)
    tf.train.Saver(write_version=tf.train.SaverDef.V1, sharded=True)
    return first


@case
def reshaped(tf):
    first = variables(tf)
    tf.train.Saver(reshape=True)
    return first


@case
def unknown_shape_reshaped(tf):
    v = tf.Variable(tf.placeholder_with_default(np.float32([1, 2]), [None]), validate_shape=False)
    tf.train.Saver(reshape=True)
    return v
