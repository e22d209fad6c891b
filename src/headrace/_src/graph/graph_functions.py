"""Functions: graphs that operations call. In: a graph with arguments and results, or a FunctionDef.
Out: the definition of the op that calls it, and the FunctionDef of a GraphDef's library.

A body is a separate graph, whose arguments are `_Arg` operations. Tensors of the outer graph that
it uses become arguments too (`FunctionGraph.capture`). The body of a FunctionDef is built on first
use, since functions of a library may call each other in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.errors import NotFoundError
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.attributes import from_proto
from headrace._src.graph.definition import NOT_DIFFERENTIABLE, Definition, Effect, definitions
from headrace._src.graph.graph import Graph
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.schema import Argument, Schema
from headrace._src.graph.structured import CALL, Called

if TYPE_CHECKING:
    from headrace._src.core import proto

__all__ = ["GraphFunction", "FunctionGraph", "add_function", "function_named"]


def _not_called(*, index: int) -> Any:
    raise ValueError(f"argument {index} of a function has a value only while it's called")


ARGUMENT = Definition(
    schema=Schema("_Arg", "-> output: T", "T: type; index: int >= 0"),
    infer=lambda c: None,
    kernel=_not_called,
    gradient=NOT_DIFFERENTIABLE,
    effect=Effect.READS,
    doc="An argument of the function whose body this is.",
)


class FunctionGraph(Graph):
    """The graph of a function's body, while it's built inside `outer` (None: from a FunctionDef).

    `captures` maps the tensors of the outer graph that the body uses to their arguments.
    """

    def __init__(self, outer: Graph | None) -> None:
        super().__init__()
        self.outer = outer
        self.label = ""  # the function's name: state that the body keeps is named after it
        self.arguments: list[Tensor] = []
        self.captures: dict[Tensor, Tensor] = {}
        if outer is not None:
            self.seed = outer.seed

    @property
    def building_function(self) -> bool:
        return True

    def definition_of(self, op_type: str) -> Definition:
        if op_type in self._functions or self.outer is None:
            return super().definition_of(op_type)
        return self.outer.definition_of(op_type)

    def argument(self, dtype: DType, name: str, shape: TensorShape | None = None) -> Tensor:
        """Add an argument."""
        attrs = {"T": dtype.base_dtype, "index": len(self.arguments)}
        with self._swap("controls", []), self._swap("context", None), self._swap("name", ""):
            op = super().add_operation(ARGUMENT, (), attrs, self.unique_name(name))
        (tensor,) = op._outputs
        if shape is not None:
            tensor._shape = shape
        self.arguments.append(tensor)
        return tensor

    def capture(self, tensor: Tensor) -> Tensor:
        """Return the argument for a tensor of the outer graph."""
        if tensor.op.graph is self:
            return tensor
        if tensor not in self.captures:
            name = f"{self.scope.name}/Placeholder" if self.scope.name else "Placeholder"
            inner = self.argument(tensor.dtype, name, tensor._shape)
            known = getattr(tensor, "_handle_data", None)
            if known is not None:
                inner._handle_data = known  # type: ignore[attr-defined]
            self.captures[tensor] = inner
        return self.captures[tensor]

    def add_operation(
        self,
        definition: Definition,
        inputs: Sequence[Tensor],
        attrs: dict[str, Any],
        name: str,
        control_inputs: Iterable[Operation] = (),
        device: str | None = None,
    ) -> Operation:
        """As Graph.add_operation; inputs from the outer graph are captured. Control inputs from
        there are dropped: they have run when the function is called.
        """
        inputs = [self.capture(t) for t in inputs]
        controls = [c for c in control_inputs if c.graph is self]
        return super().add_operation(definition, inputs, attrs, name, controls, device)


class GraphFunction:
    """A function: some operations of a graph, from arguments to results.

    outputs: its results. operations: those of the body, whether or not a result needs them; None:
    those that the results need. gradient: the name of the function that computes its gradients.
    python_gradient: a Python function that builds them instead. shape: returns the static shapes of
    a call's results.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        output_names: Sequence[str] | None = None,
        *,
        operations: Sequence[Operation] | None = None,
        attrs: dict[str, Any] | None = None,
        doc: str = "",
    ) -> None:
        self.name = name
        self._body: tuple[Graph, list[Tensor], list[Tensor]] | None
        self._body = graph, list(inputs), list(outputs)
        self._operations = operations
        self._output_names = output_names
        self._proto: proto.FunctionDef | None = None
        self._library: Graph | None = None
        self._init_rest(attrs or {}, doc)

    def named(self, name: str) -> GraphFunction:
        """Return this function under another name."""
        self.name = name
        if isinstance(self.graph, FunctionGraph):
            self.graph.label = name
        return self

    def _init_rest(self, attrs: dict[str, Any], doc: str) -> None:
        self.attrs = attrs
        self.doc = doc
        self.gradient: str | None = None
        self.python_gradient: Callable[..., Any] | None = None
        self.shape: Callable[..., Any] | None = None
        self.derived: GraphFunction | None = (
            None  # the cached gradient function of gradients.function_gradients
        )

    @classmethod
    def from_proto(cls, function_def: proto.FunctionDef, library: Graph) -> GraphFunction:
        """Return the function of a FunctionDef; functions that it calls are found in `library`."""
        function = cls.__new__(cls)
        function.name = function_def.signature.name
        if function_def.signature.attr:
            names = ", ".join(a.name for a in function_def.signature.attr)
            raise ValueError(
                f"function '{function.name}' has attributes ({names}): only functions whose types "
                "are fixed can be read"
            )
        function._body = None
        function._operations = None
        function._output_names = [a.name for a in function_def.signature.output_arg]
        function._proto = function_def
        function._library = library
        # tf.function writes attributes without a value.
        given = sorted(function_def.attr.items())
        attrs = {k: from_proto(v) for k, v in given if v.WhichOneof("value")}
        function._init_rest(attrs, function_def.signature.description)
        return function

    # -- The body ----------------------------------------------------------------------------------

    def _built(self) -> tuple[Graph, list[Tensor], list[Tensor]]:
        if self._body is None:
            from headrace._src.graph.function_def import build_body  # loads protobuf

            assert self._proto is not None and self._library is not None
            self._body = build_body(self._proto, self._library)
            self._operations = self._body[0].get_operations()
        return self._body

    @property
    def graph(self) -> Graph:
        """The graph that the body is in."""
        return self._built()[0]

    @property
    def inputs(self) -> list[Tensor]:
        """The arguments, as tensors of the body."""
        return self._built()[1]

    @property
    def outputs(self) -> list[Tensor]:
        """The results."""
        return self._built()[2]

    @cached_property
    def operations(self) -> list[Operation]:
        """The body's operations, without the arguments."""
        self._built()
        found = needed(self.outputs) if self._operations is None else self._operations
        return [op for op in found if op.definition is not ARGUMENT]

    @property
    def targets(self) -> list[Operation]:
        """The operations that run even if no result needs them, because they have effects."""
        if self._operations is None:
            return []
        return [op for op in self.operations if op.definition.effect in _EFFECTS]

    # -- The op that calls it ----------------------------------------------------------------------

    @property
    def input_types(self) -> list[DType]:
        if self._body is None and self._proto is not None:
            return [as_dtype(a.type) for a in self._proto.signature.input_arg]
        return [t.dtype.base_dtype for t in self.inputs]

    @property
    def output_types(self) -> list[DType]:
        if self._body is None and self._proto is not None:
            return [as_dtype(a.type) for a in self._proto.signature.output_arg]
        return [t.dtype.base_dtype for t in self.outputs]

    @cached_property
    def definition(self) -> Definition:
        """The definition of the op that calls the function; its type is the function's name."""
        signature = self.to_proto().signature
        inputs = [Argument(a.name, dtype=as_dtype(a.type)) for a in signature.input_arg]
        outputs = [Argument(a.name, dtype=as_dtype(a.type)) for a in signature.output_arg]
        return Definition(
            schema=Schema.of(self.name, tuple(inputs), tuple(outputs), {}),
            infer=self._infer,
            kernel=self._kernel(),
            gradient=self._gradient,
            effect=self.effect,
            calls=lambda op: Called(CALL, {"callee": self}),
            doc=self.doc,
        )

    @property
    def effect(self) -> Effect:
        """The effect of calling it."""
        if self._body is None and self._proto is not None:
            return Effect.WRITES if self._proto.signature.is_stateful else Effect.PURE
        found = {op.definition.effect for op in self.operations} - {Effect.LOCAL}
        if found & set(_EFFECTS) or len(found - {Effect.PURE}) > 1:
            return Effect.WRITES
        return next(iter(found - {Effect.PURE}), Effect.PURE)

    def _infer(self, context: Any, *shapes: TensorShape) -> list[Any]:
        if self.shape is not None:
            found = self.shape(context.op.origin if context.settled else context.op)
            if len(found) != len(self.output_types):
                raise ValueError(
                    f"the shape function of '{self.name}' gave {len(found)} shapes for "
                    f"{len(self.output_types)} results"
                )
            return [TensorShape(s) for s in found]
        if self._body is None or not context.settled:
            return [None] * len(self.output_types)  # TensorFlow doesn't look into the body
        return [t._shape for t in self.outputs]

    def _kernel(self) -> Callable[..., Any]:
        count = len(self.output_types)

        def call(*args: Any, ctx: Any) -> Any:
            results = ctx.call(self, args)
            return results[0] if count == 1 else tuple(results)

        return call

    def _gradient(self, b: Any, op: Operation, *grads: Any) -> Any:
        if self.python_gradient is not None:
            return self.python_gradient(op, *grads)
        return b.function_gradients(self, op.inputs, op.outputs, grads)

    def to_proto(self) -> proto.FunctionDef:
        """The FunctionDef of a library."""
        if self._proto is None:
            from headrace._src.graph.function_def import function_def  # loads protobuf

            self._proto = function_def(self, self._output_names)
        return self._proto

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


