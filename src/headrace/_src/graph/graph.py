"""Graph: a program under construction. In: operations, one by one. Out: the operations by name, in
order, and as a GraphDef.

State: `_operations` in the order of creation and by name; the names in use; collections; versions;
the scopes open in each thread. A lock guards creation, so several threads may build one graph.

As in TensorFlow, a random operation without its own seed gets one from the number of earlier
operations: `_last_id`. So a program that seeds only the graph draws TensorFlow's numbers only if
every function adds as many operations here as in TensorFlow. A function that adds a different
number, mostly fewer (some gradients, loops of gradients), builds them within `counted_as(n)`, where
n is the number that TensorFlow 1.15 adds. So `_last_id` counts TensorFlow's operations, `version`
counts ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from headrace._src.core import source
from headrace._src.core.device_names import requested
from headrace._src.core.dtypes import DType, as_dtype
from headrace._src.core.export import export
from headrace._src.core.locks import RLock
from headrace._src.core.versions_and_text import GRAPH_DEF_VERSION, as_text
from headrace._src.graph import default
from headrace._src.graph.attributes import plain
from headrace._src.graph.contexts import ControlFlowContext, check_inputs
from headrace._src.graph.definition import Definition, lookup
from headrace._src.graph.fill_attributes import complete_attributes
from headrace._src.graph.inference import infer_shapes
from headrace._src.graph.operation import Operation, Tensor, made_at
from headrace._src.graph.scopes import ControlScope, DeviceScope, control_inputs_for, new_scopes

if TYPE_CHECKING:
    from headrace._src.core import proto

__all__ = ["Graph"]

_VALID_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")
_VALID_SCOPE = re.compile(r"[A-Za-z0-9_.\-/]*")


class Count:
    """How many operations a block counts as (see Graph.counted_as)."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


