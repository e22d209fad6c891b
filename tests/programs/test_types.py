"""Type checkers and editors see the public functions' signatures and return types."""

import importlib
import inspect
import json
import subprocess
import sys
from types import ModuleType

import headrace as tf

PROGRAM = """
import headrace as tf

x = tf.placeholder(tf.float32, [None, 3])
w = tf.Variable(tf.ones([3, 2]), name="w")
h = tf.matmul(x, w)
tf.reduce_sum(h, axs=1)  # wrong
tf.nn.conv2d(h, h, strids=1)  # wrong
tf.layers.dense(inputs=h, units=3, activatoin=None)  # wrong
tf.layers.dense(inputs=h, units=3, activation=tf.nn.relu, reuse=True)
tf.contrib.layers.conv2d(h, 3, 2, stide=1)  # wrong
tf.Variable(1.0, trainabl=False)  # wrong
tf.nn.lrn(h, depth_radius="5")  # wrong
h.evall()  # wrong
h.op.typ  # wrong
tf.nn.reluu(h)  # wrong
tf.data  # wrong
h.op.type.upper()
tf.nn.top_k(h, k=tf.constant(2)).indices.shape.as_list()
reveal_type(h)  # Tensor
reveal_type(h + 1)  # Tensor
reveal_type(1 - h)  # Tensor
reveal_type(w * 2)  # Tensor
reveal_type(-h)  # Tensor
reveal_type(h[0])  # Tensor
reveal_type(h > 0)  # Tensor
reveal_type(w)  # Variable
reveal_type(w.assign(w))  # Tensor
reveal_type(tf.get_variable("a", [2]))  # Variable
reveal_type(tf.trainable_variables())  # list[Variable]
reveal_type(tf.nn.relu(h))  # Tensor
reveal_type(tf.reduce_sum(h, axis=1))  # Tensor
reveal_type(tf.cast(h, tf.int32))  # Tensor
reveal_type(tf.nn.top_k(h).values)  # Tensor
reveal_type(tf.split(h, 2))  # list[Tensor]
reveal_type(tf.group(h))  # Operation
reveal_type(tf.assign(w, w))  # Tensor
reveal_type(tf.layers.dense(h, 4))  # Tensor
reveal_type(tf.losses.mean_squared_error(h, h))  # Tensor
reveal_type(tf.train.AdamOptimizer().minimize(h))  # Operation
reveal_type(tf.global_variables_initializer())  # Operation
reveal_type(tf.gradients(h, w))  # list[Tensor]
reveal_type(tf.py_func(len, [h], tf.int64))  # Tensor
reveal_type(tf.py_func(len, [h], [tf.int64]))  # list[Tensor]
reveal_type(tf.train.batch({"x": h}, 2))  # dict[str, Tensor]
reveal_type(tf.cond(h > 0, lambda: 1, lambda: 2))  # Any
reveal_type(tf.get_default_graph())  # Graph
reveal_type(tf.Session())  # Session
"""

# Their results depend on their arguments.
ANYTHING = {
    *("case", "cond", "switch_case", "while_loop", "map_fn", "foldl", "foldr", "scan"),
    *("smart_cond", "static_cond", "map_structure", "pack_sequence_as", "cast", "scalar_mul"),
    *("py_func", "numpy_function", "py_function", "matrix_svd", "svd", "sparse_add"),
    *("batch_join", "maybe_batch_join", "shuffle_batch_join", "maybe_shuffle_batch_join"),
    *("convert_to_tensor_or_indexed_slices", "convert_to_tensor_or_sparse_tensor"),
    *("constant_value", "get_static_value", "get_global_step", "get_tensor_from_tensor_info"),
    *("collect_named_outputs", "append_tensor_alias", "variable_collections"),
    *("index_table_from_file", "index_table_from_tensor", "get_summary_description"),
    *("string_to_index_table_from_file", "string_to_index_table_from_tensor", "either"),
    *("bytes_split", "ngrams", "unicode_decode", "unicode_split", "string_split"),
    *("ragged_placeholder", "map_flat_values", "ragged_stack", "ragged_constant"),
    *("ragged_boolean_mask", "string_split_v2", "ragged_constant_value"),
    *("dynamic_decode", "tile_batch", "load_v2"),
    *("deserialize", "get", "train", "main", "compute_gradient", "path_to_str"),
}


def test_a_user_program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    result = subprocess.run([*command, path], capture_output=True, text=True, check=False)
    found = json.loads(result.stdout)["generalDiagnostics"]
    lines = PROGRAM.splitlines()
    flagged = {d["range"]["start"]["line"] for d in found if d["severity"] == "error"}
    assert flagged == {i for i, line in enumerate(lines) if line.endswith("# wrong")}
    revealed = {
        d["range"]["start"]["line"]: d["message"].rpartition(" is ")[2].strip('"')
        for d in found
        if d["severity"] == "information"
    }
    wanted = {i: line.rpartition("# ")[2] for i, line in enumerate(lines) if "reveal_type" in line}
    assert revealed == wanted


def functions(module, seen):
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            if value.__name__ == f"{module.__name__}.{name}" and hasattr(value, "_HOMES"):
                functions(value, seen)
        elif inspect.isfunction(value) and value.__module__.startswith("headrace"):
            seen.add(value)
    return seen


def test_public_functions_say_what_they_return():
    declared = vars(importlib.import_module("headrace._src.api._builders"))
    silent = []
    for function in functions(tf, set()):
        known = declared.get(function.__name__)
        made = hasattr(function, "definition") or hasattr(function, "layer")
        described = known if made else function
        if described is None or described.__annotations__.get("return") in (None, "Any"):
            silent.append(function.__name__)
    assert set(silent) <= ANYTHING


def test_declarations_have_the_functions_parameters():
    declared = vars(importlib.import_module("headrace._src.api._builders"))
    compared = 0
    for function in functions(tf, set()):
        if not (hasattr(function, "definition") or hasattr(function, "layer")):
            continue
        own = inspect.signature(function).parameters.values()
        shown = inspect.signature(declared[function.__name__]).parameters.values()
        assert [(p.name, p.kind) for p in own] == [(p.name, p.kind) for p in shown]
        compared += 1
    assert compared > 150
