"""Wrappers: cells that change the inputs and outputs of another cell."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.inference import constant_value
from headrace._src.layers.recurrent.cell import RNNCell, check_cell
from headrace._src.layers.recurrent.lstm_cells import LSTMStateTuple
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.tensor_array import TensorArray

__all__ = ["CellWrapper", "DeviceWrapper", "DropoutWrapper", "ResidualWrapper"]


class CellWrapper(RNNCell):
    """A wrapper of `cell` without variables and without a scope."""

    def __init__(self, cell: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_cell("cell", cell)
        self.cell = cell

    @property
    def wrapped_cell(self) -> Any:
        return self.cell

    @property
    def state_size(self) -> Any:
        return self.cell.state_size

    @property
    def output_size(self) -> Any:
        return self.cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the wrapped cell's state of zeros."""
        with name_scope(f"{type(self).__name__}ZeroState", values=[batch_size]):
            return self.cell.zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        return self.cell(inputs, state, scope=scope)

    def get_config(self) -> dict[str, Any]:
        """Return the wrapper's arguments; `cell` is the wrapped cell's class name and config."""
        config = {"class_name": type(self.cell).__name__, "config": self.cell.get_config()}
        return super().get_config() | {"cell": config}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, type] | None = None
    ) -> Any:
        """Return a wrapper made from the result of get_config, with a cell put into `cell`; or of
        the class that `custom_objects` has under the cell's class name.
        """
        described = config["cell"]
        if isinstance(described, Mapping) and described["class_name"] in (custom_objects or {}):
            cell = (custom_objects or {})[described["class_name"]].from_config(described["config"])
            config = {**config, "cell": cell}
        if isinstance(config["cell"], Mapping):
            raise ValueError(
                "RNNCellWrapper cannot reconstruct the wrapped cell. Please overwrite the cell in "
                "the config with a RNNCell instance."
            )
        return super().from_config(config)


def _drop_but_memory(substate: Any) -> Any:
    """Return whether to drop elements of a state: not of an LSTM's memory, nor of a TensorArray."""
    if isinstance(substate, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not isinstance(substate, TensorArray)


@export("nn.rnn_cell.DropoutWrapper", "contrib.rnn.DropoutWrapper")
class DropoutWrapper(CellWrapper):
    """Drops elements of a cell's inputs, outputs and new states, each with its own probability.

    The probabilities of keeping an element are numbers or tensors; 1 changes nothing.
    variational_recurrent: one draw per run for all time steps and all rows of the batch (Gal
    and Ghahramani, 2016); it needs dtype, and input_size if inputs are dropped. seed: decides the
    draws. dropout_state_filter_visitor(substate): returns a bool, or a nest of bools, that says
    which parts of the state are dropped; it's called from the top down.
    """

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell, dtype=dtype, **kwargs)
        visitor = dropout_state_filter_visitor
        if visitor is not None and not callable(visitor):
            raise TypeError("dropout_state_filter_visitor must be callable")
        self._state_filter = visitor or _drop_but_memory
        self._seed = seed
        self._input_size = input_size
        with name_scope("DropoutWrapperInit"):
            self._input_keep = _probability("input_keep_prob", input_keep_prob)
            self._state_keep = _probability("state_keep_prob", state_keep_prob)
            self._output_keep = _probability("output_keep_prob", output_keep_prob)
        # The noise of variational dropout, drawn once; None if each call draws its own.
        self._noise: dict[str, list[Any]] | None = None
        if variational_recurrent:
            self._noise = self._draw_noise(input_size, dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the wrapper's arguments; a visitor is included unchanged."""
        config = {
            "input_keep_prob": self._input_keep,
            "output_keep_prob": self._output_keep,
            "state_keep_prob": self._state_keep,
            "variational_recurrent": self._noise is not None,
            "input_size": self._input_size,
            "seed": self._seed,
        }
        if self._state_filter is not _drop_but_memory:
            config["dropout_state_filter_visitor"] = self._state_filter
        return super().get_config() | config

    def _draw_noise(self, input_size: Any, dtype: Any) -> dict[str, list[Any]]:
        if dtype is None:
            raise ValueError("When variational_recurrent=True, dtype must be provided")
        noise = {}
        if _drops(self._input_keep):
            if input_size is None:
                raise ValueError(
                    "When variational_recurrent=True and input_keep_prob < 1.0 or is unknown, "
                    "input_size must be provided"
                )
            noise["input"] = self._draws("input", input_size, dtype)
        noise["state"] = self._draws("state", self.cell.state_size, dtype)
        noise["output"] = self._draws("output", self.cell.output_size, dtype)
        return noise

    def _draws(self, what: str, sizes: Any, dtype: Any) -> list[Any]:
        return [
            b.random_uniform(
                b.concat([[1], _dimensions(size)], 0), seed=self._seed_of(what, i), dtype=dtype
            )
            for i, size in enumerate(nest.flatten(sizes))
        ]

    def _seed_of(self, what: str, number: int) -> int | None:
        """Return a separate seed, derived from `seed`, for each value with dropout."""
        if self._seed is None:
            return None
        text = f"{self._seed}{what}_{number}".encode()
        return int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:8], 16) & 0x7FFFFFFF

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        if _drops(self._input_keep):
            inputs = self._dropped("input", inputs, self._input_keep)
        output, new_state = self.cell(inputs, state, scope=scope)
        if _drops(self._state_keep):
            chosen = _chosen(self._state_filter, new_state)
            new_state = self._dropped("state", new_state, self._state_keep, chosen)
        if _drops(self._output_keep):
            output = self._dropped("output", output, self._output_keep)
        return output, new_state

    def _dropped(self, what: str, values: Any, keep: Any, chosen: list[bool] | None = None) -> Any:
        """Return `values` with elements dropped from the `chosen` leaves, or from all."""
        flat = nest.flatten(values)
        for i, value in enumerate(flat):
            if chosen is not None and not chosen[i]:
                continue
            if self._noise is None:
                flat[i] = b.dropout(value, keep_prob=keep, seed=self._seed_of(what, i))
            else:
                flat[i] = _dropped_by(self._noise[what][i], value, keep)
        return nest.pack_sequence_as(values, flat) if nest.is_nested(values) else flat[0]


