"""The names used in SavedModels: files, tags, collections, signatures. They are exactly
TensorFlow's.
"""

from __future__ import annotations

from headrace._src.core.export import export_value

# Files and collections
ASSETS_DIRECTORY = "assets"
EXTRA_ASSETS_DIRECTORY = "assets.extra"
ASSETS_KEY = "saved_model_assets"
LEGACY_INIT_OP_KEY = "legacy_init_op"
MAIN_OP_KEY = "saved_model_main_op"
SAVED_MODEL_SCHEMA_VERSION = 1
SAVED_MODEL_FILENAME_PB = "saved_model.pb"
SAVED_MODEL_FILENAME_PBTXT = "saved_model.pbtxt"
VARIABLES_DIRECTORY = "variables"
VARIABLES_FILENAME = "variables"
INIT_OP_SIGNATURE_KEY = "__saved_model_init_op"  # written by TensorFlow's newer builders

# Tags
SERVING = "serve"
TRAINING = "train"
GPU = "gpu"
TPU = "tpu"

# Signatures
DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
CLASSIFY_INPUTS = "inputs"
CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
CLASSIFY_OUTPUT_CLASSES = "classes"
CLASSIFY_OUTPUT_SCORES = "scores"
PREDICT_INPUTS = "inputs"
PREDICT_METHOD_NAME = "tensorflow/serving/predict"
PREDICT_OUTPUTS = "outputs"
REGRESS_INPUTS = "inputs"
REGRESS_METHOD_NAME = "tensorflow/serving/regress"
REGRESS_OUTPUTS = "outputs"

_FILES = (
    *("ASSETS_DIRECTORY", "ASSETS_KEY", "LEGACY_INIT_OP_KEY", "MAIN_OP_KEY"),
    *("SAVED_MODEL_FILENAME_PB", "SAVED_MODEL_FILENAME_PBTXT", "SAVED_MODEL_SCHEMA_VERSION"),
    *("VARIABLES_DIRECTORY", "VARIABLES_FILENAME"),
)
_SIGNATURES = (
    *("DEFAULT_SERVING_SIGNATURE_DEF_KEY", "CLASSIFY_INPUTS", "CLASSIFY_METHOD_NAME"),
    *("CLASSIFY_OUTPUT_CLASSES", "CLASSIFY_OUTPUT_SCORES", "PREDICT_INPUTS"),
    *("PREDICT_METHOD_NAME", "PREDICT_OUTPUTS", "REGRESS_INPUTS", "REGRESS_METHOD_NAME"),
    "REGRESS_OUTPUTS",
)
for _names, _space in (
    (_FILES, "constants"),
    (("SERVING", "TRAINING", "GPU", "TPU"), "tag_constants"),
    (_SIGNATURES, "signature_constants"),
):
    for _name in _names:
        export_value(__name__, _name, f"saved_model.{_name}", f"saved_model.{_space}.{_name}")
