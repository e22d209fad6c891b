"""The part of Layer's interface that Keras models use: connections between layers, masks, metrics
and submodules. In: a layer. Out: what TensorFlow 1.15 answers for a layer of tf.layers.

TensorFlow records connections only between layers of Keras models, whose inputs tf.keras.Input
makes. A layer that is called with other tensors stays unconnected: `input`, `output` and their kin
raise the errors that it raises.
"""

from __future__ import annotations

from typing import Any, NoReturn

from headrace._src.core import nest
from headrace._src.core.dtypes import as_dtype
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.graph.type_spec import TensorSpec
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.variables.module import ModuleBase
from headrace._src.variables.variable import Variable

__all__ = ["LayerInterface", "MeanMetric"]


class MeanMetric:
    """The mean of the values that a layer adds under one name, in two variables that belong to no
    collection: `total` and `count`.
    """

    def __init__(self, name: str, dtype: Any) -> None:
        self.name = name
        self._dtype = as_dtype(dtype)
        self.total = self._variable("total")
        self.count = self._variable("count")

    def _variable(self, name: str) -> Any:
        return Variable(
            lambda: b.zeros([], self._dtype),
            trainable=False,
            collections=[],
            name=name,
            use_resource=True,
        )

    @property
    def dtype(self) -> str:
        return self._dtype.name

    @property
    def variables(self) -> list[Any]:
        return [self.total, self.count]

    def update_state(self, values: Any) -> Any:
        """Return an operation that counts the elements of `values`."""
        values = b.cast(values, self._dtype)
        added = b.reduce_sum(values)
        graph = get_default_graph()
        with graph.control_dependencies([added]):
            total = self.total.assign_add(added)
        number = b.cast(b.size(values), self._dtype)
        with graph.control_dependencies([total.op]):
            return self.count.assign_add(number).op

    def result(self) -> Tensor:
        """Return the mean so far, 0 before the first value."""
        return b.identity(b.div_no_nan(self.total, self.count))

    def __call__(self, values: Any) -> Tensor:
        """Return the mean after an update."""
        update = self.update_state(values)
        with get_default_graph().control_dependencies([update]):
            mean = b.div_no_nan(self.total, self.count)
        return b.identity(mean)


class LayerInterface(ModuleBase):
    """What Layer inherits for Keras models; `Layer` explains the rest of its state.

    State: the metrics that were added, by name.
    """

    name: str
    stateful = False
    supports_masking = True
    _dynamic = False

    @property
    def dynamic(self) -> bool:
        """Whether the layer was declared to run eagerly only."""
        return self._dynamic

    @property
    def graph(self) -> None:
        """The graph of a layer that was made inside a Keras graph; others have none."""
        return None

    # -- Connections -------------------------------------------------------------------------------

    @property
    def inbound_nodes(self) -> list[Any]:
        """The calls of the layer in Keras models: none."""
        return []

    @property
    def outbound_nodes(self) -> list[Any]:
        """The calls of other layers with this one's outputs in Keras models: none."""
        return []

    @property
    def input(self) -> NoReturn:
        raise AttributeError(f"Layer {self.name} is not connected, no input to return.")

    @property
    def input_mask(self) -> NoReturn:
        raise AttributeError(f"Layer {self.name} is not connected, no input to return.")

    @property
    def input_shape(self) -> NoReturn:
        raise AttributeError("The layer has never been called and thus has no defined input shape.")

    @property
    def output(self) -> NoReturn:
        raise AttributeError(f"Layer {self.name} has no inbound nodes.")

    @property
    def output_mask(self) -> NoReturn:
        raise AttributeError(f"Layer {self.name} has no inbound nodes.")

    @property
    def output_shape(self) -> NoReturn:
        raise AttributeError(
            "The layer has never been called and thus has no defined output shape."
        )

    def get_input_at(self, node_index: int) -> NoReturn:
        """Raise RuntimeError: the layer is in no Keras model."""
        _never_called("input")

    def get_input_mask_at(self, node_index: int) -> NoReturn:
        """Raise RuntimeError: the layer is in no Keras model."""
        _never_called("input")

    def get_input_shape_at(self, node_index: int) -> NoReturn:
        """Raise RuntimeError: the layer is in no Keras model."""
        _never_called("input shape")

    def get_output_at(self, node_index: int) -> NoReturn:
        """Raise RuntimeError: the layer is in no Keras model."""
        _never_called("output")

    def get_output_mask_at(self, node_index: int) -> NoReturn:
        """Raise RuntimeError: the layer is in no Keras model."""
        _never_called("output")

    def get_output_shape_at(self, node_index: int) -> NoReturn:
        """Raise RuntimeError: the layer is in no Keras model."""
        _never_called("output shape")

    # -- Masks and signatures ----------------------------------------------------------------------

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the mask of the outputs: that of the inputs."""
        del inputs
        return mask

    def compute_output_shape(self, input_shape: Any) -> Any:
        raise NotImplementedError

    def compute_output_signature(self, input_signature: Any) -> Any:
        """Return the TensorSpecs of the outputs for inputs of given TensorSpecs."""
        for spec in nest.flatten(input_signature):
            if not isinstance(spec, TensorSpec):
                raise TypeError(f"Only TensorSpec signature types are supported, got {spec}.")
        shape = self.compute_output_shape(nest.map_structure(lambda s: s.shape, input_signature))
        dtype = getattr(self, "dtype", None) or nest.flatten(input_signature)[0].dtype
        return nest.map_structure(lambda sizes: TensorSpec(sizes, dtype), shape)

    # -- Metrics -----------------------------------------------------------------------------------

    _metrics: dict[str, MeanMetric]

    @property
    def metrics(self) -> list[MeanMetric]:
        """The metrics that were added, in order."""
        return list(getattr(self, "_metrics", {}).values())

    def add_metric(
        self, value: Any, aggregation: str | None = None, name: str | None = None
    ) -> None:
        """Let the metric `name` average the values of a tensor; aggregation must be "mean"."""
        if aggregation is not None and aggregation != "mean":
            raise ValueError(
                "We currently support only `mean` sample-wise metric aggregation. You provided "
                f"aggregation=`{aggregation}`"
            )
        if name is None:
            raise ValueError(
                "Please provide a name for your metric like `self.add_metric(tf.reduce_sum(inputs),"
                " name='mean_activation', aggregation='mean')`"
            )
        if aggregation is None:
            raise ValueError(
                "We do not support adding an aggregated metric result tensor that is not the "
                "output of a `tf.keras.metrics.Metric` metric instance. Pass aggregation='mean' "
                "with the values themselves."
            )
        value = convert_to_tensor(value)
        known = self.__dict__.setdefault("_metrics", {})
        if name not in known:
            known[name] = MeanMetric(name, value.dtype.base_dtype)
        known[name](value)

    # -- Modules -----------------------------------------------------------------------------------

    @property
    def name_scope(self) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute '_scope_name': a layer of tf.layers "
            "has a variable scope, scope_name, and no name scope of a module"
        )


def _never_called(which: str) -> NoReturn:
    raise RuntimeError(f"The layer has never been called and thus has no defined {which}.")
