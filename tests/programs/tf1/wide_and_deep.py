"""Wide and deep: who earns more, by a linear model of crosses and a network of embeddings."""

import shutil
import tempfile

import numpy as np

SCHOOLS = ["primary", "secondary", "bachelor", "master", "doctor"]
WORK = ["private", "public", "self-employed", "none", "other"]


def census(count, seed):
    random = np.random.RandomState(seed)
    age = random.randint(17, 80, count)
    school = random.randint(0, 5, count)
    hours = random.randint(5, 70, count)
    work = random.randint(0, 5, count)
    score = 0.05 * np.minimum(age, 50) + 0.8 * school + 0.04 * hours - 0.5 * work
    labels = (score + random.normal(0, 0.5, count) > 4.0).astype("int64")
    features = {
        "age": age.astype("float32"),
        "hours": hours.astype("float32"),
        "school": np.array(SCHOOLS)[school],
        "work": np.array(WORK)[work],
        "weight": random.uniform(0.5, 1.5, count).astype("float32"),
    }
    return features, labels


def build(tf, folder):
    fc = tf.feature_column
    age = fc.numeric_column("age")
    school = fc.categorical_column_with_vocabulary_list("school", SCHOOLS)
    work = fc.categorical_column_with_hash_bucket("work", 20)
    ages = fc.bucketized_column(age, boundaries=[18, 25, 30, 35, 40, 45, 50, 55, 60, 65])
    base = [school, work, ages]
    crossed = [
        fc.crossed_column(["school", "work"], hash_bucket_size=50),
        fc.crossed_column([ages, "school", "work"], hash_bucket_size=100),
    ]
    deep = [
        fc.numeric_column("age", normalizer_fn=lambda x: x / 50.0 - 1.0),
        fc.numeric_column("hours", normalizer_fn=lambda x: x / 40.0 - 1.0),
        fc.indicator_column(school),
        fc.embedding_column(work, dimension=4),
    ]
    return tf.estimator.DNNLinearCombinedClassifier(
        model_dir=folder,
        linear_feature_columns=base + crossed,
        dnn_feature_columns=deep,
        dnn_hidden_units=[12, 6],
        dnn_optimizer=tf.train.AdamOptimizer(0.01),
        weight_column="weight",
        config=tf.estimator.RunConfig(tf_random_seed=23),
    )


def run(tf):
    folder = tempfile.mkdtemp()
    try:
        model = build(tf, folder)
        features, labels = census(200, 5)
        train_input = tf.estimator.inputs.numpy_input_fn(
            features, labels, batch_size=40, num_epochs=None, shuffle=False
        )
        test, answers = census(80, 6)
        test_input = tf.estimator.inputs.numpy_input_fn(
            test, answers, batch_size=40, num_epochs=1, shuffle=False
        )
        model.train(train_input, steps=25)
        results = model.evaluate(test_input)
        yield [results[key] for key in sorted(results)]
        for batch in model.predict(test_input, ["logistic"], yield_single_examples=False):
            yield batch["logistic"].ravel()
    finally:
        shutil.rmtree(folder)
