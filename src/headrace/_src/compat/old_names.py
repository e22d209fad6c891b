"""Spellings of TensorFlow 0.8 to 0.12 that 1.0 removed. In: the path of a name below `tf`. Out: a
function or class that takes what the old one took.

`RENAMED` has names whose arguments are those of the new name. `_adapted` has functions whose
arguments changed too: a decorated function gets `tf` and returns what programs call. Under their
new names they accept the new arguments as well: `tf.concat(0, [a, b])` and `tf.concat([a, b], 0)`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import numbers
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from headrace._src.compat.notices import notice

__all__ = ["RENAMED", "find", "listing"]

_BATCHED = "cholesky cholesky_solve matrix_band_part matrix_determinant matrix_diag "
_BATCHED += "matrix_diag_part matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls "
_BATCHED += "matrix_triangular_solve self_adjoint_eig self_adjoint_eigvals svd fft fft2d fft3d ifft"
_BATCHED += " ifft2d ifft3d matrix_transpose"

# Old path -> new path, both below tf.
RENAMED = {
    "all_variables": "global_variables",
    "complex_abs": "abs",
    "image.per_image_whitening": "image.per_image_standardization",
    "image.random_crop": "random_crop",
    "initialize_all_tables": "tables_initializer",
    "initialize_all_variables": "global_variables_initializer",
    "initialize_local_variables": "local_variables_initializer",
    "initialize_variables": "variables_initializer",
    "inv": "reciprocal",
    "listdiff": "setdiff1d",
    "merge_all_summaries": "summary.merge_all",
    "merge_summary": "summary.merge",
    "mul": "multiply",
    "neg": "negative",
    "nn.bidirectional_rnn": "nn.static_bidirectional_rnn",
    "nn.deconv2d": "nn.conv2d_transpose",
    "nn.rnn": "nn.static_rnn",
    "nn.seq2seq": "contrib.legacy_seq2seq",
    "nn.state_saving_rnn": "nn.static_state_saving_rnn",
    "pack": "stack",
    "python.ops.rnn.rnn": "nn.static_rnn",
    "select": "where",
    "sub": "subtract",
    "unpack": "unstack",
    **{f"batch_{name}": name for name in _BATCHED.split()},
    **{
        f"nn.rnn_cell.{name}": f"contrib.rnn.{name}"
        for name in ("EmbeddingWrapper", "InputProjectionWrapper", "OutputProjectionWrapper")
    },
}

Adapter = Callable[[Any], Any]
_adapted: dict[str, Adapter] = {}


def _adapt(*paths: str) -> Callable[[Adapter], Adapter]:
    def record(adapter: Adapter) -> Adapter:
        _adapted.update(dict.fromkeys(paths, adapter))
        return adapter

    return record


@functools.cache
def find(path: str) -> Any:
    """Return what stands for an old name, None if the path is not old."""
    tf = import_module("headrace")
    if path in _adapted:
        try:
            return _adapted[path](tf)
        except AttributeError:
            return None  # Headrace lacks the new name
    new = RENAMED.get(path)
    if new is None:
        return _op_function(path)
    if new == "contrib.legacy_seq2seq":
        return import_module("tensorflow.contrib.legacy_seq2seq")
    value = _at(tf, new)
    return None if value is None else _renamed(value, path, new)


def _op_function(path: str) -> Any:
    """Functions of ops that programs don't build themselves began with an underscore: until 1.5,
    `gen_nn_ops._relu_grad`.
    """
    found = re.fullmatch(r"(python\.ops\.gen_\w+)\._([a-z]\w*)", path)
    return found and getattr(import_module(f"headrace.{found[1]}"), found[2], None)


@functools.cache
def listing(space: str) -> tuple[str, ...]:
    """Return the old names of a namespace."""
    paths = (path.rpartition(".") for path in (*RENAMED, *_adapted))
    return tuple(leaf for parent, _, leaf in paths if parent == space)


def _at(tf: Any, path: str) -> Any:
    value = tf
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, type):
        _say(f"tf.{old} is tf.{new} since TensorFlow 1.0")
        return value

    @functools.wraps(value)
    def function(*args: Any, **kwargs: Any) -> Any:
        _say(f"tf.{old} is tf.{new} since TensorFlow 1.0")
        return value(*args, **kwargs)

    return function


def _say(sentence: str) -> None:
    notice("old names", f"{sentence}; names and arguments of TensorFlow 0.x are accepted")


def _is_axis(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_values(value: Any) -> bool:
    return not isinstance(value, numbers.Number | str)


# -- Arrays ----------------------------------------------------------------------------------------


@_adapt("concat")
def _concat(tf: Any) -> Any:
    def concat(
        values: Any = None, axis: Any = None, name: str = "concat", concat_dim: Any = None
    ) -> Any:
        if concat_dim is not None:
            values, axis = (axis, concat_dim) if values is None else (values, concat_dim)
        if _is_axis(values) and _is_values(axis):
            _say("tf.concat took the axis first before TensorFlow 1.0")
            values, axis = axis, values
        return tf.concat(values, axis, name)

    return functools.wraps(tf.concat)(concat)


@_adapt("split")
def _split(tf: Any) -> Any:
    def split(*args: Any, **kwargs: Any) -> Any:
        old = dict(zip(("split_dim", "num_split", "value"), args, strict=False))
        if (len(args) >= 2 and _is_axis(args[0])) or {"split_dim", "num_split"} & kwargs.keys():
            _say("tf.split took the axis first before TensorFlow 1.0")
            given = {**old, **kwargs}
            axis, count, value = (given.pop(k) for k in ("split_dim", "num_split", "value"))
            return tf.split(value, count, axis, name=given.pop("name", "split"))
        return tf.split(*args, **kwargs)

    return functools.wraps(tf.split)(split)


@_adapt("sparse_concat")
def _sparse_concat(tf: Any) -> Any:
    def sparse_concat(axis: Any = None, sp_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        axis = kwargs.pop("concat_dim", axis) if axis is None else axis
        return tf.sparse_concat(axis, sp_inputs, *args, **kwargs)

    return functools.wraps(tf.sparse_concat)(sparse_concat)


@_adapt("reverse")
def _reverse(tf: Any) -> Any:
    def reverse(tensor: Any, axis: Any = None, name: str | None = None, dims: Any = None) -> Any:
        marks = axis if dims is None else dims
        if isinstance(marks, Sequence) and marks and all(isinstance(m, bool) for m in marks):
            _say("tf.reverse took a list of booleans before TensorFlow 1.0")
            marks = [i for i, m in enumerate(marks) if m]
        return tf.reverse(tensor, marks, name)

    return functools.wraps(tf.reverse)(reverse)


@_adapt("batch_matmul")
def _batch_matmul(tf: Any) -> Any:
    def batch_matmul(
        x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None
    ) -> Any:
        _say("tf.batch_matmul is tf.matmul since TensorFlow 1.0")
        return tf.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)

    return batch_matmul


# -- Scopes and summaries --------------------------------------------------------------------------


@_adapt("op_scope")
def _op_scope(tf: Any) -> Any:
    def op_scope(values: Any, name: Any, default_name: Any = None) -> Any:
        _say("tf.op_scope is tf.name_scope since TensorFlow 1.0")
        return tf.name_scope(name, default_name, values)

    return op_scope


@_adapt("variable_op_scope")
def _variable_op_scope(tf: Any) -> Any:
    def variable_op_scope(
        values: Any, name_or_scope: Any, default_name: Any = None, **rest: Any
    ) -> Any:
        _say("tf.variable_op_scope is tf.variable_scope since TensorFlow 1.0")
        return tf.variable_scope(name_or_scope, default_name, values, **rest)

    return variable_op_scope


def _summary(op: str, second: str) -> Adapter:
    """The old function for a summary op: tags are written as they are given."""

    def adapter(tf: Any) -> Any:
        build = getattr(tf.raw_ops, op)

        def summary(*args: Any, **kwargs: Any) -> Any:
            _say("tf.scalar_summary and its siblings are in tf.summary since TensorFlow 1.0")
            names = ["tag" if op == "HistogramSummary" else "tags", second, "collections", "name"]
            if op == "ImageSummary":
                names = ["tag", second, "max_images", "collections", "name"]
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if names[0] not in given:
                given[names[0]] = given.pop("tag" if names[0] == "tags" else "tags")
            keys = given.pop("collections", None) or [tf.GraphKeys.SUMMARIES]
            result = build(**given)
            for key in keys:
                tf.add_to_collection(key, result)
            return result

        return summary

    return adapter


for _space in ("", "contrib.deprecated."):
    _adapted[f"{_space}scalar_summary"] = _summary("ScalarSummary", "values")
    _adapted[f"{_space}histogram_summary"] = _summary("HistogramSummary", "values")
    _adapted[f"{_space}image_summary"] = _summary("ImageSummary", "tensor")


@_adapt("train.SummaryWriter")
def _summary_writer(tf: Any) -> Any:
    class SummaryWriter(tf.summary.FileWriter):
        """tf.summary.FileWriter, whose second argument may be a GraphDef."""

        def __init__(self, logdir: Any, graph: Any = None, *args: Any, **kwargs: Any) -> None:
            _say("tf.train.SummaryWriter is tf.summary.FileWriter since TensorFlow 1.0")
            if isinstance(graph, tf.GraphDef):
                graph, kwargs["graph_def"] = None, graph
            super().__init__(logdir, graph, *args, **kwargs)

    return SummaryWriter


# -- Networks --------------------------------------------------------------------------------------


def _cross_entropy(name: str) -> Adapter:
    """Cross entropies took (logits, labels) by position; 1.0 made both keywords."""

    def adapter(tf: Any) -> Any:
        new = getattr(tf.nn, name)

        def cross_entropy(*args: Any, **kwargs: Any) -> Any:
            if (args and args[0] is not None) or "targets" in kwargs:
                _say(f"tf.nn.{name} took logits and labels by position before TensorFlow 1.0")
                given = {**dict(zip(("logits", "labels", "name"), args, strict=False)), **kwargs}
                if "targets" in given:
                    given["labels"] = given.pop("targets")
                return new(**given)
            return new(*args, **kwargs)

        return functools.wraps(new)(cross_entropy)

    return adapter


for _name in ("softmax", "sparse_softmax", "sigmoid"):
    _adapted[f"nn.{_name}_cross_entropy_with_logits"] = _cross_entropy(
        f"{_name}_cross_entropy_with_logits"
    )


def _sampled_loss(name: str) -> Adapter:
    """nce_loss and sampled_softmax_loss took inputs before labels."""

    def adapter(tf: Any) -> Any:
        new = getattr(tf.nn, name)

        def loss(weights: Any, biases: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) >= 2 and _is_float(tf, args[0]) and not _is_float(tf, args[1]):
                _say(f"tf.nn.{name} took inputs before labels before TensorFlow 1.0")
                args = (args[1], args[0], *args[2:])
            return new(weights, biases, *args, **kwargs)

        return functools.wraps(new)(loss)

    return adapter


def _is_float(tf: Any, value: Any) -> bool:
    # Without making a tensor: seeds depend on the number of operations.
    dtype = getattr(value, "dtype", None)
    return tf.as_dtype(np.asarray(value).dtype if dtype is None else dtype).is_floating


for _name in ("nce_loss", "sampled_softmax_loss"):
    _adapted[f"nn.{_name}"] = _sampled_loss(_name)


def _sequence_loss(name: str) -> Adapter:
    """A softmax_loss_function was called with (logits, labels) by position; 1.0 names them."""

    def adapter(tf: Any) -> Any:
        new = getattr(tf.contrib.legacy_seq2seq, name)
        parameters = inspect.signature(new)

        def loss(*args: Any, **kwargs: Any) -> Any:
            bound = parameters.bind(*args, **kwargs)
            given = bound.arguments.get("softmax_loss_function")
            if callable(given) and not _takes(given, "logits"):
                _say("a softmax_loss_function took its arguments by position before TensorFlow 1.0")
                bound.arguments["softmax_loss_function"] = lambda labels, logits: given(
                    logits, labels
                )
            return new(*bound.args, **bound.kwargs)

        return functools.wraps(new)(loss)

    return adapter


def _takes(function: Any, name: str) -> bool:
    """Whether a function has a parameter of that name, or takes any."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


