"""The projector's configuration: the text that TensorFlow 1.15.5 writes for the same message."""

import headrace as tf

TEXT = """embeddings {
  tensor_name: "emb"
  metadata_path: "m.tsv"
  sprite {
    image_path: "s.png"
    single_image_dim: 2
    single_image_dim: 3
  }
}
"""


def test_the_configuration_is_where_tensorboard_looks(tmp_path):
    projector = tf.contrib.tensorboard.plugins.projector
    config = projector.ProjectorConfig()
    embedding = config.embeddings.add()
    embedding.tensor_name, embedding.metadata_path = "emb", "m.tsv"
    embedding.sprite.image_path = "s.png"
    embedding.sprite.single_image_dim.extend([2, 3])
    with tf.summary.FileWriter(str(tmp_path / "logs")) as writer:
        projector.visualize_embeddings(writer, config)
    assert (tmp_path / "logs" / "projector_config.pbtxt").read_text() == TEXT