@export("Graph")
class Graph:
    """A dataflow graph: operations, and tensors that flow between them."""

    executes = False  # whether operations run as they are built (eager.eager_graph)
    tensor_type: type[Tensor] = Tensor
    seed: int | None = None

    def __init__(self) -> None:
        self._lock = RLock()
        self._operations: list[Operation] = []
        self._by_name: dict[str, Operation] = {}
        self._names_in_use: dict[str, int] = {}
        self._collections: dict[Any, list[Any]] = {}
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Any] = set()
        self._finalized = False
        self._finalized_at: Sequence[source.StackFrame] = ()
        self._contexts = False  # whether there has ever been a control-flow context
        self._functions: dict[str, Any] = {}
        self._gradient_functions: dict[str, Callable[..., Any]] = {}  # of tf.custom_gradient
        self._py_functions: dict[str, Callable[..., Any]] = {}
        self._py_place: str | None = None  # where the tokens of its Python functions lead
        self._ahead = 0  # how many more operations TensorFlow would have made by now
        self._borders = 0  # how many operations contexts have made at their boundaries, counted so
        self._settled: set[Any] = set()
        self.queue_runners_started = False
        self.mixed_precision = False  # whether contractions of its steps compute in bfloat16
        self.mutations = 0  # changes to operations that plans may already contain
        self.scope = new_scopes()
        self.producer = GRAPH_DEF_VERSION
        self.min_consumer = 0  # the oldest reader that understands the graph
        self.bad_consumers: frozenset[int] = frozenset()

    # -- Operations --------------------------------------------------------------------------------

    def add_operation(
        self,
        definition: Definition,
        inputs: Sequence[Tensor],
        attrs: dict[str, Any],
        name: str,
        control_inputs: Iterable[Operation] = (),
        device: str | None = None,
    ) -> Operation:
        """Append an operation whose `attrs` are canonical and complete; `name` is final and unused.

        The open scopes add their devices, control dependencies, colocation and attributes.
        """
        with self._lock:
            self._check_not_finalized()
            if name in self._by_name:
                first = made_at(self._by_name[name])
                raise ValueError(f"Duplicate node name in graph: '{name}'{first}")
            if not _VALID_NAME.fullmatch(name):
                raise ValueError(f"'{name}' is not a valid node name")
            for t in inputs:
                if t.op.graph is not self:
                    raise ValueError(
                        f"{t} must be from the same graph as operation '{name}'.{made_at(t.op)}"
                    )
            scope = self.scope
            context = scope.context
            if self._contexts:
                check_inputs(definition, name, inputs, context)
            controls = list(control_inputs)
            if scope.controls:
                implied = control_inputs_for(scope.controls, {t.op for t in inputs})
                controls += [c for c in implied if c not in controls]
            if scope.attrs:
                attrs = {**scope.attrs, **attrs}
            if scope.gradient_overrides and definition.op_type in scope.gradient_overrides:
                override = scope.gradient_overrides[definition.op_type]
                attrs = {**attrs, "_gradient_op_type": override}
            if scope.container and attrs.get("container") == "":
                attrs = {**attrs, "container": scope.container}
            op = Operation(
                self, definition, name, list(inputs), attrs, controls, len(self._operations)
            )
            infer_shapes(op)
            for t in inputs:
                t._consumers.append(op)
            self._operations.append(op)
            self._by_name[name] = op
            if context is not None:
                context.AddOp(op)
            for entry in scope.controls:
                entry.seen.add(op)
            if device is not None:
                op._device = device
            elif scope.devices:
                self._apply_devices(op)
            if scope.colocation:
                self._colocate(op)
            return op

    def create_op(
        self,
        op_type: str,
        inputs: Sequence[Tensor],
        dtypes: Any = None,
        input_types: Any = None,
        name: str | None = None,
        attrs: dict[str, Any] | None = None,
        op_def: Any = None,
        compute_shapes: bool = True,
        compute_device: bool = True,
    ) -> Operation:
        """Add an operation by type; attributes are Python values or AttrValues.

        The op's schema decides the types: `dtypes`, `input_types` and `op_def`, if given, must
        agree with it. Shapes are always computed: `compute_shapes` has no effect, as in TensorFlow.
        """
        definition = self.definition_of(op_type)
        if op_def is not None and op_def.name != op_type:
            raise ValueError(f"op_def is of {op_def.name}, not of {op_type}")
        if input_types is not None:
            found = [t.dtype for t in inputs]
            wanted = [as_dtype(t) for t in input_types]
            if len(found) != len(wanted) or not all(map(DType.is_compatible_with, wanted, found)):
                raise TypeError(f"inputs of '{op_type}' are {found}, not {wanted}")
        given = {k: plain(v, definition.schema.attributes.get(k)) for k, v in (attrs or {}).items()}
        full = complete_attributes(definition, list(inputs), given)
        types = definition.schema.output_types(full)
        if dtypes is not None and types != list(dtypes):
            raise TypeError(f"outputs of '{op_type}' are {types}, not {dtypes}")
        name = self.operation_name(op_type if name is None else name)
        return self.add_operation(
            definition, inputs, full, name, device=None if compute_device else ""
        )

    def definition_of(self, op_type: str) -> Definition:
        """The definition of an op, or of the op that calls a function of this graph."""
        function = self._functions.get(op_type)
        return lookup(op_type) if function is None else function.definition

    def _apply_devices(self, op: Operation) -> None:
        for entry in reversed(self.scope.devices):
            if entry.function is None:
                break
            op._device = requested(entry.function(op), entry.function)

    def _colocate(self, op: Operation) -> None:
        """Join the groups of the open colocation scopes; the outermost one's device wins."""
        groups = sorted({g.decode() for c in self.scope.colocation for g in c.colocation_groups()})
        op._attrs = {**op._attrs, "_class": tuple(groups)}
        op._device = next((c._device for c in self.scope.colocation if c._device), op._device)

    def _check_not_finalized(self) -> None:
        if self._finalized:
            raise RuntimeError(
                "Graph is finalized and cannot be modified."
                + source.here("modified at")
                + source.trail(self._finalized_at, "finalized at")
            )

    def _mutated(self) -> None:
        self.mutations += 1

    @property
    def version(self) -> int:
        """The number of operations made so far."""
        return len(self._operations)

    @property
    def _last_id(self) -> int:
        """The number of operations that TensorFlow would have made so far."""
        return len(self._operations) + self._ahead

    @contextmanager
    def counted_as(self, count: int = 0, borders: bool = True) -> Iterator[Count]:
        """Count the operations made inside as this many, the number that TensorFlow makes for the
        same purpose. The number may still be changed inside; an outer block overrides inner ones.

        Operations that contexts make at their boundaries to bring values in are added, unless
        `borders` is False.
        """
        start, before = self._last_id, self._borders
        found = Count(count)
        try:
            yield found
        finally:
            if not borders:
                self._borders = before
            end = start + found.count + self._borders - before
            self._ahead = end - len(self._operations)

    @contextmanager
    def counted_at_border(self, count: int) -> Iterator[None]:
        """Count the operations made inside, with which a context brings a value in, as this
        many.
        """
        with self.counted_as(count, borders=False):
            yield
        self._borders += count

    def settles(self, question: Any) -> bool:
        """Return whether a query of static shapes is new to this graph. TensorFlow adds operations
        to answer some queries, and caches the answers.
        """
        with self._lock:
            new = question not in self._settled
            self._settled.add(question)
            return new

    def operation_seed(self) -> int:
        """Return the seed of a new random operation without its own seed, if the graph has one."""
        return self._last_id

    @property
    def finalized(self) -> bool:
        return self._finalized

    def finalize(self) -> None:
        """Forbid further operations: later runs can't add to the graph."""
        self._finalized = True
        self._finalized_at = source.capture()

    def _unsafe_unfinalize(self) -> None:
        self._finalized = False

    @property
    def building_function(self) -> bool:
        return False

    @property
    def graph_def_versions(self) -> proto.VersionDef:
        from headrace._src.core import proto  # loads protobuf

        return proto.VersionDef(
            producer=self.producer,
            min_consumer=self.min_consumer,
            bad_consumers=sorted(self.bad_consumers),
        )

    def as_graph_def(
        self, from_version: int | None = None, add_shapes: bool = False
    ) -> proto.GraphDef:
        """Return the graph (or its operations from `from_version` on) as a GraphDef."""
        from headrace._src.graph.graph_def import graph_def  # loads protobuf

        return graph_def(self, from_version=from_version or 0, add_shapes=add_shapes)

    # -- Finding things ----------------------------------------------------------------------------

    def get_operations(self) -> list[Operation]:
        with self._lock:
            return list(self._operations)

    def get_operation_by_name(self, name: str) -> Operation:
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)

    def get_tensor_by_name(self, name: str) -> Tensor:
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=True, allow_operation=False)

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Any:
        """Return the tensor or operation of this graph that `obj` is, names or represents."""
        if not (allow_tensor or allow_operation):
            raise ValueError("allow_tensor and allow_operation can't both be False.")
        what = " or ".join(["Tensor"] * allow_tensor + ["Operation"] * allow_operation)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            obj = convert()
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._find(obj, allow_tensor, allow_operation)
        if (isinstance(obj, Tensor) and allow_tensor) or (
            isinstance(obj, Operation) and allow_operation
        ):
            if obj.graph is not self:
                op = obj.op if isinstance(obj, Tensor) else obj
                name = f"Operation '{obj.name}'" if op is obj else f"Tensor {obj}"
                raise ValueError(f"{name} is not an element of this graph.{made_at(op)}")
            return obj
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {what}.")

    def _find(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        op_name, colon, index = name.partition(":")
        op = self._by_name.get(op_name)
        if not colon:
            if not allow_operation:
                kind = "refers to an" if op is not None else "looks like an (invalid)"
                hint = f' Did you mean "{name}:0"?' if op is not None and op._outputs else ""
                raise ValueError(
                    f"The name '{name}' {kind} Operation{'' if op is not None else ' name'}, not a "
                    f'Tensor. Tensor names must be of the form "<op_name>:<output_index>".{hint}'
                )
            if op is None:
                raise KeyError(
                    f"The name '{name}' refers to an Operation not in the "
                    f"graph.{self._nearest(name)}"
                )
            return op
        if not allow_tensor:
            raise ValueError(f"Name '{name}' appears to refer to a Tensor, not a Operation.")
        if not index.isdigit():
            raise ValueError(
                f"The name '{name}' looks a like a Tensor name, but is not a valid one. Tensor "
                "names "
                'must be of the form "<op_name>:<output_index>".'
            )
        if op is None:
            raise KeyError(
                f"The name '{name}' refers to a Tensor which does not exist. The operation, "
                f"'{op_name}', does not exist in the graph.{self._nearest(op_name)}"
            )
        if int(index) >= len(op._outputs):
            raise KeyError(
                f"The name '{name}' refers to a Tensor which does not exist. The operation, "
                f"'{op_name}', exists but only has {len(op._outputs)} outputs."
            )
        return op._outputs[int(index)]

    def _nearest(self, name: str) -> str:
        import difflib  # for the message alone

        close = difflib.get_close_matches(name, list(self._by_name), n=3)
        return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""

    # -- Names -------------------------------------------------------------------------------------

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """Return `name` under the current scope, with a suffix if it's taken; letter case doesn't
        distinguish names.
        """
        name = as_text(name)
        prefix = self.scope.name
        name = f"{prefix}/{name}" if prefix else name
        with self._lock:
            key = name.lower()
            count = self._names_in_use.get(key, 0)
            if mark_as_used:
                self._names_in_use[key] = count + 1
            if not count:
                return name
            base = key
            while key in self._names_in_use:
                key = f"{base}_{count}"
                count += 1
            if mark_as_used:
                self._names_in_use[base] = count
                self._names_in_use[key] = 1
            return f"{name}_{count - 1}"

    def operation_name(self, name: str) -> str:
        """Return the full name of a new operation; a name with a trailing slash is used
        unchanged.
        """
        if not name:
            raise ValueError("'' is not a valid node name")
        name = as_text(name)
        return name[:-1] if name.endswith("/") else self.unique_name(name)

    def claim_name(self, name: str) -> None:
        """Register `name` unchanged (an imported node's); its scopes can still be entered."""
        self._names_in_use.setdefault(name.lower(), 1)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefix the names of operations made inside; yields the prefix with a trailing slash.

        A name that ends with a slash re-enters exactly that scope; None or "" returns to the root.
        """
        scope = self.scope
        if name:
            if not isinstance(name, str | bytes):
                raise TypeError(f"scope: expected string or bytes-like object, got {name!r}")
            name = as_text(name)
            valid = _VALID_SCOPE if scope.name else _VALID_NAME
            if not valid.fullmatch(name):
                raise ValueError(f"'{name}' is not a valid scope name")
        old = scope.name
        new = "" if not name else name[:-1] if name.endswith("/") else self.unique_name(name)
        scope.name = new
        try:
            yield f"{new}/" if new else ""
        finally:
            scope.name = old

    def get_name_scope(self) -> str:
        return self.scope.name

    # -- Scopes ------------------------------------------------------------------------------------

    def as_default(self) -> AbstractContextManager[Graph]:
        """Make this the graph that new operations join, within a with-block."""
        return default.push_graph(self)

    def switch_to_thread_local(self) -> None:
        """Make threads that use the graph for the first time start with this thread's devices,
        control dependencies and colocation.

        Every thread has its own scopes, even before this call: in TensorFlow, threads share these
        three until the call, and interfere with each other.
        """
        self.scope.begin_here()

    @contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Request a device for the operations made inside: a string, a function of the operation,
        or None.
        """
        entry = DeviceScope(device_name_or_function)
        devices = self.scope.devices
        devices.append(entry)
        try:
            yield
        finally:
            if not devices or devices.pop() is not entry:
                raise RuntimeError("Exited device scope without properly entering it.")

    @contextmanager
    def control_dependencies(self, control_inputs: Sequence[Any] | None) -> Iterator[None]:
        """Make the operations inside wait for `control_inputs`; None clears the outer blocks'
        control inputs, and leaves the branches and loops being built.
        """
        inner: list[ControlScope] = []
        if control_inputs is not None:
            outer = self.scope.controls
            known = {op for entry in outer for op in entry.inputs}
            sources = dict.fromkeys(self._operation_of(c) for c in control_inputs)
            inner = [*outer, ControlScope([op for op in sources if op not in known])]
        context = None if control_inputs is None else self.scope.context
        with self._swap("controls", inner), self._swap("context", context):
            yield

    def _get_control_flow_context(self) -> ControlFlowContext | None:
        """The branch or loop that this thread is building."""
        return self.scope.context

    def _set_control_flow_context(self, context: ControlFlowContext | None) -> None:
        self._contexts |= context is not None
        self.scope.context = context

    def _operation_of(self, item: Any) -> Operation:
        """Return the operation that a control dependency on `item`, or colocation with it, refers
        to.
        """
        if not isinstance(item, Operation | Tensor | str):
            item = getattr(item, "op", item)  # a composite or a variable
        element = self.as_graph_element(item)
        return element.op if isinstance(element, Tensor) else element

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Colocate the operations made inside with `op`, on any device."""
        if op is None and not ignore_existing:
            raise ValueError(
                "Trying to reset colocation (op is None) but ignore_existing is not True"
            )
        added = [] if op is None else [self._operation_of(op)]
        kept = [] if ignore_existing else self.scope.colocation
        with self._swap("colocation", [*kept, *added]), self._swap("devices", []):
            yield

    @contextmanager
    def _attr_scope(self, attr_map: dict[str, Any]) -> Iterator[None]:
        """Give every operation made inside these attributes; a value of None removes one."""
        merged = {**self.scope.attrs}
        for name, value in attr_map.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = plain(value, None)
        with self._swap("attrs", merged):
            yield

    @contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Differentiate ops made inside by the gradient registered under another name."""
        if not isinstance(op_type_map, dict) or not all(
            isinstance(s, str) for pair in op_type_map.items() for s in pair
        ):
            raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        with self._swap("gradient_overrides", {**self.scope.gradient_overrides, **op_type_map}):
            yield

    @contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Keep the state of the stateful operations made inside in a named container."""
        with self._swap("container", container_name):
            yield container_name

    @property
    def _container(self) -> str:
        return self.scope.container

    @contextmanager
    def _swap(self, field: str, value: Any) -> Iterator[None]:
        outer = getattr(self.scope, field)
        setattr(self.scope, field, value)
        try:
            yield
        finally:
            setattr(self.scope, field, outer)

    # -- Collections -------------------------------------------------------------------------------

    def add_to_collection(self, name: Any, value: Any) -> None:
        self._check_not_finalized()
        with self._lock:
            self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        for name in {names: None} if isinstance(names, str) else dict.fromkeys(names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Return the collection itself, so that changes to the list change the graph."""
        with self._lock:
            return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Return a copy of a collection; with `scope`, only items whose name matches it from the
        start.
        """
        items = list(self._collections.get(name, ()))
        if scope is None:
            return items
        matches = re.compile(scope).match
        return [i for i in items if hasattr(i, "name") and matches(i.name)]

    def get_all_collection_keys(self) -> list[Any]:
        with self._lock:
            return [k for k in self._collections if isinstance(k, str)]

    def clear_collection(self, name: Any) -> None:
        self._check_not_finalized()
        self._collections.pop(name, None)

    @property
    def collections(self) -> list[Any]:
        return list(self._collections)

    # -- Feeding and fetching ----------------------------------------------------------------------

    def prevent_feeding(self, tensor: Tensor) -> None:
        self._unfeedable.add(tensor)

    def is_feedable(self, tensor: Tensor) -> bool:
        return tensor not in self._unfeedable

    def prevent_fetching(self, op: Any) -> None:
        self._unfetchable.add(op)

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        op = tensor_or_op.op if isinstance(tensor_or_op, Tensor) else tensor_or_op
        return op not in self._unfetchable and tensor_or_op not in self._unfetchable

    def __repr__(self) -> str:
        return f"<Graph of {len(self._operations)} operations>"

    def _repr_html_(self) -> str:
        from headrace._src.graph.graph_html import graph_html  # loaded by notebooks only

        return graph_html(self)
