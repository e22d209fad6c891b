"""Helpers of decoders: which input comes next. In: the outputs of a step. Out: sampled ids, the
next inputs, and which sequences have ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from headrace._src.core import nest
from headrace._src.core.dtypes import bool as boolean
from headrace._src.core.dtypes import int32
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.graph.operation import Tensor
from headrace._src.layers.layer import Layer
from headrace._src.layers.recurrent.dynamic import transpose_batch_time
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.cond import cond
from headrace._src.ops.control.tensor_array import TensorArray
from headrace._src.ops.nn.embedding import embedding_lookup
from headrace._src.ops.random.random_functions import multinomial, random_uniform

__all__ = ["Helper", "embedder", "next_or_zero"]


def embedder(embedding: Any) -> Callable[[Any], Any]:
    """Return the function that embeds ids: `embedding` itself, or a lookup in that table."""
    return embedding if callable(embedding) else lambda ids: embedding_lookup(embedding, ids)


def next_or_zero(finished: Tensor, otherwise: Any, following: Callable[[], Any]) -> Any:
    """Return what follows, or `otherwise` once all sequences have ended."""
    return cond(b.reduce_all(finished), lambda: otherwise, following)


def vector(value: Any, name: str) -> Tensor:
    tensor = convert_to_tensor(value, dtype=int32, name=name)
    if tensor.shape.ndims != 1:
        raise ValueError(f"{name} must be a vector")
    return tensor


@export("contrib.seq2seq.Helper")
class Helper(ABC):
    """What a BasicDecoder asks for its first and next inputs."""

    @property
    @abstractmethod
    def batch_size(self) -> Any:
        """The number of sequences, a scalar tensor."""

    @property
    @abstractmethod
    def sample_ids_shape(self) -> Any:
        """The shape of each sampled id."""

    @property
    @abstractmethod
    def sample_ids_dtype(self) -> Any:
        """The type of sampled ids."""

    @abstractmethod
    def initialize(self, name: str | None = None) -> Any:
        """Return (initial_finished, initial_inputs)."""

    @abstractmethod
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return the ids that are sampled from a step's outputs."""

    @abstractmethod
    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> Any:
        """Return (finished, next_inputs, next_state)."""


@export("contrib.seq2seq.CustomHelper")
class CustomHelper(Helper):
    """A helper made of three functions."""

    def __init__(
        self,
        initialize_fn: Callable[..., Any],
        sample_fn: Callable[..., Any],
        next_inputs_fn: Callable[..., Any],
        sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ) -> None:
        self._initialize_fn = initialize_fn
        self._sample_fn = sample_fn
        self._next_inputs_fn = next_inputs_fn
        self._batch_size: Any = None
        self._sample_ids_shape = TensorShape(() if sample_ids_shape is None else sample_ids_shape)
        self._sample_ids_dtype = sample_ids_dtype or int32

    @property
    def batch_size(self) -> Any:
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        return self._sample_ids_shape

    @property
    def sample_ids_dtype(self) -> Any:
        return self._sample_ids_dtype

    def initialize(self, name: str | None = None) -> Any:
        with name_scope(name, "CustomHelperInitialize"):
            finished, inputs = self._initialize_fn()
            if self._batch_size is None:
                self._batch_size = b.size(finished)
            return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        with name_scope(name, "CustomHelperSample", [time, outputs, state]):
            return self._sample_fn(time=time, outputs=outputs, state=state)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> Any:
        with name_scope(name, "CustomHelperNextInputs", [time, outputs, state]):
            return self._next_inputs_fn(
                time=time, outputs=outputs, state=state, sample_ids=sample_ids
            )


class _IdHelper(Helper):
    """A helper whose ids are scalars of int32."""

    _batch_size: Any

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        return TensorShape([])

    @property
    def sample_ids_dtype(self) -> Any:
        return int32


# -- Training --------------------------------------------------------------------------------------


