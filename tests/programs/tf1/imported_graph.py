"""Train in one graph, write it out as a GraphDef with constants, import it twice with input_map."""

import numpy as np


def train(tf, found):
    tf.set_random_seed(53)
    rng = np.random.RandomState(17)
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    w = tf.get_variable("w", [4, 2], initializer=tf.glorot_uniform_initializer())
    y = tf.nn.softmax(tf.matmul(x, w), name="y")
    target = tf.placeholder(tf.float32, [None, 2], name="target")
    loss = -tf.reduce_mean(tf.reduce_sum(target * tf.log(y), 1), name="loss")
    tf.assign_sub(w, tf.gradients(loss, w)[0], name="train")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(10):
            data = rng.randn(16, 4)
            labels = np.eye(2)[(data[:, 0] > data[:, 1]).astype(int)]
            yield session.run(["loss:0"], {"x:0": data, "target:0": labels})
            session.run("train", {"x:0": data, "target:0": labels})
        found.update(weights=session.run(w), graph=tf.get_default_graph().as_graph_def())


def run(tf):
    found = {}
    yield from train(tf, found)
    weights = found["weights"]
    parsed = tf.GraphDef()
    parsed.ParseFromString(found["graph"].SerializeToString())
    assert [n.op for n in parsed.node if n.name == "w"] == ["VariableV2"]

    rng = np.random.RandomState(18)
    with tf.Graph().as_default() as graph:
        image = tf.placeholder(tf.float64, [None, 2, 2], name="image")
        flat = tf.cast(tf.reshape(image, [-1, 4]), tf.float32)
        frozen = {"x:0": flat, "w/read:0": tf.constant(weights)}
        (y,) = tf.import_graph_def(parsed, frozen, return_elements=["y:0"], name="frozen")
        loss, target = tf.import_graph_def(
            parsed,
            input_map={"x": flat * 2.0, "w/read": tf.constant(weights) + 0.1},
            return_elements=["loss:0", "target"],
            name="other",
        )
        slope = tf.norm(tf.gradients(loss, image)[0])
        assert y.name == "frozen/y:0" and target.type == "Placeholder"
        assert graph.get_operation_by_name("other/train").type == "AssignSub"
        with tf.Session() as session:
            for _ in range(5):
                feeds = {image: rng.rand(6, 2, 2), target.outputs[0]: np.eye(2)[[0, 1] * 3]}
                yield list(session.run(y, feeds)[0]) + session.run([loss, slope], feeds)
