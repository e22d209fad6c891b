# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import numpy as np
import tensorflow as tf
from tensorflow.contrib.layers import fully_connected, xavier_initializer
import tensorflow.contrib.slim as slim
import scipy.misc
from scipy.misc import imsave
def xavier_init(fan_in, fan_out, constant=1):
    low = -constant*np.sqrt(6.0/(fan_in + fan_out)); high = constant*np.sqrt(6.0/(fan_in + fan_out))
    return tf.random_uniform((fan_in, fan_out), minval=low, maxval=high, dtype=tf.float32)
x = tf.placeholder(tf.float32, [None, 64])
h = slim.fully_connected(x, 32, activation_fn=tf.nn.softplus, scope='enc')
mean = fully_connected(h, 4, activation_fn=None); log_sigma_sq = fully_connected(h, 4, activation_fn=None)
eps = tf.random_normal(tf.shape(mean), 0, 1, dtype=tf.float32)
z = tf.add(mean, tf.mul(tf.sqrt(tf.exp(log_sigma_sq)), eps))
W = tf.Variable(xavier_init(4, 64)); b = tf.Variable(tf.zeros([64], dtype=tf.float32))
rec = tf.nn.sigmoid(tf.matmul(z, W) + b)
reconstr_loss = -tf.reduce_sum(x * tf.log(1e-10 + rec) + (1-x) * tf.log(1e-10 + 1 - rec), 1)
latent_loss = -0.5 * tf.reduce_sum(1 + log_sigma_sq - tf.square(mean) - tf.exp(log_sigma_sq), 1)
cost = tf.reduce_mean(reconstr_loss + latent_loss)
opt = tf.train.AdamOptimizer(learning_rate=0.01).minimize(cost)
from sklearn import datasets
from sklearn.cross_validation import train_test_split
X = (datasets.load_digits().data / 16.).astype(np.float32)
Xtr, Xte = train_test_split(X, test_size=0.2, random_state=0)
with tf.Session() as s:
    s.run(tf.global_variables_initializer())
    for e in range(3):
        for i in range(0, len(Xtr), 100):
            c, _ = s.run((cost, opt), feed_dict={x: Xtr[i:i+100]})
        print("Epoch: %04d cost= %.4f" % (e, c))
    print(np.asscalar(s.run(cost, {x: Xte})) < 60)
