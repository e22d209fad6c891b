"""A canned DNNClassifier on flowers like Fisher's: three kinds by name, four measures."""

import shutil
import tempfile

import numpy as np

KINDS = ["setosa", "versicolor", "virginica"]
MEASURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
CENTRES = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])


def flowers(count, seed):
    random = np.random.RandomState(seed)
    kinds = random.randint(0, 3, count)
    values = CENTRES[kinds] + random.normal(0, 0.35, (count, 4))
    columns = {name: values[:, i].astype("float32") for i, name in enumerate(MEASURES)}
    return columns, np.array(KINDS)[kinds]


def run(tf):
    folder = tempfile.mkdtemp()
    try:
        columns = [tf.feature_column.numeric_column(name) for name in MEASURES[:3]]
        width = tf.feature_column.numeric_column(
            "petal_width", normalizer_fn=lambda x: (x - 1.2) / 0.8
        )
        columns.append(tf.feature_column.bucketized_column(width, [-1.0, 0.0, 0.5]))
        classifier = tf.estimator.DNNClassifier(
            feature_columns=columns,
            hidden_units=[10, 10],
            n_classes=3,
            label_vocabulary=KINDS,
            optimizer=tf.train.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.001),
            dropout=0.1,
            model_dir=folder,
            config=tf.estimator.RunConfig(tf_random_seed=19),
        )
        features, labels = flowers(90, 1)
        train_input = tf.estimator.inputs.numpy_input_fn(
            features, labels, batch_size=30, num_epochs=None, shuffle=False
        )
        test, answers = flowers(30, 2)
        test_input = tf.estimator.inputs.numpy_input_fn(test, answers, shuffle=False)
        classifier.train(input_fn=train_input, steps=30)
        results = classifier.evaluate(input_fn=test_input)
        yield [results[key] for key in sorted(results)]
        for prediction in classifier.predict(test_input):
            kind = KINDS.index(prediction["classes"][0].decode())
            yield [kind] + list(prediction["probabilities"])
        yield classifier.get_variable_value("dnn/hiddenlayer_0/kernel")[0]
    finally:
        shutil.rmtree(folder)
