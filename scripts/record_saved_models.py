#!/usr/bin/env python3
"""SavedModels that TensorFlow 1.15.5 and Headrace read of each other. Run by hand:

    python3.7 scripts/record_saved_models.py             with TensorFlow: write the fixtures
    python3.11 scripts/record_saved_models.py DIRECTORY  with Headrace: write the same models
    python3.7 scripts/record_saved_models.py DIRECTORY   with TensorFlow: load and run them

The fixtures are tests/fixtures/saved_models/<name>/, of the models below.
"""

import os
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "src")]
FIXTURES = os.path.join(ROOT, "tests", "fixtures", "saved_models")

try:
    import tensorflow as tf

    tf.logging.set_verbosity(tf.logging.ERROR)
except ImportError:
    import headrace as tf

from tests.unit.train.saved_models import MODELS, check, write  # noqa: E402
from tests.unit.train.saved_objects import check_objects, write_again, write_objects  # noqa: E402

OBJECTS = os.path.join(FIXTURES, "objects")  # which tf.saved_model.save writes


def main():
    under_tensorflow = tf.__name__ == "tensorflow"
    folder = sys.argv[1] if sys.argv[1:] else FIXTURES
    if under_tensorflow and sys.argv[1:]:
        for name in MODELS:
            check(tf, name, os.path.join(folder, name))
            print(name + ": as it should be")
        check_objects(tf, os.path.join(folder, "objects"), [9.0, 8.0], with_table=False)
        print("objects: as they should be")
        return
    shutil.rmtree(folder, ignore_errors=True)
    for name in MODELS:
        write(tf, name, os.path.join(folder, name))
    if under_tensorflow:
        write_objects(tf, OBJECTS)
    else:
        write_again(tf, OBJECTS, os.path.join(folder, "objects"))


if __name__ == "__main__":
    main()
