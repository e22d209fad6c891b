"""Record in facts.jsonl what TensorFlow 1.15 says about types, shapes, device names and errors.

Every line has a Python expression, and what came of it: its repr and str, or the error's class. To
add a fact, add a line `{"expression": "..."}` and run this under TensorFlow 1.15 (Python 3.7).
"""

import copy
import json
import pathlib
import pickle

import tensorflow as tf
from tensorflow.python.framework import device, dtypes, errors, tensor_shape

FACTS = pathlib.Path(__file__).parent / "facts.jsonl"
NAMES = {
    "copy": copy,
    "pickle": pickle,
    "device": device,
    "dtypes": dtypes,
    "errors": errors,
    "shapes": tensor_shape,
    "T": tf.TensorShape,
    "D": tf.Dimension,
    "Spec": tf.DeviceSpec,
    "np": __import__("numpy"),
}


def observe(expression):
    try:
        value = eval(expression, dict(NAMES))
    except Exception as error:
        return {"expression": expression, "raises": type(error).__name__}
    return {"expression": expression, "repr": repr(value), "str": str(value)}


if __name__ == "__main__":
    expressions = [json.loads(line)["expression"] for line in FACTS.read_text().splitlines()]
    FACTS.write_text("".join(json.dumps(observe(text)) + "\n" for text in expressions))
