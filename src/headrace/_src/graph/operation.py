"""Operation and Tensor: the nodes and edges of a graph, as users see them.

Invariants: an operation's type, inputs and outputs never change after it joined its graph, except
through the underscored mutators, which increment the graph's `mutations` so that sessions make new
plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._src.core import errors, source
from headrace._src.core.device_names import requested
from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.tensor_proto import to_proto
from headrace._src.core.tensor_shape import TensorShape, as_shape, words_of_op
from headrace._src.graph import attributes, default
from headrace._src.graph.definition import Definition

if TYPE_CHECKING:
    from headrace._src.core import proto
    from headrace._src.graph.contexts import ControlFlowContext
    from headrace._src.graph.graph import Graph

__all__ = ["Operation", "Operators", "Tensor", "made_at"]


if TYPE_CHECKING:

    class Operators:
        """Python's operators on tensors and variables: ops.base.operators installs them, and
        ops.array.slicing installs indexing.
        """

        def _with(self, other: Any, /) -> Tensor: ...
        def _alone(self, /) -> Tensor: ...

        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = _with
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _with
        __pow__ = __matmul__ = __and__ = __or__ = __xor__ = __lt__ = __le__ = _with
        __rpow__ = __rmatmul__ = __rand__ = __ror__ = __rxor__ = __gt__ = __ge__ = _with
        __getitem__ = _with
        __neg__ = __invert__ = __abs__ = _alone
else:
    Operators = object


_OPERATORS = (
    "abs add and div eq floordiv ge getitem gt invert le lt matmul mod mul ne neg or pow radd rand "
    "rdiv rfloordiv rmatmul rmod rmul ror rpow rsub rtruediv rxor sub truediv xor"
)


@export("Tensor")
class Tensor(Operators):
    """One output of an operation: a value that exists only while a step runs."""

    __slots__ = ("__dict__", "__weakref__", "_consumers", "_shape", "dtype", "op", "value_index")
    __array_priority__ = 100  # Makes NumPy defer to us in `array + tensor`.
    OVERLOADABLE_OPERATORS = frozenset(f"__{name}__" for name in _OPERATORS.split())

    def __init__(self, op: Operation, value_index: int, dtype: DType) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype = dtype
        self._shape: TensorShape = _UNKNOWN
        self._consumers: list[Operation] = []

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def name(self) -> str:
        return f"{self.op.name}:{self.value_index}"

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def get_shape(self) -> TensorShape:
        """Return the static shape, as far as it is known before any step runs."""
        return self._shape

    def set_shape(self, shape: Any) -> None:
        """Merge `shape` into the static shape; ValueError if they are incompatible."""
        try:
            self._shape = self._shape.merge_with(as_shape(shape))
        except ValueError as error:
            raise ValueError(f"{words_of_op(error)} In set_shape of {self.name}.") from None

    @property
    def held(self) -> Any:
        """Return the value, as an array, of a tensor whose value is known without a step; else
        None.
        """
        return None

    def consumers(self) -> list[Operation]:
        """Return the operations that take this tensor as an input."""
        return list(self._consumers)

    def experimental_ref(self) -> Any:
        """Return a hashable key that identifies this tensor."""
        from headrace._src.core.identity import Reference  # loaded when it's used

        return Reference(self)

    def eval(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> Any:
        """Evaluate this tensor in `session` (or the default one) and return its value."""
        return _session_for(session, self.graph, "evaluate tensor", "eval").run(self, feed_dict)

    def _as_node_def_input(self) -> str:
        return f"{self.op.name}:{self.value_index}" if self.value_index else self.op.name

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self._shape} dtype={self.dtype.name}>"

    def __str__(self) -> str:
        shape = "" if self._shape.sizes is None else f", shape={self._shape}"
        device = f", device={self.device}" if self.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'

    def _repr_html_(self) -> str:
        from headrace._src.graph.graph_html import tensor_html  # loaded by notebooks only

        return tensor_html(self)

    def __copy__(self) -> Tensor:
        return self

    def __bool__(self) -> bool:
        raise errors.OperatorNotAllowedInGraphError(
            "using a `tf.Tensor` as a Python `bool` is not allowed in Graph execution. Use `if t "
            "is not None:` to test whether a tensor is defined, and tf.cond to branch on its value."
        )

    def __iter__(self) -> Any:
        raise errors.OperatorNotAllowedInGraphError(
            "iterating over `tf.Tensor` is not allowed in Graph execution. The length of "
            f"{self} is known only while a step runs: use tf.unstack to split it, or tf.map_fn to "
            "apply a function to each of its rows."
        )

    def __len__(self) -> int:
        raise TypeError(
            f"len is not well defined for symbolic Tensors. ({self.name}) Please call `x.shape` "
            "rather than `len(x)` for shape information."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Tensor ({self.name}) to a numpy array. Run it in a session."
        )


@export("Operation")
class Operation:
    """A node of the graph: a computation on tensors, or on state."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_attrs",
        "_control_flow_context",
        "_control_inputs",
        "_device",
        "_id",
        "_inputs",
        "_original_op",
        "_outputs",
        "definition",
        "graph",
        "name",
        "traceback_frames",
    )

    def __init__(
        self,
        graph: Graph,
        definition: Definition,
        name: str,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        control_inputs: list[Operation],
        op_id: int,
    ) -> None:
        self.graph = graph
        self.definition = definition
        self.name = name
        self._id = op_id
        self._inputs = inputs
        self._attrs = attrs
        self._control_inputs = control_inputs
        self._control_flow_context: ControlFlowContext | None = graph.scope.context
        self._device = ""
        self._original_op: Operation | None = (
            None  # for a gradient's operation: the operation that it differentiates
        )
        self.traceback_frames = source.capture()
        self._outputs = [
            graph.tensor_type(self, i, dtype)
            for i, dtype in enumerate(definition.schema.output_types(attrs))
        ]

    @property
    def type(self) -> str:
        return self.definition.schema.op_type

    @property
    def inputs(self) -> list[Tensor]:
        return list(self._inputs)

    @property
    def outputs(self) -> list[Tensor]:
        return list(self._outputs)

    @property
    def control_inputs(self) -> list[Operation]:
        return list(self._control_inputs)

    @property
    def device(self) -> str:
        return self._device

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes, as canonical Python values (see graph.attributes)."""
        return self._attrs

    def values(self) -> tuple[Tensor, ...]:
        return tuple(self._outputs)

    def get_attr(self, name: str) -> Any:
        """Return an attribute as TensorFlow does: strings as bytes, tuples as lists."""
        try:
            value = self._attrs[name]
        except KeyError:
            raise ValueError(f"Operation '{self.name}' has no attr named '{name}'.") from None
        return _public_value(self._kind(name), value)

    def _kind(self, name: str) -> str:
        known = self.definition.schema.attributes.get(name)
        return known.kind if known else attributes.guess_kind(self._attrs[name])

    @property
    def traceback(self) -> list[tuple[str, int, str, str]]:
        """Where the operation was made, outermost call first."""
        return source.extract_stack(self.traceback_frames)

    @property
    def traceback_with_start_lines(self) -> list[tuple[str, int, str, str, int]]:
        """The same, each call with the line on which its function begins."""
        starts = [frame.first_lineno for frame in reversed(self.traceback_frames)]
        return [(*call, start) for call, start in zip(self.traceback, starts, strict=True)]

    @property
    def node_def(self) -> proto.NodeDef:
        from headrace._src.graph.graph_def import node_def  # loads protobuf

        return node_def(self)

    @property
    def op_def(self) -> proto.OpDef:
        from headrace._src.graph.graph_def import op_def  # loads protobuf

        return op_def(self.definition.schema, self.definition)

    def colocation_groups(self) -> list[bytes]:
        """The `loc:@name` groups that the operation must be placed with."""
        groups = self._attrs.get("_class", ())
        found = [g.encode() for g in groups if g.startswith("loc:@")]
        return found or [f"loc:@{self.name}".encode()]

    def run(self, feed_dict: dict[Any, Any] | None = None, session: Any = None) -> None:
        """Run this operation and its dependencies in `session` (or the default one)."""
        _session_for(session, self.graph, "execute operation", "run").run(self, feed_dict)

    def _get_control_flow_context(self) -> ControlFlowContext | None:
        """The branch or loop that the operation is in, or None."""
        return self._control_flow_context

    def _set_control_flow_context(self, context: ControlFlowContext | None) -> None:
        self._control_flow_context = context

    def _set_attr(self, name: str, value: Any) -> None:
        """Set an attribute from an AttrValue or a Python value."""
        known = self.definition.schema.attributes.get(name)
        value = attributes.plain(value, known)
        self._attrs[name] = attributes.as_attribute(known, value, self.type) if known else value
        self.graph._mutated()

    def _set_device(self, device: Any) -> None:
        self._device = requested(device)
        self.graph._mutated()

    def _add_control_inputs(self, ops: list[Operation]) -> None:
        for op in ops:
            if op.graph is not self.graph:
                raise ValueError(f"control input '{op.name}' is from another graph")
            if op not in self._control_inputs:
                self._control_inputs.append(op)
        self.graph._mutated()

    def _add_control_input(self, op: Operation) -> None:
        self._add_control_inputs([op])

    def _update_input(self, index: int, tensor: Tensor) -> None:
        if tensor.graph is not self.graph:
            raise ValueError(f"{tensor.name} is from another graph than {self.name}")
        self._inputs[index]._consumers.remove(self)
        self._inputs[index] = tensor
        tensor._consumers.append(self)
        self.graph._mutated()

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"

    def __str__(self) -> str:
        return str(self.node_def)

    def __copy__(self) -> Operation:
        return self


_UNKNOWN = TensorShape(None)


def made_at(*ops: Operation, most: int = 1) -> str:
    """Return lines that say where the user's program made `ops`, for the end of a message: at most
    `most` calls of each, innermost first.
    """
    return "".join(
        source.trail(op.traceback_frames, f"'{op.name}' was made at", most) for op in ops
    )


def _public_value(kind: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_public_value(kind[5:-1], v) for v in value]
    if kind == "string":
        return value.encode() if isinstance(value, str) else value
    if kind == "shape":
        return value.as_proto()
    if kind == "tensor":
        return to_proto(value)
    return value


def _session_for(session: Any, graph: Graph, action: str, method: str) -> Any:
    which = "the default" if session is None else "that"
    session = session or default.default_session()
    if session is None:
        raise ValueError(
            f"Cannot {action} using `{method}()`: No default session is registered. Use `with "
            f"sess.as_default()` or pass an explicit session to `{method}(session=sess)`"
        )
    if session.graph is not graph:
        call = f"`{method}(session=sess)`" if method == "eval" else f"{method}(session=sess)"
        raise ValueError(
            f"Cannot use {which} session to {action}: the {action.split()[1]}'s graph is "
            f"different from the session's graph. Pass an explicit session to {call}."
        )
    return session
