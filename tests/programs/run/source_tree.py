# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import tensorflow as tf, numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, math_ops, gen_nn_ops, nn_ops, control_flow_ops, variable_scope as vs, init_ops
from tensorflow.python.ops.rnn_cell_impl import RNNCell, LSTMStateTuple, _Linear
from tensorflow.python.training import moving_averages, optimizer
from tensorflow.python.client import device_lib
from tensorflow.python.util import nest
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.eager import context
@ops.RegisterGradient("GuidedRelu")
def _GuidedReluGrad(op, grad):
    return tf.select(0. < grad, gen_nn_ops._relu_grad(grad, op.outputs[0]) if hasattr(gen_nn_ops, '_relu_grad') else gen_nn_ops.relu_grad(grad, op.outputs[0]), tf.zeros_like(grad))
g = tf.get_default_graph()
with g.gradient_override_map({'Relu': 'GuidedRelu'}): y = tf.nn.relu(tf.constant([-1., 2.]) )
class MyCell(RNNCell):
    def __init__(self, n): self._n = n; super(MyCell, self).__init__()
    @property
    def state_size(self): return self._n
    @property
    def output_size(self): return self._n
    def __call__(self, inputs, state, scope=None):
        with vs.variable_scope(scope or "my_cell"):
            w = vs.get_variable("w", [inputs.get_shape()[1] + state.get_shape()[1], self._n], initializer=init_ops.constant_initializer(0.1))
            o = math_ops.tanh(math_ops.matmul(array_ops.concat([inputs, state], 1), w)); return o, o
o, s = tf.nn.dynamic_rnn(MyCell(3), tf.ones([2, 4, 5]), dtype=tf.float32)
print([d.name for d in device_lib.list_local_devices() if d.device_type == 'CPU'])
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer()); print(sess.run(s)); print(nest.flatten([1, [2, 3]]))
