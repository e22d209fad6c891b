# A program as people wrote them from 2015 to 2019; tests/programs/test_run_programs.py runs it.
import tensorflow as tf
a = tf.constant([[1., 2.], [3., 4.]])
ops = dict(
 sum=tf.reduce_sum(a, reduction_indices=1, keep_dims=True), concat=tf.concat(concat_dim=0, values=[a, a]),
 split=tf.split(split_dim=1, num_split=2, value=a)[0], sq=tf.squeeze(tf.expand_dims(a, dim=0), squeeze_dims=[0]),
 arg=tf.argmax(a, dimension=1), mul=tf.mul(a, a), sub=tf.sub(a, a), neg=tf.neg(a), sel=tf.select(a > 2, a, -a),
 inv=tf.inv(a), bmm=tf.batch_matmul(tf.pack([a, a]), tf.pack([a, a]), adj_y=True), unp=tf.unpack(a)[1],
 diff=tf.listdiff([1, 2, 3], [2])[0], rev=tf.reverse(a, [False, True]), div=tf.div(a, 2.), md=tf.mod(7, 3),
 soft=tf.nn.softmax(a, dim=0), l2=tf.nn.l2_normalize(a, dim=1), ce=tf.nn.softmax_cross_entropy_with_logits(a, a),
 sce=tf.nn.sparse_softmax_cross_entropy_with_logits(a, [0, 1]), sig=tf.nn.sigmoid_cross_entropy_with_logits(logits=a, targets=a),
 bi=tf.batch_matrix_inverse(a), bd=tf.batch_matrix_diag([1., 2.]), ca=tf.complex_abs(tf.complex(3., 4.)), chol=tf.batch_cholesky(tf.matmul(a, a, transpose_b=True)))
with tf.op_scope([a], None, "scope"): ops['scoped'] = tf.identity(a)
with tf.variable_op_scope([a], None, "vs"): ops['v'] = tf.get_variable("v", [2], initializer=tf.zeros_initializer)
with tf.Session() as s:
    s.run(tf.initialize_variables(tf.all_variables())); s.run(tf.initialize_local_variables()); s.run(tf.initialize_all_tables())
    for k, v in sorted(ops.items()): print(k, s.run(v).tolist())
