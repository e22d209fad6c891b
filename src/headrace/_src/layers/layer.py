"""Layer: a function of tensors that owns its variables, which the first call creates.

A layer's variables are those of a variable scope: `scope=` of the first call, or the layer's base
name, made unique (`dense`, `dense_1`). Later calls open that scope again with reuse, so that they
share the variables, and add their operations to the same name scope. A subclass defines `build`,
which makes the variables with add_weight, and `call`. `keras_style` says what differs in Keras's
style.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from headrace._src.core import nest
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.graph.default import default_session, get_default_graph
from headrace._src.graph.keys import GraphKeys
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.layers.initializer_names import get_initializer
from headrace._src.layers.input_spec import check_inputs
from headrace._src.layers.keras_style import keras_variable, refuse_scope, style_is_on
from headrace._src.layers.layer_interface import LayerInterface
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, graph_of, name_scope
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.options import VariableAggregation, VariableSynchronization
from headrace._src.variables.partition import PartitionedVariable
from headrace._src.variables.scope import VariableScope, variable_scope

__all__ = ["Layer"]

_NAMES = ("__layer_names",)  # the collection that counts the layers of a graph by name


@export("layers.Layer")
class Layer(LayerInterface):
    """The base of all layers.

    trainable: whether new variables are trained. name: also the base of the variables' scope; the
    class's name in snake case by default. dtype: of the variables; the first input's by default.
    activity_regularizer: a function of an output that returns a loss. _scope and _reuse: the
    variable scope to use, and whether its variables must exist. batch_input_shape (or input_shape
    and batch_size): the shape of the inputs, which the layer keeps for Keras models. dynamic:
    whether the layer says that it can only run eagerly.

    State: `built`, set once `build` has made the variables; the weights, losses and updates that
    were added; `_scope`, the variable scope, set by the first call unless the layer was made in
    Keras's style.
    """

    trainable: bool
    input_spec: Any
    activity_regularizer: Callable[[Any], Any] | None

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        *,
        activity_regularizer: Callable[[Any], Any] | None = None,
        batch_input_shape: Any = None,
        input_shape: Any = None,
        batch_size: int | None = None,
        dynamic: bool = False,
        _scope: str | VariableScope | None = None,
        _reuse: Any = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TypeError("Keyword argument not understood:", next(iter(unknown)))
        self.trainable = trainable
        self.built = False
        self.input_spec = None
        self.activity_regularizer = activity_regularizer
        self._dynamic = dynamic
        if batch_input_shape is not None or input_shape is not None:
            self._batch_input_shape = tuple(batch_input_shape or (batch_size, *input_shape))
        self._base_name = name or _snake_case(type(self).__name__)
        self._name = name or _unique_name(self._base_name)
        self._keras_style = style_is_on()
        if self._keras_style:
            refuse_scope(_scope, _reuse)
        self._dtype = None if dtype is None else as_dtype(dtype).name
        self._reuse = _reuse
        self._scope: VariableScope | None = None
        self._current_scope: VariableScope | None = None
        self._call_inputs: list[Any] | None = None  # while `call` runs
        self._trainable_weights: list[Any] = []
        self._non_trainable_weights: list[Any] = []
        # Each with whether it depends on inputs; a function makes its loss whenever it is read.
        self._losses: list[tuple[Any, bool]] = []
        self._updates: list[tuple[Any, bool]] = []
        if _scope:
            with variable_scope(_scope) as captured:
                self._scope = captured

    # -- Names -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> str | None:
        """The name of the variables' dtype; None if not known yet."""
        return self._dtype

    @property
    def scope_name(self) -> str:
        """The name of the layer's variable scope."""
        if self._scope is None:
            raise ValueError(
                f'No name available for layer scope because the layer "{self.name}" has not been '
                "used yet. The scope name  is determined the first time the layer instance is "
                "called. You must therefore call the layer before querying `scope_name`."
            )
        return self._scope.name

    def _set_scope(self, scope: Any = None) -> None:
        if self._scope is None:
            if self._reuse:
                opened = variable_scope(self._base_name if scope is None else scope)
            else:
                opened = variable_scope(scope, default_name=self._base_name)
            with opened as captured:
                self._scope = captured

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Open the layer's variable scope and its name scope."""
        reuse = True if self.built else self._reuse
        with variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as opened:
            self._current_scope = opened
            with name_scope(opened.original_name_scope):
                yield

    # -- Calling -----------------------------------------------------------------------------------

    def build(self, input_shape: Any) -> None:
        """Make the variables; subclasses override it and use add_weight. `input_shape` has the
        structure of the inputs.
        """
        self.built = True

    def call(self, inputs: Any, **kwargs: Any) -> Any:
        """Return the layer's function of `inputs`; subclasses define it."""
        return inputs

    def __call__(self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        if self._keras_style:
            refuse_scope(scope)
        else:
            self._set_scope(scope)
        plain = (np.ndarray, float, int)
        if any(isinstance(x, plain) for x in nest.flatten(inputs)):
            inputs = nest.map_structure(
                lambda x: convert_to_tensor(x) if isinstance(x, plain) else x, inputs
            )
        flat = nest.flatten(inputs)
        graph = graph_of(flat) or get_default_graph()
        with graph.as_default():
            with name_scope(self.name) if self._keras_style else self._opened():
                outer, self._call_inputs = self._call_inputs, flat
                try:
                    self._build_once(inputs, flat)
                    outputs = self.call(inputs, *args, **kwargs)
                    self._regularize_activity(outputs)
                finally:
                    self._call_inputs = outer
            if not self._keras_style:
                self._collect_updates(graph)
        return outputs

    def _collect_updates(self, graph: Any) -> None:
        """Add the layer's updates to the collection UPDATE_OPS, for the training step."""
        kept = graph.get_collection_ref(GraphKeys.UPDATE_OPS)
        kept += [update for update in self.updates if all(update is not known for known in kept)]

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer."""
        return self(inputs, *args, **kwargs)

    def _build_once(self, inputs: Any, flat: list[Any]) -> None:
        check_inputs(self.input_spec, inputs, self.name)
        if self.built:
            return
        if self._dtype is None and flat and hasattr(flat[0], "dtype"):
            self._dtype = as_dtype(flat[0].dtype).base_dtype.name
        shapes = None
        if all(hasattr(x, "shape") for x in flat):
            shapes = nest.map_structure(lambda x: x.shape, inputs)
        self.build(shapes)
        self.built = True

    def _regularize_activity(self, outputs: Any) -> None:
        if self.activity_regularizer is None:
            return
        with name_scope("ActivityRegularizer"):
            for output in nest.flatten(outputs):
                loss = self.activity_regularizer(output)
                batch = b.cast(b.shape(output)[0], loss.dtype)
                self.add_loss(loss / batch, inputs=self._call_inputs)

    # -- Variables ---------------------------------------------------------------------------------

    def add_weight(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[[Any], Any] | None = None,
        trainable: bool | None = None,
        constraint: Any = None,
        use_resource: bool | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        partitioner: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return a variable of the layer's scope: a new one or, if the scope reuses variables, a
        shared one.

        If it's new, its regularizer's loss joins the layer's losses and the graph's regularization
        losses.
        """
        if kwargs:
            raise TypeError("Unknown keyword argument:", next(iter(kwargs)))
        dtype = as_dtype(dtype or self._dtype or "float32")
        self._dtype = self._dtype or dtype.base_dtype.name
        initializer = get_initializer(initializer)
        if self._keras_style:
            trainable = trainable is None or trainable
            variable = keras_variable(
                self.name, name, shape, dtype, initializer, trainable, constraint, use_resource
            )
            parts = [variable]
            if regularizer is not None:
                self.add_loss(partial(_penalty, variable.op.name, regularizer, variable))
        else:
            trainable = _trained(trainable, synchronization) and self.trainable
            self._set_scope()
            before = set(get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES))
            with self._opened():
                variable = get_variable(
                    name,
                    shape=shape,
                    dtype=dtype,
                    initializer=initializer,
                    trainable=trainable,
                    constraint=constraint,
                    partitioner=partitioner,
                    use_resource=use_resource,
                    synchronization=synchronization,
                    aggregation=aggregation,
                )
                parts = list(variable) if isinstance(variable, PartitionedVariable) else [variable]
                if regularizer is not None:
                    for part in parts:
                        if part not in before:
                            self.add_loss(partial(_penalty, name, regularizer, part))
        for part in parts:
            # A custom getter may have frozen the variable, or returned a tensor made from it.
            trained = trainable and getattr(part, "trainable", False)
            kept = self._trainable_weights if trained else self._non_trainable_weights
            if all(part is not known for known in kept):
                kept.append(part)
        return variable

    add_variable = add_weight

    @property
    def trainable_weights(self) -> list[Any]:
        """The variables that are trained: none while `trainable` is False."""
        return list(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        if self.trainable:
            return list(self._non_trainable_weights)
        return self._trainable_weights + self._non_trainable_weights

    @property
    def weights(self) -> list[Any]:
        return self.trainable_weights + self.non_trainable_weights

    @property
    def trainable_variables(self) -> list[Any]:
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Any]:
        return self.non_trainable_weights

    @property
    def variables(self) -> list[Any]:
        return self.weights

    def count_params(self) -> int:
        """Return the number of elements of all variables."""
        if not self.built:
            raise ValueError(
                f"You tried to call `count_params` on {self.name}, but the layer isn't built. You "
                f"can build it manually via: `{self.name}.build(batch_input_shape)`."
            )
        return sum(int(np.prod(w.shape.as_list())) for w in self.weights)

    def get_weights(self) -> list[np.ndarray]:
        """Return the variables' values in the default session."""
        return _session().run(self.weights)

    def set_weights(self, weights: Iterable[Any]) -> None:
        """Load values into the variables, in the default session."""
        values, variables = [np.asarray(w) for w in weights], self.weights
        if len(values) != len(variables):
            raise ValueError(
                f'You called `set_weights(weights)` on layer "{self.name}" with a  weight list of '
                f"length {len(values)}, but the layer was expecting {len(variables)} weights."
            )
        for value, variable in zip(values, variables, strict=True):
            if not variable.shape.is_compatible_with(value.shape):
                raise ValueError(
                    f"Layer weight shape {variable.shape} not compatible with provided weight "
                    f"shape {value.shape}"
                )
        session = _session()
        for value, variable in zip(values, variables, strict=True):
            variable.load(value, session)

    # -- Losses and updates ------------------------------------------------------------------------

    def add_loss(self, losses: Any, inputs: Any = None) -> None:
        """Add losses (tensors, or functions without arguments that make them) to the layer and to
        the graph's regularization losses. They depend on `inputs`, or on nothing if None.
        """
        for loss in nest.flatten(losses):
            value = _made(loss)
            if value is not None:
                get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, value)
                self._losses.append((loss if callable(loss) else value, inputs is not None))

    def add_update(self, updates: Any, inputs: Any = None) -> None:
        """Add operations that must run with each training step, such as updates of moving averages.

        Whether they depend on the inputs follows from the graph and the current call;
        `inputs` is an older way to say so and, as in TensorFlow 1.15, has no effect.
        """
        del inputs
        sources = self._call_inputs
        for update in nest.flatten(updates):
            if callable(update):
                update = update()
            update = getattr(update, "op", update)  # a variable's or tensor's op
            self._updates.append((update, bool(_reached([update], sources or []))))

    @property
    def losses(self) -> list[Any]:
        """The losses: those that were added as tensors, then those that functions make, anew."""
        return [loss for loss, _ in self._made_losses()]

    def _made_losses(self) -> list[tuple[Any, bool]]:
        ordered = sorted(self._losses, key=lambda added: callable(added[0]))
        return [(_made(loss), conditional) for loss, conditional in ordered]

    @property
    def updates(self) -> list[Any]:
        """The updates; none while the layer isn't trainable."""
        return [update for update, _ in self._updates] if self.trainable else []

    def get_losses_for(self, inputs: Any) -> list[Any]:
        """Return the losses that depend on `inputs`, or those that depend on none if None."""
        return _relevant(self._made_losses(), inputs)

    def get_updates_for(self, inputs: Any) -> list[Any]:
        """Return the updates that depend on `inputs`, or those that depend on none if None."""
        return _relevant(self._updates, inputs) if self.trainable else []

    # -- Configuration -----------------------------------------------------------------------------

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the output for inputs of a shape; subclasses may define it."""
        raise NotImplementedError(f"{type(self).__name__} doesn't compute its output's shape")

    def get_config(self) -> dict[str, Any]:
        """Return arguments from which `from_config` makes an equal layer, without its weights."""
        return {"name": self.name, "trainable": self.trainable, "dtype": self.dtype}

    def _arguments(self, *names: str) -> dict[str, Any]:
        """Arguments that the layer keeps as attributes, for get_config."""
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Return a layer made from the result of get_config."""
        return cls(**config)