@export("contrib.seq2seq.TrainingHelper")
class TrainingHelper(_IdHelper):
    """Gives the steps of `inputs`, a nest of tensors [batch, time, ...], one after the other."""

    def __init__(
        self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None
    ) -> None:
        with name_scope(name, "TrainingHelper", [inputs, sequence_length]):
            inputs = nest.map_structure(convert_to_tensor, inputs)
            self._inputs = inputs
            if not time_major:
                inputs = nest.map_structure(transpose_batch_time, inputs)
            self._arrays = nest.map_structure(_unstacked, inputs)
            self._sequence_length = vector(sequence_length, "sequence_length")
            self._zero_inputs = nest.map_structure(lambda t: b.zeros_like(t[0]), inputs)
            self._batch_size = b.size(self._sequence_length)

    @property
    def inputs(self) -> Any:
        return self._inputs

    @property
    def sequence_length(self) -> Any:
        return self._sequence_length

    def _at(self, time: Any) -> Any:
        return nest.map_structure(lambda array: array.read(time), self._arrays)

    def initialize(self, name: str | None = None) -> Any:
        with name_scope(name, "TrainingHelperInitialize"):
            finished = b.equal(0, self._sequence_length)
            return finished, next_or_zero(finished, self._zero_inputs, lambda: self._at(0))

    def sample(self, time: Any, outputs: Any, name: str | None = None, **unused_kwargs: Any) -> Any:
        with name_scope(name, "TrainingHelperSample", [time, outputs]):
            return b.cast(b.argmax(outputs, axis=-1), int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, name: str | None = None, **unused_kwargs: Any
    ) -> Any:
        with name_scope(name, "TrainingHelperNextInputs", [time, outputs, state]):
            following = time + 1
            finished = following >= self._sequence_length
            inputs = next_or_zero(finished, self._zero_inputs, lambda: self._at(following))
            return finished, inputs, state


def _unstacked(tensor: Tensor) -> Any:
    array = TensorArray(tensor.dtype, size=b.shape(tensor)[0], element_shape=tensor.shape[1:])
    return array.unstack(tensor)


def _chosen(probability: Any, size: Any, seed: int | None) -> Tensor:
    """Return for each sequence whether to sample, with a probability."""
    drawn = random_uniform([size], dtype=probability.dtype, seed=seed)
    return b.less(drawn, probability)


def sampled(logits: Tensor, seed: int | None) -> Tensor:
    """Return an id for each row of logits."""
    return b.cast(b.squeeze(multinomial(logits, 1, seed=seed), [1]), int32)


def _probability(value: Any) -> Tensor:
    tensor = convert_to_tensor(value, name="sampling_probability")
    if tensor.shape.ndims not in (0, 1):
        raise ValueError(
            f"sampling_probability must be either a scalar or a vector. saw shape: {tensor.shape}"
        )
    return tensor


def _mixed(mask: Tensor, chosen: Any, otherwise: Any) -> Tensor:
    """Return the rows of `chosen` where the mask says so."""
    return b.where(mask, chosen, b.cast(otherwise, chosen.dtype))


@export("contrib.seq2seq.ScheduledEmbeddingTrainingHelper")
class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """A TrainingHelper that replaces inputs, with a probability, by the embedding of an id sampled
    from the outputs.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        scheduling_seed: int | None = None,
        name: str | None = None,
    ) -> None:
        with name_scope(
            name, "ScheduledEmbeddingSamplingWrapper", [embedding, sampling_probability]
        ):
            self._embedding_fn = embedder(embedding)
            self._probability = _probability(sampling_probability)
            self._seed = seed
            self._scheduling_seed = scheduling_seed
            super().__init__(inputs, sequence_length, time_major, name=name)

    def initialize(self, name: str | None = None) -> Any:
        return super().initialize(name=name)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return sampled ids, -1 where the given input is used."""
        with name_scope(name, "ScheduledEmbeddingTrainingHelperSample", [time, outputs, state]):
            chosen = _chosen(self._probability, self._batch_size, self._scheduling_seed)
            ids = sampled(outputs, self._seed)
            return b.where(chosen, ids, b.fill([self._batch_size], -1))

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> Any:
        with name_scope(name, "ScheduledEmbeddingTrainingHelperNextInputs", [time, outputs, state]):
            finished, base, state = super().next_inputs(time, outputs, state)

            def replaced() -> Tensor:
                embedded = self._embedding_fn(b.maximum(sample_ids, 0))
                return _mixed(sample_ids > -1, embedded, base)

            return finished, next_or_zero(finished, base, replaced), state


