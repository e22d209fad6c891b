# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import tensorflow as tf
import numpy as np
slim = tf.contrib.slim
from tensorflow.contrib.framework.python.ops import arg_scope, add_arg_scope
from tensorflow.contrib.layers.python.layers import utils
from tensorflow.contrib.slim.python.slim.nets import resnet_v1
@slim.add_arg_scope
def bottleneck(inputs, depth, stride, scope=None, outputs_collections=None):
    with tf.variable_scope(scope, 'bottleneck', [inputs]) as sc:
        depth_in = slim.utils.last_dimension(inputs.get_shape(), min_rank=4)
        preact = slim.batch_norm(inputs, activation_fn=tf.nn.relu, scope='preact')
        shortcut = slim.conv2d(preact, depth, [1, 1], stride=stride, normalizer_fn=None, activation_fn=None, scope='shortcut')
        residual = slim.conv2d(preact, depth // 4, [1, 1], stride=1, scope='conv1')
        residual = slim.conv2d(residual, depth // 4, 3, stride=stride, scope='conv2')
        residual = slim.conv2d(residual, depth, [1, 1], normalizer_fn=None, activation_fn=None, scope='conv3')
        return slim.utils.collect_named_outputs(outputs_collections, sc.name, shortcut + residual)
with slim.arg_scope([slim.conv2d], weights_regularizer=slim.l2_regularizer(1e-4), normalizer_fn=slim.batch_norm):
    with slim.arg_scope([slim.batch_norm], is_training=True, decay=0.9):
        x = tf.placeholder(tf.float32, [8, 16, 16, 3])
        net = slim.repeat(slim.conv2d(x, 16, [3, 3]), 2, bottleneck, 32, 2)
        net = tf.reduce_mean(net, [1, 2], keep_dims=True)
        logits = tf.squeeze(slim.conv2d(net, 5, [1, 1], activation_fn=None, normalizer_fn=None), squeeze_dims=[1, 2])
labels = slim.one_hot_encoding(tf.constant(list(range(5)) + [0, 1, 2]), 5)
slim.losses.softmax_cross_entropy(logits, labels)
total_loss = slim.losses.get_total_loss()
train_op = slim.learning.create_train_op(total_loss, tf.train.MomentumOptimizer(0.05, 0.9))
with tf.Session() as s:
    s.run(tf.global_variables_initializer())
    d = np.random.RandomState(0).rand(8, 16, 16, 3)
    for i in range(5): print(s.run(train_op, {x: d}))
slim.model_analyzer.analyze_vars(slim.get_model_variables(), print_info=True)
