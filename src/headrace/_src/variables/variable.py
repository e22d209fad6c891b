"""Variable: a tensor that keeps its value between steps; the base of all kinds of variables.

`tf.Variable(...)` calls the open creator scopes, then makes a RefVariable or a ResourceVariable. A
variable behaves as the tensor of its value in every operator and wherever a tensor is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace._src.core.dtypes import DType
from headrace._src.core.export import export
from headrace._src.core.identity import Reference
from headrace._src.core.tensor_shape import TensorShape, as_shape
from headrace._src.graph import default
from headrace._src.graph.composite import IndexedSlices
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.graph import Graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Operators, Tensor, made_at
from headrace._src.ops.array.slicing import slice_tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, register_tensor_conversion_function
from headrace._src.variables.options import (
    VariableAggregation,
    VariableSynchronization,
    replication,
    resource_variables_enabled,
)
from headrace._src.variables.slice_info import SaveSliceInfo

__all__ = ["Variable", "variable_creator_scope"]


class _Creating(type):
    """Makes `Variable(...)` call the creator scopes; subclasses are constructed directly."""

    if not TYPE_CHECKING:  # type checkers use the signature of Variable.__init__

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is Variable:
                return _create(*args, **kwargs)
            return super().__call__(*args, **kwargs)


def _create(
    initial_value: Any = None,
    trainable: bool | None = None,
    collections: Any = None,
    validate_shape: bool = True,
    caching_device: Any = None,
    name: str | None = None,
    variable_def: Any = None,
    dtype: Any = None,
    expected_shape: Any = None,
    import_scope: str | None = None,
    constraint: Callable[..., Any] | None = None,
    use_resource: bool | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation = VariableAggregation.NONE,
    shape: Any = None,
) -> Variable:
    settings = dict(locals())
    create: Callable[..., Variable] = _default_creator
    for creator in get_default_graph().scope.variable_creators:
        create = partial(creator, create)
    return create(**settings)


def _default_creator(**settings: Any) -> Variable:
    graph = get_default_graph()
    use_resource = settings.pop("use_resource")
    if graph.executes:
        use_resource = True  # a reference is read only once, when the variable is made
    if use_resource is None:
        scope = graph.scope.variable_scope
        use_resource = None if scope is None else scope.use_resource
    if use_resource is None:
        use_resource = resource_variables_enabled()
    kind = Variable._kinds["resource" if use_resource else "ref"]
    return kind(**settings)


@export("variable_creator_scope")
@contextmanager
def variable_creator_scope(variable_creator: Callable[..., Any]) -> Iterator[None]:
    """Let `variable_creator(next_creator, **kwargs)` make the variables; inner ones run first."""
    scope = get_default_graph().scope
    outer = scope.variable_creators
    scope.variable_creators = (*outer, variable_creator)
    try:
        yield
    finally:
        scope.variable_creators = outer


@export("Variable")
class Variable(Operators, metaclass=_Creating):
    """State that steps read and write, with an initial value, a dtype and a shape.

    initial_value  a tensor, a value convertible to one, or a function that returns one
    trainable      whether optimizers change it by default: puts it in TRAINABLE_VARIABLES
    collections    graph collections to join, GLOBAL_VARIABLES by default
    validate_shape whether the shape must be known and never change caching_device the device for a
    cached copy of the value
    constraint     a function from an updated value to the value to keep, for optimizers
    use_resource   whether to make a resource variable
    shape          the static shape, if less specific than the initial value's
    """

    SaveSliceInfo = SaveSliceInfo
    __array_priority__ = 100  # NumPy must ask us first in `array + variable`.

    # The classes that `Variable(...)` makes; each registers itself.
    _kinds: ClassVar[dict[str, type[Variable]]] = {}

    _initial_value: Any
    _initializer_op: Any
    _save_slice_info: SaveSliceInfo | None = None
    _constraint: Callable[..., Any] | None
    _trainable: bool
    _synchronization: VariableSynchronization
    _aggregation: VariableAggregation

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Callable[..., Any] | None = None,
        use_resource: bool | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        shape: Any = None,
    ) -> None:
        raise NotImplementedError  # `Variable(...)` makes a variable of a subclass

    # Methods that both kinds define.

    def assign(
        self,
        value: Any,
        use_locking: Any = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Tensor:
        raise NotImplementedError

    def assign_add(
        self,
        delta: Any,
        use_locking: Any = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Tensor:
        raise NotImplementedError

    def assign_sub(
        self,
        delta: Any,
        use_locking: Any = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Tensor:
        raise NotImplementedError

    def count_up_to(self, limit: int) -> Tensor:
        raise NotImplementedError

    def set_shape(self, shape: Any) -> None:
        raise NotImplementedError

    # Only a resource variable reads parts of itself.

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        raise AttributeError(f"{type(self).__name__} has no sparse_read: use tf.gather")

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        raise AttributeError(f"{type(self).__name__} has no gather_nd: use tf.gather_nd")

    def _take_settings(
        self,
        initial_value: Any,
        collections: Any,
        constraint: Callable[..., Any] | None,
        trainable: bool | None,
        synchronization: VariableSynchronization | None,
        aggregation: VariableAggregation | None,
    ) -> list[Any]:
        """Check and store the common arguments; return the collections to join."""
        modes = replication(synchronization, aggregation, trainable)
        self._synchronization, self._aggregation, self._trainable = modes
        self._constraint = constraint
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
        if not isinstance(collections, list | tuple | set):
            raise ValueError(
                "collections argument to Variable constructor must be a list, tuple, or set. Got "
                f"{collections} of type {type(collections)}"
            )
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in collections:
            return [*collections, GraphKeys.TRAINABLE_VARIABLES]
        return list(collections)

    # -- Properties --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def op(self) -> Operation:
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    @property
    def shape(self) -> TensorShape:
        raise NotImplementedError

    def get_shape(self) -> TensorShape:
        """Return the static shape."""
        return self.shape

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def initializer(self) -> Operation:
        """The operation that gives the variable its initial value."""
        return self._initializer_op

    @property
    def initial_value(self) -> Tensor:
        """The tensor that the initializer assigns."""
        return self._initial_value

    @property
    def constraint(self) -> Callable[..., Any] | None:
        return self._constraint

    @property
    def trainable(self) -> bool:
        return self._trainable

    @property
    def synchronization(self) -> VariableSynchronization:
        return self._synchronization

    @property
    def aggregation(self) -> VariableAggregation:
        return self._aggregation

    @property
    def _shared_name(self) -> str:
        return self.op.name

    def _set_save_slice_info(self, save_slice_info: SaveSliceInfo) -> None:
        """Set the part of a partitioned variable that this is."""
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> SaveSliceInfo | None:
        return self._save_slice_info

    def _as_graph_element(self) -> Tensor:
        """The tensor that a session fetches (or feeds) for this variable."""
        raise NotImplementedError

    def _gradient_source(self) -> Tensor:
        """The tensor with respect to which gradients of this variable are taken."""
        raise NotImplementedError

    # -- Its value ---------------------------------------------------------------------------------

    def value(self) -> Tensor:
        """Return the value as a tensor, which may be read once for the whole step."""
        raise NotImplementedError

    def read_value(self) -> Tensor:
        """Return a tensor that reads the value when it runs, under the current control
        dependencies.
        """
        raise NotImplementedError

    def initialized_value(self) -> Tensor:
        """Return a value for initialising other variables: this variable's value, or its initial
        value if it has none yet.
        """
        with self.graph.control_dependencies(None):
            has_value = b.is_variable_initialized(self)
            return b.cond(has_value, self.read_value, lambda: self.initial_value)

    def experimental_ref(self) -> Any:
        """Return a key for this very variable."""
        return Reference(self)

    def eval(self, session: Any = None) -> Any:
        """Return the value in `session`, or in the default session."""
        return self._as_graph_element().eval(session=session)

    def load(self, value: Any, session: Any = None) -> None:
        """Assign a value in `session`, without adding to the graph."""
        session = session or default.default_session()
        if session is None:
            raise ValueError(
                "Either session argument should be provided or default session should be "
                "established"
            )
        session.run(self.initializer, {self.initializer.inputs[1]: value})

    # -- Changing parts of it ----------------------------------------------------------------------

    def _scatter(self, change: Any, delta: Any, use_locking: bool, name: str | None) -> Any:
        if not isinstance(delta, IndexedSlices):
            raise TypeError(f"sparse_delta is not IndexedSlices: {delta}")
        return change(self, delta.indices, delta.values, use_locking, name)

    def scatter_add(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Add IndexedSlices to the variable."""
        return self._scatter(b.scatter_add, sparse_delta, use_locking, name)

    def scatter_sub(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Subtract IndexedSlices from the variable."""
        return self._scatter(b.scatter_sub, sparse_delta, use_locking, name)

    def scatter_mul(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Multiply rows of the variable by IndexedSlices."""
        return self._scatter(b.scatter_mul, sparse_delta, use_locking, name)

    def scatter_div(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Divide rows of the variable by IndexedSlices."""
        return self._scatter(b.scatter_div, sparse_delta, use_locking, name)

    def scatter_min(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Keep the smaller of rows of the variable and IndexedSlices."""
        return self._scatter(b.scatter_min, sparse_delta, use_locking, name)

    def scatter_max(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Keep the larger of rows of the variable and IndexedSlices."""
        return self._scatter(b.scatter_max, sparse_delta, use_locking, name)

    def scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows of the variable by IndexedSlices."""
        return self._scatter(b.scatter_update, sparse_delta, use_locking, name)

    def batch_scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Any:
        """Replace rows of each batch of the variable by IndexedSlices."""
        return self._scatter(b.batch_scatter_update, sparse_delta, use_locking, name)

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Add to the slices of the variable at the coordinates `indices`."""
        return b.scatter_nd_add(self, indices, updates, True, name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Subtract from the slices of the variable at the coordinates `indices`."""
        return b.scatter_nd_sub(self, indices, updates, True, name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Replace the slices of the variable at the coordinates `indices`."""
        return b.scatter_nd_update(self, indices, updates, True, name)

    # -- As a tensor -------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Tensor:
        """Return a slice of the value; `v[1:].assign(x)` changes that part of the variable."""
        return slice_tensor(self.value(), key, var=self)

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: str, **masks: int
    ) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise TypeError("'Variable' object is not iterable.")

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def _repr_html_(self) -> str:
        from headrace._src.variables.variable_html import variable_html  # for notebooks only

        return variable_html(self)

    # -- Files -------------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """Return a VariableDef, or None if the variable lies outside `export_scope`."""
        raise NotImplementedError

    @staticmethod
    def from_proto(variable_def: Any, import_scope: str | None = None) -> Variable:
        """Return the variable of the default graph that a VariableDef describes."""
        kind = Variable._kinds["resource" if variable_def.is_resource else "ref"]
        return kind(variable_def=variable_def, import_scope=import_scope)


# -- Behaving as the value -------------------------------------------------------------------------

_OPERATORS = (
    *("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor"),
)
_COMPARISONS = ("lt", "le", "gt", "ge", "neg", "invert", "abs")


def _operator(name: str) -> Callable[..., Any]:
    def method(self: Variable, *others: Any) -> Any:
        return getattr(Tensor, name)(self.value(), *others)

    method.__name__ = name
    method.__qualname__ = f"Variable.{name}"
    return method


for _name in (*_OPERATORS, *(f"r{_n}" for _n in _OPERATORS), *_COMPARISONS):
    setattr(Variable, f"__{_name}__", _operator(f"__{_name}__"))


def _convert(
    value: Variable, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
    if dtype is not None and not dtype.base_dtype.is_compatible_with(value.dtype):
        raise ValueError(
            f"Incompatible type conversion requested to type {dtype.name!r} for variable of type "
            f"{value.dtype.name!r}"
        )
    return value._gradient_source() if as_ref else value.value()


register_tensor_conversion_function(Variable, _convert)


# -- For the kinds of variables --------------------------------------------------------------------


def check_expected_shape(initial_value: Tensor, expected_shape: Any) -> None:
    """Honour the old argument `expected_shape`, which the initial value's shape must match."""
    if expected_shape is not None and not initial_value.shape.is_compatible_with(
        as_shape(expected_shape)
    ):
        raise ValueError(
            f"the initial value has shape {initial_value.shape}, not the expected {expected_shape}"
        )


def initial_tensor(initial_value: Any, dtype: Any) -> Tensor:
    """Return the initial value as a tensor, made in the current scopes."""
    if callable(initial_value):
        initial_value = initial_value()
    tensor = convert_to_tensor(initial_value, dtype, name="initial_value")
    if tensor.op._control_flow_context is not None:
        raise ValueError(
            f"The initial value {tensor.name} of a variable is from inside a control-flow "
            "construct, such as a loop or conditional. When creating a variable inside a loop or "
            f"conditional, use a lambda as the initializer.{made_at(tensor.op)}"
        )
    return tensor
