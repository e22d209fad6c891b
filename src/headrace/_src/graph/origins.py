"""Stand-ins for the client's operations and tensors, in a process that does not have its graph.

A decoded step (graph.flow_def) has them where a pruned one has Operations and Tensors: they have
what messages, kernels and later passes ask of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace._src.core.dtypes import DType
from headrace._src.core.tensor_shape import TensorShape

if TYPE_CHECKING:
    from headrace._src.graph.definition import Definition
    from headrace._src.graph.graph import Graph

__all__ = ["HandleType", "Origin", "OriginTensor"]


@dataclass(frozen=True)
class HandleType:
    """The static dtype and shape of the variable behind a handle."""

    dtype: DType
    shape: TensorShape


class OriginTensor:
    """Stands for a tensor of the client. `_handle_data`: of the variable behind a handle."""

    __slots__ = ("_handle_data", "_shape", "dtype", "op", "value_index")

    def __init__(
        self,
        op: Origin,
        value_index: int,
        dtype: DType,
        shape: TensorShape,
        handle: HandleType | None = None,
    ) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype = dtype
        self._shape = shape
        self._handle_data = handle

    @property
    def shape(self) -> TensorShape:
        return self._shape

    @property
    def name(self) -> str:
        return f"{self.op.name}:{self.value_index}"

    def __repr__(self) -> str:
        return f"<OriginTensor {self.name}>"


class Origin:
    """Stands for an operation of the client.

    _inputs: those of the node that came from it, if it is of the same type. graph: has the
    functions that it may call, and the label of the function that it is in.
    definition: None where only a tensor of it is named, or it was a call that has been inlined.
    """

    __slots__ = ("_inputs", "_outputs", "definition", "graph", "name", "type")

    _control_inputs: tuple[Any, ...] = ()
    _device = device = ""
    _original_op = None
    traceback_frames: tuple[Any, ...] = ()

    def __init__(self, name: str, type: str, graph: Graph, definition: Definition | None) -> None:
        self.name = name
        self.type = type
        self.graph = graph
        self.definition = definition
        self._inputs: tuple[Any, ...] = ()
        self._outputs: tuple[OriginTensor, ...] = ()

    @property
    def outputs(self) -> list[OriginTensor]:
        return list(self._outputs)

    @property
    def _attrs(self) -> dict[str, Any]:
        return {}

    @property
    def node_def(self) -> Any:
        from headrace._src.core import proto  # loads protobuf

        return proto.NodeDef(name=self.name, op=self.type)

    def __repr__(self) -> str:
        return f"<Origin {self.type} {self.name}>"
