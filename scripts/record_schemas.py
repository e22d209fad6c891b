#!/usr/bin/env python3
"""Record the OpDefs of all ops of TensorFlow 1.15.5. Run by hand, with its Python 3.7:

    python3.7 scripts/record_schemas.py

Writes tests/fixtures/ops115.pb.gz: an OpList, sorted by name, without descriptions.
"""

import gzip
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tensorflow.core.framework import op_def_pb2
from tensorflow.python import pywrap_tensorflow

PATH = os.path.join(os.path.dirname(__file__), "..", "tests", "fixtures", "ops115.pb.gz")


def main():
    ops = op_def_pb2.OpList()
    buffer = pywrap_tensorflow.TF_GetAllOpList()
    ops.ParseFromString(pywrap_tensorflow.TF_GetBuffer(buffer))
    kept = op_def_pb2.OpList()
    for op in sorted(ops.op, key=lambda op: op.name):
        kept.op.add().CopyFrom(op)
        recorded = kept.op[-1]
        recorded.ClearField("summary")
        recorded.ClearField("description")
        for part in list(recorded.input_arg) + list(recorded.output_arg) + list(recorded.attr):
            part.ClearField("description")
    # A fixed time and name keep the file the same from run to run.
    with open(PATH, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as archive:
        archive.write(kept.SerializeToString())
    print(f"{len(kept.op)} ops, {os.path.getsize(PATH)} bytes")


if __name__ == "__main__":
    main()
