"""A hundred steps of every optimizer, under TensorFlow 1.15.5 and under Headrace alike: a lookup in
a table, whose sparse gradients have repeated rows, then a layer. Valid Python 3.7.
"""

import numpy as np

STEPS = 100
SHOWN = 20  # the loss is recorded at this interval of steps
PENALTIES = {"l1_regularization_strength": 0.001, "l2_regularization_strength": 0.002}

OPTIMIZERS = {
    "GradientDescent": lambda t, step: t.GradientDescentOptimizer(0.2),
    "Momentum": lambda t, step: t.MomentumOptimizer(0.05, 0.8),
    "Nesterov": lambda t, step: t.MomentumOptimizer(0.05, 0.8, use_nesterov=True),
    "Adagrad": lambda t, step: t.AdagradOptimizer(0.1),
    "AdagradDA": lambda t, step: t.AdagradDAOptimizer(0.1, step, **PENALTIES),
    "Adadelta": lambda t, step: t.AdadeltaOptimizer(1.0, epsilon=1e-4),
    "RMSProp": lambda t, step: t.RMSPropOptimizer(0.01, momentum=0.5),
    "Centered": lambda t, step: t.RMSPropOptimizer(0.01, centered=True, epsilon=1e-3),
    "Adam": lambda t, step: t.AdamOptimizer(0.02),
    "Ftrl": lambda t, step: t.FtrlOptimizer(0.1, **PENALTIES),
    "FtrlShrinkage": lambda t, step: t.FtrlOptimizer(
        0.1, l2_shrinkage_regularization_strength=0.01, **PENALTIES
    ),
    "ProximalAdagrad": lambda t, step: t.ProximalAdagradOptimizer(0.1, **PENALTIES),
    "ProximalGradientDescent": lambda t, step: t.ProximalGradientDescentOptimizer(0.2, **PENALTIES),
}

# Of tf.contrib.opt; their numbers are TensorFlow's, their nodes have other names.
CONTRIB = {
    "AdaMax": lambda tf, step: tf.contrib.opt.AdaMaxOptimizer(0.02),
    "Nadam": lambda tf, step: tf.contrib.opt.NadamOptimizer(0.02),
    "LazyAdam": lambda tf, step: tf.contrib.opt.LazyAdamOptimizer(0.02),
    "LARS": lambda tf, step: tf.contrib.opt.LARSOptimizer(
        0.2, weight_decay=0.01, eeta=0.02, skip_list=["bias"]
    ),
    "LARSNesterov": lambda tf, step: tf.contrib.opt.LARSOptimizer(
        0.2, eeta=0.02, epsilon=1e-5, use_nesterov=True
    ),
    "AddSign": lambda tf, step: tf.contrib.opt.AddSignOptimizer(0.05),
    "AddSignDecay": lambda tf, step: tf.contrib.opt.AddSignOptimizer(
        0.05, 0.5, 0.8, lambda step: 1.0 / (1.0 + tf.cast(step, tf.float32))
    ),
    "PowerSign": lambda tf, step: tf.contrib.opt.PowerSignOptimizer(0.05),
    "MovingAverage": lambda tf, step: tf.contrib.opt.MovingAverageOptimizer(
        tf.train.MomentumOptimizer(0.05, 0.8), 0.9
    ),
    "VariableClipping": lambda tf, step: tf.contrib.opt.VariableClippingOptimizer(
        tf.train.AdagradOptimizer(0.1),
        {v: [1] for v in tf.trainable_variables() if v.op.name == "layer/w"},
        0.9,
    ),
}
DENSE_ONLY = {"AddSign", "AddSignDecay", "PowerSign"}  # on handles, in TensorFlow


def runs():
    """(name, use_resource) of every run."""
    every = sorted(OPTIMIZERS) + sorted(CONTRIB)
    return [(n, r) for n in every for r in (False, True) if not (r and n in DENSE_ONLY)]


def train(tf, name, use_resource):
    """Returns the nodes that aren't gradients', the losses, and all variables after training."""
    start = np.sin(np.arange(12.0)).reshape(6, 2).astype("float32")
    weights = np.cos(np.arange(6.0)).reshape(2, 3).astype("float32")
    with tf.Graph().as_default() as graph:
        table = tf.get_variable("table", initializer=start, use_resource=use_resource)
        w = tf.get_variable("layer/w", initializer=weights, use_resource=use_resource)
        bias = tf.get_variable(
            "layer/bias", [3], initializer=tf.zeros_initializer(), use_resource=use_resource
        )
        ids = tf.placeholder("int32", [4], name="ids")
        target = tf.placeholder("float32", [4, 3], name="target")
        out = tf.tanh(tf.matmul(tf.gather(table, ids), w) + bias)
        loss = tf.reduce_mean(tf.square(out - target))
        step = tf.train.get_or_create_global_step()
        optimizer = CONTRIB[name](tf, step) if name in CONTRIB else OPTIMIZERS[name](tf.train, step)
        minimize = optimizer.minimize(loss, global_step=step)
        names = [op.name for op in graph.get_operations() if not op.name.startswith("gradients/")]
        losses = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for i in range(STEPS):
                rows = (i * 5 + np.array([0, 3, 3, 1])) % 6
                wanted = 0.8 * np.sin(rows[:, None] + np.arange(3.0))
                feeds = {ids: rows, target: wanted}
                value, _ = session.run([loss, minimize], feeds)
                if i % SHOWN == SHOWN - 1:
                    losses.append(float(value))
            variables = {v.op.name: session.run(v) for v in tf.global_variables()}
    return names, losses, {k: np.asarray(v).tolist() for k, v in variables.items()}
