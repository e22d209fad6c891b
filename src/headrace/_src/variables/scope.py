"""Variable scopes: names, defaults and sharing for tf.get_variable.

State: the current VariableScope, one per graph and thread, in the graph's ScopeState. A scope's
settings are inherited by the scopes opened inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export, export_value
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.scopes import ScopeState
from headrace._src.ops.base.to_tensor import convert_to_tensor, graph_of, name_scope
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.store import ReuseMode, VariableStore, default_variable_store

__all__ = ["VariableScope", "get_variable_scope", "variable_scope"]

export_value("headrace._src.variables.store", "AUTO_REUSE", "AUTO_REUSE")


@export("no_regularizer")
def no_regularizer(_: Any) -> None:
    """A regularizer that overrides an outer scope's."""
    return None


@export("VariableScope")
class VariableScope:
    """The defaults of tf.get_variable: name prefix, reuse, initializer and so on."""

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self._name = name
        self._reuse = reuse
        self._initializer = initializer
        self._regularizer = regularizer
        self._caching_device = caching_device
        self._partitioner = partitioner
        self._custom_getter = custom_getter
        self._name_scope = name_scope
        self._dtype = dtype
        self._use_resource = use_resource
        self._constraint = constraint

    @property
    def name(self) -> str:
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The name scope that was opened with this scope, as a prefix."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        return self._reuse

    @property
    def initializer(self) -> Any:
        return self._initializer

    @property
    def dtype(self) -> Any:
        return self._dtype

    @property
    def use_resource(self) -> bool | None:
        return self._use_resource

    @property
    def regularizer(self) -> Any:
        return self._regularizer

    @property
    def caching_device(self) -> Any:
        return self._caching_device

    @property
    def partitioner(self) -> Any:
        return self._partitioner

    @property
    def custom_getter(self) -> Any:
        return self._custom_getter

    @property
    def constraint(self) -> Any:
        return self._constraint

    def reuse_variables(self) -> None:
        """Reuse variables from now on; none is created."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Set the default initializer of variables."""
        self._initializer = initializer

    def set_dtype(self, dtype: Any) -> None:
        """Set the default dtype of variables."""
        self._dtype = dtype

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Set whether variables are resource variables."""
        self._use_resource = use_resource

    def set_regularizer(self, regularizer: Any) -> None:
        """Set the default regularizer of variables."""
        self._regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Set where values of variables are cached."""
        self._caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Set the default partitioner of variables."""
        self._partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Set the function through which get_variable creates variables."""
        self._custom_getter = custom_getter

    def get_collection(self, name: str) -> list[Any]:
        """Return the items of a graph collection that lie in this scope."""
        return get_default_graph().get_collection(name, f"{self._name}/" if self._name else "")

    def trainable_variables(self) -> list[Any]:
        """Return the trainable variables in this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        """Return the global variables in this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """Return the local variables in this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        var_store: VariableStore,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Any = None,
        constraint: Any = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
    ) -> Any:
        """Return the variable `name` of this scope from `var_store`, with the scope's settings."""
        # Only variable scopes determine a variable's name: name scopes don't matter.
        with name_scope(None):
            given = initializer is not None and not callable(initializer)
            if dtype is not None and given:
                found = convert_to_tensor(initializer).dtype.base_dtype
                if found is not as_dtype(dtype).base_dtype:
                    raise ValueError(
                        f"Initializer type '{found}' and explicit dtype '{as_dtype(dtype)}' don't "
                        "match."
                    )
            initializer = self._initializer if initializer is None else initializer
            return var_store.get_variable(
                # "scope/" for an empty name: the variable has the scope's own name.
                f"{self._name}/{name}" if self._name else name,
                shape=shape,
                dtype=self._dtype if dtype is None else dtype,
                initializer=initializer,
                regularizer=self._regularizer if regularizer is None else regularizer,
                reuse=self._reuse if reuse is None else reuse,
                trainable=trainable,
                collections=collections,
                caching_device=self._caching_device if caching_device is None else caching_device,
                partitioner=self._partitioner if partitioner is None else partitioner,
                validate_shape=validate_shape,
                use_resource=self._use_resource if use_resource is None else use_resource,
                custom_getter=self._custom_getter if custom_getter is None else custom_getter,
                constraint=self._constraint if constraint is None else constraint,
                synchronization=synchronization,
                aggregation=aggregation,
            )


@export("get_variable_scope")
def get_variable_scope() -> VariableScope:
    """Return the current variable scope."""
    state = get_default_graph().scope
    if state.variable_scope is None:
        state.variable_scope = VariableScope(False)
    return state.variable_scope


# -- Opening scopes --------------------------------------------------------------------------------


