"""A model function for an Estimator: a small convolutional network that reads 8x8 digits."""

import shutil
import tempfile

import numpy as np


def model_fn(tf, features, labels, mode, params):
    images = tf.reshape(features["image"], [-1, 8, 8, 1])
    training = mode == tf.estimator.ModeKeys.TRAIN
    net = tf.layers.conv2d(images, params["filters"], 3, padding="same", activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2)
    net = tf.layers.batch_normalization(net, training=training)
    net = tf.layers.dense(tf.layers.flatten(net), 16, activation=tf.nn.relu)
    net = tf.layers.dropout(net, 0.3, training=training)
    logits = tf.layers.dense(net, 3, name="logits")
    predictions = {"digit": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)

    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if training:
        rate = tf.train.exponential_decay(0.05, tf.train.get_global_step(), 10, 0.9)
        optimizer = tf.train.MomentumOptimizer(rate, 0.9)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
        tf.summary.scalar("rate", rate)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    metrics = {"accuracy": tf.metrics.accuracy(labels, predictions["digit"])}
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)


def digits(count):
    """Noisy pictures of a bar, a ring and a cross."""
    random = np.random.RandomState(count)
    shapes = np.zeros((3, 8, 8), "float32")
    shapes[0, 1:7, 3:5] = 1
    shapes[1, 1:7, 1:7] = 1
    shapes[1, 3:5, 3:5] = 0
    shapes[2, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]] = 1
    shapes[2, [1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]] = 1
    labels = random.randint(0, 3, count)
    return shapes[labels] + random.normal(0, 0.4, (count, 8, 8)).astype("float32"), labels


class Losses:
    def __init__(self, tf):
        self.seen = []
        outer = self

        class Hook(tf.train.SessionRunHook):
            def before_run(self, run_context):
                return tf.train.SessionRunArgs(tf.get_collection(tf.GraphKeys.LOSSES)[-1])

            def after_run(self, run_context, run_values):
                outer.seen.append(run_values.results)

        self.hook = Hook()


def run(tf):
    folder = tempfile.mkdtemp()
    try:
        config = tf.estimator.RunConfig(tf_random_seed=17, save_checkpoints_steps=10)
        classifier = tf.estimator.Estimator(
            model_fn=lambda features, labels, mode, params: model_fn(
                tf, features, labels, mode, params
            ),
            model_dir=folder,
            config=config,
            params={"filters": 4},
        )
        images, labels = digits(60)
        train_input = tf.estimator.inputs.numpy_input_fn(
            x={"image": images}, y=labels, batch_size=12, num_epochs=None, shuffle=False
        )
        test_images, test_labels = digits(30)
        test_input = tf.estimator.inputs.numpy_input_fn(
            x={"image": test_images}, y=test_labels, num_epochs=1, shuffle=False
        )
        for _ in range(2):
            losses = Losses(tf)
            classifier.train(train_input, steps=12, hooks=[losses.hook])
            yield losses.seen
            results = classifier.evaluate(test_input)
            yield [results["accuracy"], results["loss"], results["global_step"]]
        for prediction in classifier.predict(test_input):
            yield [prediction["digit"]] + list(prediction["probabilities"])
    finally:
        shutil.rmtree(folder)