def _probability(name: str, value: Any) -> Any:
    """Return a keep probability, as a number if it's known now, else as a tensor."""
    tensor = convert_to_tensor(value)
    known = constant_value(tensor)
    if known is None or known.shape:
        return tensor
    if not 0 <= known <= 1:
        raise ValueError(f"Parameter {name} must be between 0 and 1: {known:g}")
    return float(known)


def _drops(keep: Any) -> bool:
    return not (isinstance(keep, float) and keep >= 1.0)


def _dimensions(size: Any) -> Any:
    return as_shape([size] if isinstance(size, int) else size).as_list()


def _chosen(visitor: Callable[[Any], Any], state: Any) -> list[bool]:
    """Return, for each leaf of a state, whether the visitor says to drop from it."""
    answer = visitor(state)
    if isinstance(answer, bool):
        if answer and nest.is_nested(state):
            return [c for child in _children(state) for c in _chosen(visitor, child)]
        return [answer] * len(nest.flatten(state))
    if not nest.is_nested(answer) or not nest.is_nested(state):
        raise TypeError(
            f"dropout_state_filter_visitor must return bools or nests of them, got {answer!r}"
        )
    nest.assert_same_structure(answer, nest.map_structure(lambda _: True, state))
    return [bool(a) for a in nest.flatten(answer)]


def _children(state: Any) -> list[Any]:
    if isinstance(state, Mapping):
        return [state[key] for key in sorted(state)]
    return list(state)


def _dropped_by(noise: Any, value: Any, keep: Any) -> Any:
    """Keep `value` where keep + noise reaches 1, scaled so that the mean is unchanged."""
    kept = b.floor(keep + noise)
    result = b.div(value, keep) * kept
    result.set_shape(value.shape)
    return result


@export("nn.rnn_cell.ResidualWrapper", "contrib.rnn.ResidualWrapper")
class ResidualWrapper(CellWrapper):
    """Adds a cell's inputs to its outputs, or combines them by `residual_fn(inputs, outputs)`."""

    def __init__(
        self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(cell, **kwargs)
        self._residual_fn = residual_fn

    def get_config(self) -> dict[str, Any]:
        """Return the wrapper's arguments; `residual_fn` is included unchanged."""
        if self._residual_fn is None:
            return super().get_config()
        return super().get_config() | {"residual_fn": self._residual_fn}

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        outputs, new_state = self.cell(inputs, state, scope=scope)
        combined = (self._residual_fn or _added)(inputs, outputs)
        nest.assert_same_structure(outputs, combined)
        nest.map_structure(_check_same_shape, outputs, combined)
        return combined, new_state


def _added(inputs: Any, outputs: Any) -> Any:
    nest.assert_same_structure(inputs, outputs)
    nest.map_structure(_check_same_shape, inputs, outputs)
    return nest.map_structure(lambda x, y: x + y, inputs, outputs)


def _check_same_shape(x: Any, y: Any) -> None:
    x.shape.assert_is_compatible_with(y.shape)


@export("nn.rnn_cell.DeviceWrapper", "contrib.rnn.DeviceWrapper")
class DeviceWrapper(CellWrapper):
    """Places a cell's operations, variables and zero states on a device."""

    def __init__(self, cell: Any, device: Any, **kwargs: Any) -> None:
        super().__init__(cell, **kwargs)
        self._device = device

    def get_config(self) -> dict[str, Any]:
        """Return the wrapper's arguments."""
        return super().get_config() | {"device": self._device}

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the wrapped cell's state of zeros, on the device."""
        scope = name_scope(f"{type(self).__name__}ZeroState", values=[batch_size])
        with scope, get_default_graph().device(self._device):
            return self.cell.zero_state(batch_size, dtype)

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        with get_default_graph().device(self._device):
            return self.cell(inputs, state, scope=scope)