_EFFECTS = (Effect.WRITES, Effect.BLOCKS)


def needed(outputs: Iterable[Tensor]) -> list[Operation]:
    """Return the operations that results need, in the order of their creation."""
    found: set[Operation] = set()
    stack = [t.op for t in outputs]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend(t.op for t in op._inputs)
            stack.extend(op._control_inputs)
    return sorted(found, key=lambda op: op._id)


_NAME = re.compile(r"[A-Za-z0-9_.\-/<>]+")  # tf.function calls that of a lambda "<lambda>"


def add_function(graph: Graph, function: GraphFunction) -> None:
    """Add a function and those that it calls to a graph's library; ValueError if the graph has
    another function of that name.
    """
    held = graph._functions.get(function.name)
    if held is function:
        return
    if held is not None and held.to_proto() != function.to_proto():
        raise ValueError(f"the graph has another function called '{function.name}'")
    if function.name in definitions():
        raise ValueError(
            f"Cannot add function '{function.name}' because an op with the same name exists."
        )
    if not _NAME.fullmatch(function.name):
        raise ValueError(f"'{function.name}' is not a valid function name")
    graph._functions.setdefault(function.name, function)
    if function._library is None:
        for other in list(function.graph._functions.values()):
            if other is not function:
                add_function(graph, other)


def function_named(graph: Graph, name: str) -> GraphFunction:
    """Return the function from a graph's library, or from an outer graph's; NotFoundError if there
    is none.
    """
    around: Graph | None = graph
    while around is not None:
        if name in around._functions:
            return around._functions[name]
        around = getattr(around, "outer", None)
    known = ", ".join(sorted(graph._functions)) or "none"
    raise NotFoundError(None, None, f"Function {name} is not defined (defined are: {known}).")
