"""Record wire.jsonl.gz: every message of headrace._src.core.proto as TensorFlow 1.15 writes it.

Run under TensorFlow 1.15 with the names to record as arguments:

    python record_wire.py $(python -c "from headrace._src.core import proto; print(*proto.__all__)")

Every line is a JSON list: message name, base64 of its deterministic bytes, its text format. In the
first sample of a message every field of it and of its nested types is set (one member per oneof).
"""

import base64
import glob
import gzip
import importlib
import json
import os
import random
import sys

import tensorflow
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor as F

SAMPLES = 3
MAX_DEPTH = 3
RANGES = {
    F.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    F.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    F.CPPTYPE_UINT32: (0, 2**32 - 1),
    F.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def message_classes():
    """Yield (name, class) of every top-level message that TensorFlow's Python package defines."""
    root = os.path.dirname(importlib.import_module("tensorflow.core").__file__)
    paths = glob.glob(os.path.join(root, "**", "*_pb2.py"), recursive=True)
    inner = [os.path.relpath(path, root)[: -len(".py")].replace(os.sep, ".") for path in paths]
    others = [
        "tensorflow.python.training.checkpoint_state_pb2",
        "tensorflow.contrib.tensorboard.plugins.projector.projector_config_pb2",
    ]
    for name in ["tensorflow.core." + module for module in inner] + others:
        module = importlib.import_module(name)
        for message in module.DESCRIPTOR.message_types_by_name:
            yield message, getattr(module, message)


def scalar(field, rng):
    kind = field.cpp_type
    if kind in RANGES:
        low, high = RANGES[kind]
        return rng.choice([low, high, rng.randint(low, high), rng.randint(1, 100)])
    if kind in (F.CPPTYPE_FLOAT, F.CPPTYPE_DOUBLE):
        return rng.choice([rng.randint(-1000, 1000) / 8 or 0.5, float("inf"), -1e30])
    if kind == F.CPPTYPE_BOOL:
        return True
    if kind == F.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    text = "".join(rng.choice("abcXYZ019/_:^") for _ in range(rng.randint(1, 6)))
    return text.encode() + b"\0\xff\n" if field.type == F.TYPE_BYTES else text + "\u00e9"


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def inner_density(message_type, density):
    """Nested types are only sampled inside their parent, so they are filled as densely as it is."""
    return 0.5 if message_type.containing_type is None else density


def fill_map(container, field, rng, depth, density):
    key, value = (field.message_type.fields_by_name[n] for n in ("key", "value"))
    # Deterministic bytes of integer keys are not portable: C++ sorts them upwards, upb downwards.
    for _ in range(1 if key.cpp_type in RANGES else 2):
        if value.message_type is None:
            container[scalar(key, rng)] = scalar(value, rng)
        else:
            inner = inner_density(value.message_type, density)
            fill(container[scalar(key, rng)], rng, depth + 1, inner)


def fill(message, rng, depth=0, density=1.0):
    """Set each field of `message` with probability `density`; the last set of a oneof wins."""
    fields = list(message.DESCRIPTOR.fields)
    rng.shuffle(fields)  # so that oneofs differ between samples
    for field in fields:
        nested = field.message_type is not None
        if rng.random() > density or (nested and depth >= MAX_DEPTH):
            continue
        value = getattr(message, field.name)
        if is_map(field):
            fill_map(value, field, rng, depth, density)
        elif field.label == F.LABEL_REPEATED:
            if nested:
                fill(value.add(), rng, depth + 1, inner_density(field.message_type, density))
            elif field.enum_type is not None:
                value.extend(v.number for v in field.enum_type.values)
            else:
                value.extend(scalar(field, rng) for _ in range(2))
        elif nested:
            value.SetInParent()
            fill(value, rng, depth + 1, inner_density(field.message_type, density))
        else:
            setattr(message, field.name, scalar(field, rng))


def main():
    wanted = set(sys.argv[1:])
    lines = []
    for name, cls in sorted(dict(message_classes()).items()):
        for n in range(SAMPLES if name in wanted else 0):
            message = cls()
            fill(message, random.Random(name + str(n)), density=0.5 if n else 1.0)
            content = base64.b64encode(message.SerializeToString(deterministic=True)).decode()
            lines.append(json.dumps([name, content, text_format.MessageToString(message)]))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.jsonl.gz")
    with gzip.GzipFile(path, "wb", mtime=0) as file:  # the same samples give the same file
        file.write("\n".join(lines).encode())
    print("recorded from TensorFlow", tensorflow.__version__)


if __name__ == "__main__":
    main()