def _snake_case(name: str) -> str:
    apart = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    snake = re.sub("([a-z])([A-Z])", r"\1_\2", apart).lower()
    return f"private{snake}" if snake.startswith("_") else snake


def _unique_name(base: str) -> str:
    """Return a unique name among the layers of the default graph: `base_1`, `base_2`, and so on."""
    kept = get_default_graph().get_collection_ref(_NAMES)
    if not kept:
        kept.append({})
    kept[0][base] = kept[0].get(base, 0) + 1
    return f"{base}_{kept[0][base]}"


def _trained(trainable: bool | None, synchronization: VariableSynchronization) -> bool:
    if synchronization != VariableSynchronization.ON_READ:
        return trainable is None or trainable
    if trainable:
        raise ValueError(
            "Synchronization value can be set to VariableSynchronization.ON_READ only for "
            "non-trainable variables. You have specified trainable=True and "
            "synchronization=VariableSynchronization.ON_READ."
        )
    return False


def _made(loss: Any) -> Any:
    value = loss() if callable(loss) else loss
    return None if value is None else convert_to_tensor(value)


def _penalty(name: str, regularizer: Callable[[Any], Any], variable: Any) -> Any:
    with name_scope(f"{name}/Regularizer"):
        return regularizer(variable)


def _session() -> Any:
    session = default_session()
    if session is None:
        raise ValueError("the values of a layer's weights are in a session: open one first")
    return session


def _relevant(added: list[tuple[Any, bool]], inputs: Any) -> list[Any]:
    if inputs is None:
        return [item for item, conditional in added if not conditional]
    return _reached([item for item, conditional in added if conditional], nest.flatten(inputs))


def _reached(targets: list[Any], sources: Iterable[Any]) -> list[Any]:
    """Return those of `targets` (tensors, operations, variables) that depend on one of
    `sources`.
    """
    starts = {op for x in sources if (op := _operation_of(x)) is not None}
    return [target for target in targets if _depends(_operation_of(target), starts)]


def _operation_of(value: Any) -> Operation | None:
    return value if isinstance(value, Operation) else getattr(value, "op", None)


def _depends(op: Operation | None, starts: set[Operation]) -> bool:
    seen: set[Operation] = set()
    pending = [] if op is None else [op]
    while pending:
        op = pending.pop()
        if op in starts:
            return True
        if op not in seen:
            seen.add(op)
            pending += [x.op for x in op.inputs if isinstance(x, Tensor)]
            pending += op.control_inputs
    return False