@export("contrib.seq2seq.ScheduledOutputTrainingHelper")
class ScheduledOutputTrainingHelper(TrainingHelper):
    """A TrainingHelper that replaces inputs, with a probability, by the outputs of the last step.

    next_inputs_fn: a layer or a function that makes inputs of outputs. auxiliary_inputs: joined to
    all inputs.
    """

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: int | None = None,
        next_inputs_fn: Callable[..., Any] | None = None,
        auxiliary_inputs: Any = None,
        name: str | None = None,
    ) -> None:
        with name_scope(name, "ScheduledOutputTrainingHelper", [inputs, sampling_probability]):
            self._probability = _probability(sampling_probability)
            self._seed = seed
            self._next_inputs_fn = next_inputs_fn
            joined = convert_to_tensor(inputs)
            self._auxiliary = None
            if auxiliary_inputs is not None:
                auxiliary = convert_to_tensor(auxiliary_inputs)
                joined = b.concat([joined, auxiliary], -1)
                first = auxiliary if time_major else transpose_batch_time(auxiliary)
                self._auxiliary = _unstacked(first)
            super().__init__(joined, sequence_length, time_major, name=name)

    def initialize(self, name: str | None = None) -> Any:
        return super().initialize(name=name)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Return 1 where the outputs are used."""
        with name_scope(name, "ScheduledOutputTrainingHelperSample", [time, outputs, state]):
            chosen = _chosen(self._probability, self._batch_size, self._seed)
            return b.cast(chosen, int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> Any:
        with name_scope(name, "ScheduledOutputTrainingHelperNextInputs", [time, outputs, state]):
            finished, base, state = super().next_inputs(time, outputs, state)
            chosen = b.cast(sample_ids, boolean)

            def replaced() -> Tensor:
                made = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
                if self._auxiliary is not None:
                    made = b.concat([made, self._auxiliary.read(time + 1)], -1)
                return _mixed(chosen, made, base)

            if isinstance(self._next_inputs_fn, Layer):
                self._next_inputs_fn(outputs)  # makes its variables outside of the condition
            none = b.logical_or(b.reduce_all(finished), b.logical_not(b.reduce_any(chosen)))
            return finished, cond(none, lambda: base, replaced), state


# -- Inference -------------------------------------------------------------------------------------


@export("contrib.seq2seq.GreedyEmbeddingHelper")
class GreedyEmbeddingHelper(_IdHelper):
    """Takes the most likely id of each step, and gives its embedding as the next input."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding_fn = embedder(embedding)
        tokens = convert_to_tensor(start_tokens, dtype=int32, name="start_tokens")
        self._end_token = convert_to_tensor(end_token, dtype=int32, name="end_token")
        if tokens.shape.ndims != 1:
            raise ValueError("start_tokens must be a vector")
        if self._end_token.shape.ndims != 0:
            raise ValueError("end_token must be a scalar")
        self._batch_size = b.size(tokens)
        self._start_inputs = self._embedding_fn(tokens)

    def initialize(self, name: str | None = None) -> Any:
        return b.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        if not isinstance(outputs, Tensor):
            raise TypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}")
        return b.argmax(outputs, axis=-1, output_type=int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> Any:
        finished = b.equal(sample_ids, self._end_token)
        inputs = next_or_zero(finished, self._start_inputs, lambda: self._embedding_fn(sample_ids))
        return finished, inputs, state


@export("contrib.seq2seq.SampleEmbeddingHelper")
class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Draws an id of each step from its distribution, and gives its embedding as the next input.

    softmax_temperature: divides the logits; larger values give more variety.
    """

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._softmax_temperature = softmax_temperature
        self._seed = seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        if not isinstance(outputs, Tensor):
            raise TypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}")
        if self._softmax_temperature is not None:
            outputs = outputs / self._softmax_temperature
        return sampled(outputs, self._seed)


@export("contrib.seq2seq.InferenceHelper")
class InferenceHelper(Helper):
    """Samples by a function, and gives samples, or what `next_inputs_fn` makes of them, as the next
    inputs.
    """

    def __init__(
        self,
        sample_fn: Callable[[Any], Any],
        sample_shape: Any,
        sample_dtype: Any,
        start_inputs: Any,
        end_fn: Callable[[Any], Any],
        next_inputs_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        self._sample_fn = sample_fn
        self._end_fn = end_fn
        self._sample_shape = TensorShape(sample_shape)
        self._sample_dtype = sample_dtype
        self._next_inputs_fn = next_inputs_fn
        self._start_inputs = convert_to_tensor(start_inputs, name="start_inputs")
        self._batch_size = b.shape(self._start_inputs)[0]

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        return self._sample_shape

    @property
    def sample_ids_dtype(self) -> Any:
        return self._sample_dtype

    def initialize(self, name: str | None = None) -> Any:
        return b.tile([False], [self._batch_size]), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample_fn(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None
    ) -> Any:
        made = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), made, state
