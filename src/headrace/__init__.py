"""Headrace: a machine-learning system of stateful dataflow graphs, with TensorFlow 1.15's interfaces."""
