# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import tensorflow as tf, os, numpy as np
from tensorflow.python.framework import graph_util
from tensorflow.python.platform import gfile
from tensorflow.python.tools import freeze_graph
x = tf.placeholder(tf.float32, [None, 3], name='input')
w = tf.Variable(tf.ones([3, 2]), name='w')
y = tf.nn.softmax(tf.matmul(x, w), name='output')
d = 'frozen'
if not os.path.isdir(d): os.makedirs(d)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    saver = tf.train.Saver(); saver.save(sess, d + '/m.ckpt', write_meta_graph=True)
    tf.train.write_graph(sess.graph_def, d, 'g.pbtxt', as_text=True)
    out = graph_util.convert_variables_to_constants(sess, sess.graph.as_graph_def(), ['output'])
    with tf.gfile.GFile(d + '/frozen.pb', 'wb') as f: f.write(out.SerializeToString())
tf.reset_default_graph()
with gfile.FastGFile(d + '/frozen.pb', 'rb') as f:
    gd = tf.GraphDef(); gd.ParseFromString(f.read()); tf.import_graph_def(gd, name='')
with tf.Session() as sess:
    print(sess.run('output:0', {'input:0': np.ones([1, 3])}))
freeze_graph.freeze_graph(d + '/g.pbtxt', "", False, d + '/m.ckpt', 'output', 'save/restore_all', 'save/Const:0', d + '/f2.pb', True, "")
print(os.path.getsize(d + '/f2.pb') > 0)