for _name in ("model_with_buckets", "sequence_loss", "sequence_loss_by_example"):
    _adapted[f"contrib.legacy_seq2seq.{_name}"] = _sequence_loss(_name)


_LINEAR = ("nn.rnn_cell", "contrib.rnn.python.ops.core_rnn_cell")
_LINEAR += ("python.ops.rnn_cell", "python.ops.rnn_cell_impl")


@_adapt(*(f"{space}.{name}" for space in _LINEAR for name in ("_linear", "linear")))
def _linear(tf: Any) -> Any:
    def linear(
        args: Any,
        output_size: int,
        bias: bool,
        bias_start: float = 0.0,
        scope: Any = None,
        bias_initializer: Any = None,
        kernel_initializer: Any = None,
    ) -> Any:
        """Return args * W + b, with W and b variables of the current scope."""
        args = list(args) if isinstance(args, list | tuple) else [args]
        width = sum(int(a.get_shape()[1]) for a in args)
        if bias_initializer is None:
            bias_initializer = tf.constant_initializer(bias_start, dtype=args[0].dtype)
        elif not callable(bias_initializer):  # 0.x passed bias_start here
            bias_initializer = tf.constant_initializer(bias_initializer, dtype=args[0].dtype)
        with tf.variable_scope(scope or tf.get_variable_scope()):
            kernel = tf.get_variable(
                "kernel", [width, output_size], args[0].dtype, kernel_initializer
            )
            result = tf.matmul(args[0] if len(args) == 1 else tf.concat(args, 1), kernel)
            if not bias:
                return result
            offset = tf.get_variable("bias", [output_size], args[0].dtype, bias_initializer)
            return tf.nn.bias_add(result, offset)

    return linear


