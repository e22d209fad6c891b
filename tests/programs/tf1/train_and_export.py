"""train_and_evaluate on records of a file of Examples, exported at the end, and served."""

import os
import shutil
import tempfile

import numpy as np


def records(tf, count, seed):
    """Serialized Examples: rooms, area, district, and the price of a house."""
    random = np.random.RandomState(seed)
    found = []
    for _ in range(count):
        rooms, area = random.randint(1, 8), random.uniform(30, 200)
        district = random.randint(0, 4)
        example = tf.train.Example()
        feature = example.features.feature
        feature["rooms"].int64_list.value.append(rooms)
        feature["area"].float_list.value.append(area)
        feature["district"].bytes_list.value.append(b"district %d" % district)
        price = 0.2 * rooms + area / 80 + 0.5 * district + random.normal(0, 0.1)
        feature["price"].float_list.value.append(price)
        found.append(example.SerializeToString())
    return found


def run(tf):
    folder = tempfile.mkdtemp()
    try:
        fc = tf.feature_column
        columns = [
            fc.numeric_column("rooms", dtype=tf.int64),
            fc.numeric_column("area", normalizer_fn=lambda x: x / 100.0),
            fc.indicator_column(fc.categorical_column_with_hash_bucket("district", 12)),
        ]
        spec = fc.make_parse_example_spec(columns)

        def input_fn(examples, epochs):
            example = tf.train.limit_epochs(tf.constant(examples), epochs)
            batch = tf.train.batch([example], 20, enqueue_many=True, allow_smaller_final_batch=True)
            wanted = dict(spec, price=tf.FixedLenFeature([1], tf.float32))
            features = tf.parse_example(batch, wanted)
            return features, features.pop("price")

        regressor = tf.estimator.DNNRegressor(
            hidden_units=[8],
            feature_columns=columns,
            optimizer="Adam",
            activation_fn=tf.nn.elu,
            model_dir=folder,
            config=tf.estimator.RunConfig(tf_random_seed=29, save_checkpoints_steps=15),
            loss_reduction=tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
        )
        train, test = records(tf, 60, 1), records(tf, 20, 2)
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
        results, exports = tf.estimator.train_and_evaluate(
            regressor,
            tf.estimator.TrainSpec(lambda: input_fn(train, None), max_steps=40),
            tf.estimator.EvalSpec(
                lambda: input_fn(test, 1),
                exporters=tf.estimator.FinalExporter("last", receiver),
                throttle_secs=0,
            ),
        )
        yield [results[key] for key in sorted(results)]
        yield [len(os.listdir(os.path.join(folder, "export", "last"))), len(exports)]

        with tf.Graph().as_default(), tf.Session() as session:
            served = tf.saved_model.loader.load(
                session, [tf.saved_model.tag_constants.SERVING], exports[0].decode()
            )
            signature = served.signature_def["serving_default"]
            feeds = {signature.inputs["inputs"].name: test}
            yield session.run(signature.outputs["outputs"].name, feeds).ravel()
    finally:
        shutil.rmtree(folder)
