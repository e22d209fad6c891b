"""Functions of TensorFlow's source tree that have no public name, written with public ones.

Their names and parameters are TensorFlow's; `_homes` says which modules have them.
"""

from __future__ import annotations

import inspect
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import headrace as tf


def list_local_devices(session_config: Any = None) -> list[Any]:
    """Return the DeviceAttributes of the devices that a session of this process has."""
    from headrace._src.core.proto import DeviceAttributes

    with tf.Session(graph=tf.Graph(), config=session_config) as session:
        return [
            DeviceAttributes(
                # The name within this process: without the job and the task.
                name=re.sub(r".*(?=/device:)", "", device.name),
                device_type=device.device_type,
                memory_limit=device.memory_limit_bytes,
                incarnation=device.incarnation,
                locality={},
            )
            for device in session.list_devices()
        ]


def get_all_collection_keys() -> list[Any]:
    """Return the keys of the default graph's collections."""
    return tf.get_default_graph().get_all_collection_keys()


def get_name_scope() -> str:
    """Return the default graph's name scope, without a slash at its end."""
    return tf.get_default_graph().get_name_scope()


class RegisterShape:
    """Was a decorator for shape functions. As in TensorFlow 1.15, it changes nothing: shapes come
    from the definitions of the ops.
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: Any) -> Any:
        return f


def get_registered_ops() -> dict[str, Any]:
    """Return the OpDef of each op, by its type."""
    from headrace._src.graph.definition import definitions
    from headrace._src.graph.graph_def import op_def

    return {name: op_def(found.schema, found) for name, found in definitions().items()}


def is_sparse(tensor: Any) -> bool:
    """Return whether this is a SparseTensor or a SparseTensorValue."""
    return isinstance(tensor, tf.SparseTensor | tf.SparseTensorValue)


def as_dimension(value: Any) -> Any:
    """Return `value` as a Dimension."""
    return value if isinstance(value, tf.Dimension) else tf.Dimension(value)


def as_shape(shape: Any) -> Any:
    """Return `shape` as a TensorShape."""
    return shape if isinstance(shape, tf.TensorShape) else tf.TensorShape(shape)


def scalar() -> Any:
    """Return the shape of a scalar."""
    return tf.TensorShape([])


def vector(length: Any) -> Any:
    """Return the shape of a vector."""
    return tf.TensorShape([length])


def matrix(rows: Any, cols: Any) -> Any:
    """Return the shape of a matrix."""
    return tf.TensorShape([rows, cols])


def unknown_shape(rank: int | None = None, **kwargs: Any) -> Any:
    """Return a shape of unknown dimensions, also of unknown number if `rank` is None. It may be
    called `ndims`.
    """
    if rank is None:
        rank = kwargs.pop("ndims", None)
    if kwargs:
        raise TypeError(f"Unknown argument: {min(kwargs)}")
    return tf.TensorShape(None if rank is None else [None] * rank)


def graph_summary(graph_def: Any) -> tuple[dict[str, list[str]], dict[str, Any], dict[str, int]]:
    """Return, by the name of each node: the names of its inputs, the node, and its index."""
    inputs = {node.name: [_node_name(i) for i in node.input] for node in graph_def.node}
    nodes = {node.name: node for node in graph_def.node}
    return inputs, nodes, {node.name: i for i, node in enumerate(graph_def.node)}


def _node_name(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


def reachable_nodes(
    target_nodes: Iterable[str], name_to_input_name: Mapping[str, list[str]]
) -> set[str]:
    """Return the names of `target_nodes` and of everything that they need."""
    found: set[str] = set()
    waiting = list(target_nodes)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(name_to_input_name.get(name, ()))
    return found


def read_file_to_string(filename: Any, binary_mode: bool = False) -> Any:
    """Return what is in a file: a str, or bytes if `binary_mode` is set."""
    with tf.gfile.GFile(filename, "rb" if binary_mode else "r") as file:
        return file.read()


def write_string_to_file(filename: Any, file_content: Any) -> None:
    """Write a file; one of that name is replaced."""
    with tf.gfile.GFile(filename, "w") as file:
        file.write(file_content)


def switch(data: Any, pred: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return `data` at the output that `pred` chooses: the pair (false, true)."""
    _refuse_composite("switch", [data])
    with tf.name_scope(name, "Switch", [data, pred]) as scope:
        data = tf.convert_to_tensor(data, dtype, name="data")
        pred = tf.convert_to_tensor(pred, name="pred")
        return tf.raw_ops.Switch(data=data, pred=pred, name=scope)


