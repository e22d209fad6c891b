"""The messages that users know as tf.GraphDef, tf.train.Example and so on, loaded lazily."""

from __future__ import annotations

from headrace._src.core.export import export_value

__all__: list[str] = []

_PUBLIC = {
    "": "AttrValue ConfigProto Event GPUOptions GraphDef GraphOptions HistogramProto LogMessage "
    "MetaGraphDef NameAttrList NodeDef OptimizerOptions RunMetadata RunOptions SessionLog Summary "
    "SummaryMetadata TensorInfo",
    "train.": "BytesList ClusterDef Example Feature FeatureList FeatureLists Features FloatList "
    "Int64List JobDef SaverDef SequenceExample ServerDef",
    "summary.": "Event SessionLog Summary SummaryDescription TaggedRunMetadata",
    "contrib.tensorboard.plugins.projector.": "EmbeddingInfo ProjectorConfig SpriteMetadata",
}

for _prefix, _names in _PUBLIC.items():
    for _name in _names.split():
        export_value("headrace._src.core.proto", _name, _prefix + _name)
