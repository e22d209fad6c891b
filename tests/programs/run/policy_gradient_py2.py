""" Trains an agent with policy gradients (numpy + tf). """
import numpy as np
import cPickle as pickle
import tensorflow as tf
class Env(object):
    def __init__(self): self.n = 0
    def reset(self): self.n = 0; return np.zeros(4)
    def step(self, a): self.n += 1; return np.random.randn(4), 1.0 if a else 0.0, self.n >= 10, {}
def discount_rewards(r, gamma=0.99):
    discounted_r = np.zeros_like(r); running_add = 0
    for t in reversed(xrange(0, r.size)):
        running_add = running_add * gamma + r[t]; discounted_r[t] = running_add
    return discounted_r
obs = tf.placeholder(tf.float32, [None, 4], name="input_x")
W1 = tf.get_variable("W1", shape=[4, 10], initializer=tf.contrib.layers.xavier_initializer()); W2 = tf.get_variable("W2", shape=[10, 1], initializer=tf.contrib.layers.xavier_initializer())
prob = tf.nn.sigmoid(tf.matmul(tf.nn.relu(tf.matmul(obs, W1)), W2))
tvars = tf.trainable_variables(); input_y = tf.placeholder(tf.float32, [None, 1]); adv = tf.placeholder(tf.float32)
loglik = tf.log(input_y*(input_y - prob) + (1 - input_y)*(input_y + prob)); loss = -tf.reduce_mean(loglik * adv)
newGrads = tf.gradients(loss, tvars); adam = tf.train.AdamOptimizer(1e-2)
W1Grad = tf.placeholder(tf.float32); W2Grad = tf.placeholder(tf.float32)
updateGrads = adam.apply_gradients(zip([W1Grad, W2Grad], tvars))
env = Env()
with tf.Session() as sess:
    sess.run(tf.initialize_all_variables()); gradBuffer = sess.run(tvars)
    for ix, grad in enumerate(gradBuffer): gradBuffer[ix] = grad * 0
    for ep in range(3):
        xs, drs, ys = [], [], []; o = env.reset(); done = False
        while not done:
            x = np.reshape(o, [1, 4]); p = sess.run(prob, {obs: x}); a = 1 if np.random.uniform() < p else 0
            xs.append(x); ys.append(1 - a); o, r, done, info = env.step(a); drs.append(r)
        epx, epr = np.vstack(xs), discount_rewards(np.vstack(drs)); epr -= np.mean(epr); epr /= np.std(epr) + 1e-8
        g = sess.run(newGrads, {obs: epx, input_y: np.vstack(ys), adv: epr})
        for ix, grad in enumerate(g): gradBuffer[ix] += grad
        sess.run(updateGrads, {W1Grad: gradBuffer[0], W2Grad: gradBuffer[1]})
        print 'Average reward %f.  Total %d' % (np.mean(drs), sum(drs) / 2)
d = {'a': 1, 'b': 2}
for k, v in d.iteritems(): print k, v,
print
print sorted(d.keys(), cmp=lambda a, b: cmp(b, a)), d.has_key('a'), 7 / 2, -7 / 2, 7 / 2., map(lambda x: x * 2, range(3))
