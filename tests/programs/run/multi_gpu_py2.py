# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import tensorflow as tf, numpy as np
num_gpus = 2
def tower_loss(scope, x, y):
    w = tf.get_variable('w', [5, 1], initializer=tf.constant_initializer(0.1)); 
    l = tf.reduce_mean(tf.square(tf.matmul(x, w) - y)); tf.add_to_collection('losses', l)
    return tf.add_n(tf.get_collection('losses', scope), name='total_loss')
def average_gradients(tower_grads):
  average_grads = []
  for grad_and_vars in zip(*tower_grads):
    grads = []
    for g, _ in grad_and_vars:
      grads.append(tf.expand_dims(g, 0))
    grad = tf.concat(0, grads)
    grad = tf.reduce_mean(grad, 0)
    average_grads.append((grad, grad_and_vars[0][1]))
  return average_grads
with tf.Graph().as_default(), tf.device('/cpu:0'):
    gs = tf.get_variable('global_step', [], initializer=tf.constant_initializer(0), trainable=False)
    opt = tf.train.GradientDescentOptimizer(tf.train.exponential_decay(0.1, gs, 10, 0.9, staircase=True))
    x = tf.placeholder(tf.float32, [8, 5]); y = tf.placeholder(tf.float32, [8, 1]); tower_grads = []
    xs = tf.split(0, num_gpus, x); ys = tf.split(0, num_gpus, y)
    with tf.variable_scope(tf.get_variable_scope()):
      for i in xrange(num_gpus):
        with tf.device('/gpu:%d' % i):
          with tf.name_scope('%s_%d' % ('tower', i)) as scope:
            loss = tower_loss(scope, xs[i], ys[i]); tf.get_variable_scope().reuse_variables()
            tower_grads.append(opt.compute_gradients(loss))
    train_op = opt.apply_gradients(average_gradients(tower_grads), global_step=gs)
    ema = tf.train.ExponentialMovingAverage(0.9, gs); train_op = tf.group(train_op, ema.apply(tf.trainable_variables()))
    sess = tf.Session(config=tf.ConfigProto(allow_soft_placement=False, log_device_placement=False, gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.4)))
    sess.run(tf.initialize_all_variables())
    for i in range(5): print sess.run([loss, train_op], {x: np.ones([8, 5]), y: np.ones([8, 1])})[0]