@_adapt(*(f"{space}._Linear" for space in _LINEAR))
def _linear_class(tf: Any) -> Any:
    linear = _linear(tf)

    class _Linear:
        """args * W + b, with the variables of its first call."""

        def __init__(
            self,
            args: Any,
            output_size: int,
            build_bias: bool,
            bias_initializer: Any = None,
            kernel_initializer: Any = None,
        ) -> None:
            self._rest = (output_size, build_bias, 0.0, None, bias_initializer, kernel_initializer)
            self._scope: Any = None

        def __call__(self, args: Any) -> Any:
            reuse = None if self._scope is None else True
            scope = self._scope or tf.get_variable_scope()
            with tf.variable_scope(scope, reuse=reuse) as self._scope:
                return linear(args, *self._rest)

    return _Linear


@_adapt("python.ops.rnn_cell_impl._zero_state_tensors")
def _zero_state_tensors(tf: Any) -> Any:
    def zero_state_tensors(state_size: Any, batch_size: Any, dtype: Any) -> Any:
        def zeros(size: Any) -> Any:
            sizes = tf.TensorShape(size).as_list()
            result = tf.zeros(tf.stack([batch_size, *sizes]), dtype)
            known = batch_size if isinstance(batch_size, int) else None
            result.set_shape([known, *sizes])
            return result

        return tf.nest.map_structure(zeros, state_size)

    return zero_state_tensors


