# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
# char-rnn-tensorflow style, TF 0.8, python 2
import tensorflow as tf
from tensorflow.models.rnn import rnn_cell
from tensorflow.models.rnn import seq2seq
import numpy as np
import cPickle
import collections
class Model():
    def __init__(self, args, infer=False):
        self.args = args
        cell = rnn_cell.BasicLSTMCell(args['rnn_size'])
        self.cell = cell = rnn_cell.MultiRNNCell([cell] * args['num_layers'])
        self.input_data = tf.placeholder(tf.int32, [args['batch_size'], args['seq_length']])
        self.targets = tf.placeholder(tf.int32, [args['batch_size'], args['seq_length']])
        self.initial_state = cell.zero_state(args['batch_size'], tf.float32)
        with tf.variable_scope('rnnlm'):
            softmax_w = tf.get_variable("softmax_w", [args['rnn_size'], args['vocab_size']])
            softmax_b = tf.get_variable("softmax_b", [args['vocab_size']])
            with tf.device("/cpu:0"):
                embedding = tf.get_variable("embedding", [args['vocab_size'], args['rnn_size']])
                inputs = tf.split(1, args['seq_length'], tf.nn.embedding_lookup(embedding, self.input_data))
                inputs = [tf.squeeze(input_, [1]) for input_ in inputs]
        def loop(prev, _):
            prev = tf.nn.xw_plus_b(prev, softmax_w, softmax_b)
            prev_symbol = tf.stop_gradient(tf.argmax(prev, 1))
            return tf.nn.embedding_lookup(embedding, prev_symbol)
        outputs, last_state = seq2seq.rnn_decoder(inputs, self.initial_state, cell, loop_function=loop if infer else None, scope='rnnlm')
        output = tf.reshape(tf.concat(1, outputs), [-1, args['rnn_size']])
        self.logits = tf.nn.xw_plus_b(output, softmax_w, softmax_b)
        self.probs = tf.nn.softmax(self.logits)
        loss = seq2seq.sequence_loss_by_example([self.logits],
                [tf.reshape(self.targets, [-1])],
                [tf.ones([args['batch_size'] * args['seq_length']])],
                args['vocab_size'])
        self.cost = tf.reduce_sum(loss) / args['batch_size'] / args['seq_length']
        self.final_state = last_state
        self.lr = tf.Variable(0.0, trainable=False)
        tvars = tf.trainable_variables()
        grads, _ = tf.clip_by_global_norm(tf.gradients(self.cost, tvars), 5.)
        optimizer = tf.train.AdamOptimizer(self.lr)
        self.train_op = optimizer.apply_gradients(zip(grads, tvars))
text = "to be or not to be that is the question " * 20
counter = collections.Counter(text)
chars, _ = zip(*sorted(counter.items(), key=lambda x: -x[1]))
vocab = dict(zip(chars, range(len(chars))))
args = dict(rnn_size=32, num_layers=2, batch_size=4, seq_length=10, vocab_size=len(chars))
data = np.array(map(vocab.get, text))
n = len(data) / (4 * 10)
data = data[:n * 40]
x = data; y = np.copy(x); y[:-1] = x[1:]; y[-1] = x[0]
xb = np.split(x.reshape(4, -1), n, 1); yb = np.split(y.reshape(4, -1), n, 1)
model = Model(args)
with tf.Session() as sess:
    tf.initialize_all_variables().run()
    saver = tf.train.Saver(tf.all_variables())
    for e in xrange(3):
        sess.run(tf.assign(model.lr, 0.002 * (0.97 ** e)))
        state = model.initial_state.eval() if hasattr(model.initial_state, 'eval') else sess.run(model.initial_state)
        for b in xrange(n):
            feed = {model.input_data: xb[b], model.targets: yb[b], model.initial_state: state}
            train_loss, state, _ = sess.run([model.cost, model.final_state, model.train_op], feed)
        print "epoch {}, train_loss = {:.3f}".format(e, train_loss)
    with open('vocab.pkl', 'wb') as f:
        cPickle.dump((chars, vocab), f)
    print len(cPickle.load(open('vocab.pkl'))[0])
