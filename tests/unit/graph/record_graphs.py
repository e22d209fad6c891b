"""Record tests/fixtures/graphs: the graphs of graph_cases.py as TensorFlow 1.15.5 writes them.

Run by hand with that TensorFlow's Python. For each graph: <name>.pb with shapes and <name>.pbtxt
without; meta.meta, a MetaGraphDef with collections; refused.json, the class of each error.
"""

import json
import os
import sys

import graph_cases
import tensorflow as tf
from google.protobuf import text_format

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../fixtures/graphs")


def write(name, data):
    with open(os.path.join(FIXTURES, name), "wb") as file:
        file.write(data)


def error_of(text):
    try:
        with tf.Graph().as_default():
            tf.import_graph_def(text_format.Parse(text, tf.GraphDef()))
    except (ValueError, TypeError, tf.errors.OpError) as error:
        return type(error).__name__
    raise SystemExit("TensorFlow accepts " + text)


def main():
    os.makedirs(FIXTURES, exist_ok=True)
    for name, build in graph_cases.GRAPHS.items():
        with tf.Graph().as_default() as graph:
            build(tf, graph)
            shaped = graph.as_graph_def(add_shapes=True)
        write(name + ".pb", shaped.SerializeToString(deterministic=True))
        write(name + ".pbtxt", text_format.MessageToString(graph.as_graph_def()).encode())
    with tf.Graph().as_default() as graph:
        graph_cases.order(tf, graph)
        for key, value in graph_cases.collections(graph).items():
            for item in value:
                graph.add_to_collection(key, item)
        meta = tf.train.export_meta_graph(strip_default_attrs=True)
    meta.meta_info_def.ClearField("tensorflow_git_version")
    write("meta.meta", meta.SerializeToString(deterministic=True))
    errors = {name: error_of(text) for name, text in graph_cases.REFUSED.items()}
    write("refused.json", json.dumps(errors, indent=1, sort_keys=True).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
