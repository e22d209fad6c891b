"""Parts of SDCA: fingerprints and shrinkage."""

from tests.oracle.case import case


@case
def fingerprints(tf):
    words = [("0123456789abcdefghijklmnopqrstuvwxyz" * 12)[:n] for n in range(0, 430)]
    return tf.train.sdca_fprint(words)


@case
def shrunk(tf):
    first = tf.Variable([1.0, -2.0, 0.05, -0.3], use_resource=False)
    second = tf.Variable([[0.5], [0.3]], use_resource=False)
    with tf.control_dependencies([tf.train.sdca_shrink_l1([first, second], l1=0.2, l2=0.5)]):
        return [tf.identity(first), tf.identity(second)]
