"""tf.contrib.tensorboard.plugins.projector: which embeddings TensorBoard shows. In: a
ProjectorConfig. Out: a file where TensorBoard looks for it.
"""

from __future__ import annotations

import os
from typing import Any

from headrace._src.core import proto
from headrace._src.core.export import export
from headrace._src.core.files import replace_file

__all__ = ["visualize_embeddings"]

_FILE = "projector_config.pbtxt"


@export("contrib.tensorboard.plugins.projector.visualize_embeddings")
def visualize_embeddings(summary_writer: Any, config: Any) -> None:
    """Write a ProjectorConfig into the directory of a FileWriter."""
    directory = summary_writer.get_logdir()
    if directory is None:
        raise ValueError("the summary writer has no directory")
    os.makedirs(directory, exist_ok=True)
    text = proto.text_format.MessageToString(config)
    replace_file(os.path.join(os.fspath(directory), _FILE), [text.encode()])