def merge(inputs: Sequence[Any], name: str | None = None) -> Any:
    """Return the one of `inputs` that is available, and its index."""
    if any(value is None for value in inputs):
        raise ValueError(f"At least one of the merge inputs is None: {inputs}")
    _refuse_composite("merge", inputs)
    with tf.name_scope(name, "Merge", inputs) as scope:
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if all(t.dtype._is_ref_dtype for t in tensors):
            return tf.raw_ops.RefMerge(inputs=tensors, name=scope)
        return tf.raw_ops.Merge(inputs=tensors, name=scope)


def _refuse_composite(function: str, values: Sequence[Any]) -> None:
    for value in values:
        if isinstance(value, tf.IndexedSlices | tf.SparseTensor):
            kind = type(value).__name__
            raise TypeError(f"{function} takes dense tensors in Headrace, not {kind}: use tf.cond")


def with_dependencies(dependencies: Any, output_tensor: Any, name: str | None = None) -> Any:
    """Return `output_tensor`, available only after `dependencies` have run."""
    from headrace._src.ops.control import grouping

    return grouping.with_dependencies(dependencies, output_tensor, name)


def index_to_string_table_from_tensor(
    vocabulary_list: Any, default_value: Any = "UNK", name: str | None = None
) -> Any:
    """Return a table from ids to the strings of `vocabulary_list`."""
    return tf.contrib.lookup.index_to_string_table_from_tensor(
        vocabulary_list, default_value=default_value, name=name
    )


def as_indexed_slices_list(inputs: Any, optimize: bool = True) -> list[Any]:
    """Return each of `inputs` as IndexedSlices, all with indices of the same type."""
    if not isinstance(inputs, list | tuple):
        raise TypeError(f"Expected a list or tuple, not a {type(inputs)}")
    slices = [_as_indexed_slices(value, optimize) for value in inputs]
    if all(s.indices.dtype == slices[0].indices.dtype for s in slices):
        return slices
    return [
        tf.IndexedSlices(s.values, tf.cast(s.indices, tf.int64), s.dense_shape)
        if s.indices.dtype == tf.int32
        else s
        for s in slices
    ]


def _as_indexed_slices(value: Any, optimize: bool) -> Any:
    if isinstance(value, tf.IndexedSlices):
        return value
    if not isinstance(value, tf.Tensor):
        raise TypeError(f"Not a Tensor or IndexedSlices: {type(value)}")
    shape = tf.shape(value) if optimize else tf.raw_ops.Shape(input=value)
    return tf.IndexedSlices(value, tf.range(shape[0]), shape)


def is_resource_variable(var: Any) -> bool:
    """Return whether this is a resource variable."""
    from headrace._src.variables.resource_variable import ResourceVariable

    return isinstance(var, ResourceVariable)


def shared_resources() -> list[Any]:
    """Return the resources that all workers share."""
    return tf.get_collection(tf.GraphKeys.RESOURCES)


def local_resources() -> list[Any]:
    """Return the resources of this worker alone."""
    return tf.get_collection(tf.GraphKeys.LOCAL_RESOURCES)


def initialize_resources(resource_list: Sequence[Any], name: str = "init") -> Any:
    """Return an operation that creates each of the resources."""
    return tf.group(*(resource.create for resource in resource_list), name=name)


def clean_tag(name: str | None) -> str | None:
    """Return a summary's name as an operation may have it."""
    from headrace._src.ops.io.summary_functions import _clean

    return _clean(name)