@export("variable_scope")
class variable_scope:
    """Opens a variable scope, and a name scope of the same name.

    name_or_scope is a name inside the current scope, or a VariableScope to open again, from
    anywhere. If it's None, `default_name` is made unique. `reuse` is True (variables must exist),
    AUTO_REUSE (they may), or None (as the outer scope says). `values` are tensors whose graph is
    used. `auxiliary_name_scope=False` opens no name scope.
    """

    def __init__(
        self,
        name_or_scope: str | VariableScope | None,
        default_name: str | None = None,
        values: Iterable[Any] | None = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if default_name is None and name_or_scope is None:
            raise TypeError("If default_name is None then name_or_scope is required")
        if name_or_scope is not None and not isinstance(name_or_scope, str | VariableScope):
            raise TypeError("VariableScope: name_or_scope must be a string or VariableScope.")
        if not (reuse is None or isinstance(reuse, bool | ReuseMode)):
            raise ValueError("The reuse parameter must be True or False or None.")
        if name_or_scope is None and reuse:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(
                "The auxiliary_name_scope must be `True` or `False`, while get "
                f"{auxiliary_name_scope}"
            )
        self._name_or_scope = name_or_scope
        self._default_name = default_name
        self._values = [] if values is None else list(values)
        self._reuse = reuse or None  # False can't undo an outer True
        self._settings = {
            "initializer": initializer,
            "regularizer": regularizer,
            "caching_device": caching_device,
            "partitioner": partitioner,
            "custom_getter": custom_getter,
            "dtype": dtype,
            "use_resource": use_resource,
            "constraint": constraint,
        }
        self._with_name_scope = auxiliary_name_scope
        # For each opening: the scope, the state that holds the current scope, and the scopes to
        # close.
        self._open: list[tuple[VariableScope, ScopeState, ExitStack]] = []

    def __enter__(self) -> VariableScope:
        with ExitStack() as stack:
            graph = graph_of(self._values)
            if graph is not None:
                stack.enter_context(graph.as_default())
            scope = stack.enter_context(self._opened())
            self._open.append((scope, get_default_graph().scope, stack.pop_all()))
        return scope

    def __exit__(self, *details: Any) -> None:
        scope, state, stack = self._open[-1]
        if state.variable_scope is not scope:
            raise RuntimeError("Improper nesting of variable_scope.")
        self._open.pop()
        stack.__exit__(*details)

    def _opened(self) -> AbstractContextManager[VariableScope]:
        target = self._name_or_scope
        if target is None:
            return self._open_default()
        return self._open_named(target)

    @contextmanager
    def _open_default(self) -> Iterator[VariableScope]:
        default_name = self._default_name or ""
        with ExitStack() as stack:
            prefix = _current_prefix()
            if self._with_name_scope:
                prefix = stack.enter_context(name_scope(default_name))
            unique = _unique_scope_name(default_name)
            yield stack.enter_context(_pure_scope(unique, prefix, self._reuse, self._settings))

    @contextmanager
    def _open_named(self, target: str | VariableScope) -> Iterator[VariableScope]:
        own = target if isinstance(target, str) else target.name.split("/")[-1]
        with ExitStack() as stack:
            prefix = "" if self._with_name_scope else _current_prefix()
            if own and self._with_name_scope:
                prefix = stack.enter_context(name_scope(own))
            if isinstance(target, VariableScope):
                prefix = target.original_name_scope
            yield stack.enter_context(_pure_scope(target, prefix, self._reuse, self._settings))


def _current_prefix() -> str:
    """Return the current name scope, as a prefix of names."""
    name = get_default_graph().get_name_scope()
    return f"{name}/" if name else ""


def _unique_scope_name(name: str) -> str:
    """Return `name`, or `name_1` and so on if the current scope already has a scope of that
    name.
    """
    counts = default_variable_store().scope_counts
    outer = get_variable_scope().name
    full = f"{outer}/{name}" if outer else name
    if not counts.get(full):
        return name
    i = 1
    while counts.get(f"{full}_{i}"):
        i += 1
    return f"{name}_{i}"


@contextmanager
def _pure_scope(
    target: str | VariableScope, prefix: str, reuse: Any, settings: dict[str, Any]
) -> Iterator[VariableScope]:
    """Open a variable scope without a name scope."""
    state = get_default_graph().scope
    store = default_variable_store()
    outer = get_variable_scope()
    again = isinstance(target, VariableScope)
    base = target if isinstance(target, VariableScope) else outer
    if again:
        name = target.name
    else:
        name = f"{outer.name}/{target}" if outer.name else str(target)
    scope = _derived(base, name, prefix, reuse if reuse else base.reuse, settings)
    store.open_scope(name)
    counts = dict(store.scope_counts)
    state.variable_scope = scope
    try:
        yield scope
    finally:
        store.close_subscopes(name)
        if again:
            store.scope_counts = counts
        state.variable_scope = outer


def _derived(
    base: VariableScope, name: str, prefix: str, reuse: Any, settings: dict[str, Any]
) -> VariableScope:
    """Return a scope with the settings of `base`, except where others are given."""
    merged = {
        key: getattr(base, key) if value is None else value for key, value in settings.items()
    }
    own_getter = settings["custom_getter"]
    if own_getter is not None and base.custom_getter is not None:
        merged["custom_getter"] = _chained(own_getter, base.custom_getter)
    return VariableScope(reuse, name, name_scope=prefix, **merged)


def _chained(inner: Callable[..., Any], outer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a custom getter that calls `inner`, whose getter is `outer`."""

    def custom_getter(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return inner(partial(outer, getter), *args, **kwargs)

    return custom_getter


@export("variable_op_scope")
@contextmanager
def variable_op_scope(
    values: Iterable[Any],
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
) -> Iterator[VariableScope]:
    """Open a variable scope: `variable_scope` with the arguments in their old order."""
    with variable_scope(
        name_or_scope,
        default_name,
        values,
        initializer,
        regularizer,
        caching_device,
        partitioner,
        custom_getter,
        reuse,
        dtype,
        use_resource,
        constraint,
    ) as scope:
        yield scope