@_adapt("nn.rnn_cell.MultiRNNCell", "contrib.rnn.MultiRNNCell")
@functools.cache
def _multi_cell(tf: Any) -> Any:
    new = tf.nn.rnn_cell.MultiRNNCell

    class OldMultiRNNCell(new):
        """A stack of cells, which may be `[cell] * n`. Since TensorFlow 1.1 that is one cell with
        one set of weights; where these do not fit all layers, each gets a cell of its own.
        """

        def call(self, inputs: Any, state: Any) -> Any:
            cells = self._cells
            repeated = len({id(cell) for cell in cells}) < len(cells)
            width = inputs.get_shape()[-1].value
            first = not vars(self).get("_has_run", False)
            self._has_run = True
            if repeated and first and width != cells[0].output_size:
                _say("a MultiRNNCell of one cell, repeated, had a set of weights for each layer")
                self._cells = [cells[0], *(copy.deepcopy(cell) for cell in cells[1:])]
            return new.call(self, inputs, state)

    OldMultiRNNCell.__name__ = new.__name__  # which names its variables
    return OldMultiRNNCell


def _cell(name: str) -> Adapter:
    """A cell that takes the arguments which 1.0 removed."""

    @functools.cache  # one class, under both of its names
    def adapter(tf: Any) -> Any:
        new = getattr(tf.nn.rnn_cell, name)

        def __init__(self: Any, num_units: int, *args: Any, **kwargs: Any) -> None:
            if kwargs.pop("input_size", None) is not None:
                _say("cells took input_size before TensorFlow 1.0, and ignored it")
            kwargs.pop("input_size", None)
            new.__init__(self, num_units, *args, **kwargs)

        init = functools.wraps(new.__init__)(__init__)
        return type(name, (new,), {"__init__": init, "__doc__": new.__doc__})

    return adapter


for _name in ("BasicRNNCell", "BasicLSTMCell", "GRUCell", "LSTMCell"):
    _adapt(f"nn.rnn_cell.{_name}", f"contrib.rnn.{_name}")(_cell(_name))


# -- Devices ---------------------------------------------------------------------------------------


@_adapt("device")
def _device(tf: Any) -> Any:
    def device(device_name_or_function: Any) -> Any:
        if isinstance(device_name_or_function, str) and "gpu" in device_name_or_function.lower():
            notice(
                "no GPU",
                f"there is no GPU for {device_name_or_function!r}: its operations run on the CPU "
                "(soft placement is on)",
            )
        return tf.device(device_name_or_function)

    return functools.wraps(tf.device)(device)


@_adapt("image.resize_images")
def _resize_images(tf: Any) -> Any:
    new = tf.image.resize_images

    def resize_images(images: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_axis(size) and args and _is_axis(args[0]):
            _say("tf.image.resize_images took height and width before TensorFlow 0.11")
            size, args = [size, args[0]], args[1:]
        return new(images, size, *args, **kwargs)

    return functools.wraps(new)(resize_images)