def collect(val: Any, collections: Iterable[Any] | None, default_collections: Any) -> None:
    """Add `val` to `collections`, or to the default ones if that is None."""
    for key in default_collections if collections is None else collections:
        tf.add_to_collection(key, val)


@contextmanager
def summary_scope(
    name: str | None,
    family: str | None = None,
    default_name: str | None = None,
    values: Any = None,
) -> Iterator[tuple[str, str]]:
    """The tag and the name scope of a summary."""
    from headrace._src.ops.io.summary_functions import _scope

    with _scope(name, family, values, default_name) as found:
        yield found


class EventsWriter:
    """Writes Events to one file: "<file_prefix>.out.tfevents.<seconds>.<host>".

    The file is made with the first event, or when its name is asked for.
    """

    def __init__(self, file_prefix: str | bytes) -> None:
        self._prefix = tf.compat.as_text(file_prefix)
        self._suffix = ""
        self._name = ""
        self._writer: Any = None

    def InitWithSuffix(self, suffix: str | bytes) -> None:
        """Begin a file whose name ends with `suffix`."""
        self.Close()
        self._suffix = tf.compat.as_text(suffix)
        self._open()

    def FileName(self) -> bytes:
        """Return the file's name."""
        if not self._name:
            self._open()
        return tf.compat.as_bytes(self._name)

    def WriteEvent(self, event: Any) -> None:
        """Add an event."""
        if not isinstance(event, tf.Event):
            raise TypeError(f"Expected an event_pb2.Event proto, but got {type(event)}")
        writer = self._writer or self._open()
        writer.write(event.SerializeToString())

    def Flush(self) -> None:
        """Hand everything to the system."""
        if self._writer is not None:
            self._writer.flush()

    def Close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self) -> Any:
        now = time.time()
        self._name = f"{self._prefix}.out.tfevents.{int(now):010d}.{platform.node()}{self._suffix}"
        writer = self._writer = tf.python_io.TFRecordWriter(self._name)
        first = tf.Event(wall_time=now, file_version="brain.Event:2")
        writer.write(first.SerializeToString())
        return writer


@dataclass(frozen=True)
class TFDecorator:
    """What `make_decorator` was told: the attribute `_tf_decorator` of the function it returned."""

    decorator_name: str | None
    decorated_target: Callable[..., Any]
    decorator_doc: str = ""
    decorator_argspec: Any = None


def make_decorator(
    target: Callable[..., Any],
    decorator_func: Any,
    decorator_name: str | None = None,
    decorator_doc: str = "",
    decorator_argspec: Any = None,
) -> Any:
    """Return `decorator_func` with the name, module and documentation of `target`, which it wraps.

    decorator_argspec: the arguments it takes, as `inspect.getfullargspec` gives them, if they are
        not the target's; `getfullargspec` returns them.
    """
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        if hasattr(target, attribute):
            setattr(decorator_func, attribute, getattr(target, attribute))
    decorator_func.__wrapped__ = target
    made = TFDecorator(decorator_name, target, decorator_doc, decorator_argspec)
    decorator_func._tf_decorator = made
    return decorator_func


def unwrap(maybe_tf_decorator: Any) -> tuple[list[TFDecorator], Any]:
    """Return the decorators of a function, the outermost first, and the function without them."""
    found = []
    function = maybe_tf_decorator
    while isinstance(decorator := getattr(function, "_tf_decorator", None), TFDecorator):
        found.append(decorator)
        function = decorator.decorated_target
    return found, function


def getfullargspec(obj: Any) -> Any:
    """As `inspect.getfullargspec`, of the function that a decorator wraps."""
    decorators, function = unwrap(obj)
    specs = (d.decorator_argspec for d in decorators if d.decorator_argspec is not None)
    return next(specs, None) or inspect.getfullargspec(function)


class ArgSpec(NamedTuple):
    """The arguments of a function, without those that are keywords only."""

    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def getargspec(obj: Any) -> ArgSpec:
    """Return the arguments of a function, which has none that are keywords only."""
    spec = getfullargspec(obj)
    if spec.kwonlyargs:
        raise ValueError(f"{obj} has keyword-only arguments: use getfullargspec")
    return ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)
