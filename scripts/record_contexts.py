"""Record the control-flow contexts that TensorFlow 1.15.5 writes to MetaGraphDefs. Run by hand,
with that TensorFlow's Python 3.7:

    python3.7 scripts/record_contexts.py

Writes tests/fixtures/contexts.json: for each case of tests/oracle/cases_control_flow.py, the
messages of the collections cond_context and while_context in base64.
"""

import base64
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import tensorflow as tf  # noqa: E402

from tests.oracle import cases_control_flow  # noqa: E402, F401
from tests.oracle.case import CASES  # noqa: E402


def contexts(build):
    with tf.Graph().as_default():
        build(tf)
        collections = tf.train.export_meta_graph().collection_def
        return {
            key: [base64.b64encode(m).decode() for m in collections[key].bytes_list.value]
            for key in ("cond_context", "while_context")
            if key in collections
        }


def main():
    found = {
        name: contexts(entry["build"])
        for name, entry in sorted(CASES.items())
        if name.startswith("cases_control_flow.")
    }
    path = os.path.join(ROOT, "tests", "fixtures", "contexts.json")
    with open(path, "w") as file:
        json.dump({name: c for name, c in found.items() if c}, file, indent=0, sort_keys=True)
        file.write("\n")
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
