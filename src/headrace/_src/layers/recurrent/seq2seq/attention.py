"""Attention mechanisms: where to look in a memory. In: a query [batch, units] and the alignments of
the last step. Out: alignments [batch, time], one weight for each step of the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace._src.core import nest
from headrace._src.core.dtypes import as_dtype, int32
from headrace._src.core.export import export
from headrace._src.graph.default import get_default_graph
from headrace._src.graph.operation import Tensor
from headrace._src.layers.core import Dense
from headrace._src.layers.functional_loops import scan
from headrace._src.layers.recurrent.sizes import known_size, zeros_of_sizes
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.ops.control.assertions import assert_positive
from headrace._src.ops.random.random_functions import random_normal
from headrace._src.variables.initializers import Constant, Ones, Zeros
from headrace._src.variables.lookup import get_variable
from headrace._src.variables.scope import variable_scope

__all__ = [
    "AttentionMechanism",
    "BahdanauAttention",
    "LuongAttention",
    "hardmax",
    "monotonic_attention",
]


@export("contrib.seq2seq.AttentionMechanism")
class AttentionMechanism:
    """What an AttentionWrapper asks for alignments."""

    @property
    def alignments_size(self) -> Any:
        raise NotImplementedError

    @property
    def state_size(self) -> Any:
        raise NotImplementedError


def _masked_memory(memory: Any, lengths: Any) -> Any:
    """Return the memory, zero after the ends of the sequences."""
    memory = nest.map_structure(lambda m: convert_to_tensor(m, name="memory"), memory)
    for part in nest.flatten(memory):
        if not part.shape[2:].is_fully_defined():
            raise ValueError(
                f"Expected memory {part.name} to have fully defined inner dims, but saw shape: "
                f"{part.shape}"
            )
    if lengths is None:
        return memory
    first = nest.flatten(memory)[0]
    mask = b.sequence_mask(lengths, maxlen=b.shape(first)[1], dtype=first.dtype)

    def masked(part: Tensor) -> Tensor:
        ones = b.ones(len(part.shape.as_list()) - 2, int32)
        return part * b.cast(b.reshape(mask, b.concat([b.shape(mask), ones], 0)), part.dtype)

    return nest.map_structure(masked, memory)


class _BaseAttention(AttentionMechanism):
    """A mechanism with layers for the query and the memory; both may be None.

    State: the lengths of the memory's sequences; `values`, the masked memory, and `keys`, which
    the memory's layer makes of them.
    """

    def __init__(
        self,
        query_layer: Any,
        memory: Any,
        probability_fn: Callable[[Tensor, Any], Tensor],
        memory_sequence_length: Any = None,
        memory_layer: Any = None,
        score_mask_value: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        self._query_layer = query_layer
        self._memory_layer = memory_layer
        self.dtype = memory_layer.dtype
        self._lengths = memory_sequence_length
        if memory_sequence_length is not None:
            self._lengths = convert_to_tensor(memory_sequence_length, name="memory_sequence_length")
        self._mask_value = -math.inf if score_mask_value is None else score_mask_value
        self._probability_fn = probability_fn
        with name_scope(name, "BaseAttentionMechanismInit", nest.flatten(memory)):
            self._values = _masked_memory(memory, self._lengths)
            self._keys = memory_layer(self._values) if memory_layer is not None else self._values
            if custom_key_value_fn is not None:
                self._keys, self._values = custom_key_value_fn(self._keys, self._values)
            self._batch_size = known_size(self._keys, 0)
            self._alignments_size = known_size(self._keys, 1)

    @property
    def memory_layer(self) -> Any:
        return self._memory_layer

    @property
    def query_layer(self) -> Any:
        return self._query_layer

    @property
    def values(self) -> Any:
        return self._values

    @property
    def keys(self) -> Any:
        return self._keys

    @property
    def batch_size(self) -> Any:
        return self._batch_size

    @property
    def alignments_size(self) -> Any:
        return self._alignments_size

    @property
    def state_size(self) -> Any:
        return self._alignments_size

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Return zeros."""
        return zeros_of_sizes(self._alignments_size, batch_size, dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the initial alignments."""
        return self.initial_alignments(batch_size, dtype)

    def _probabilities(self, score: Tensor, state: Any) -> Tensor:
        """Return what the probability function makes of the scores inside of the sequences."""
        if self._lengths is None:
            return self._probability_fn(score, state)
        message = "All values in memory_sequence_length must greater than zero."
        check = assert_positive(self._lengths, message=message)
        with get_default_graph().control_dependencies([check]):
            mask = b.sequence_mask(self._lengths, maxlen=b.shape(score)[1])
            never = self._mask_value * b.ones_like(score)
            return self._probability_fn(b.where(mask, score, never), state)


def _softmax(probability_fn: Any) -> Callable[[Tensor, Any], Tensor]:
    function = b.softmax if probability_fn is None else probability_fn
    return lambda score, _: function(score)


def _layer(units: int, name: str, dtype: Any) -> Dense:
    return Dense(units, name=name, use_bias=False, dtype=dtype)


# -- Additive attention ----------------------------------------------------------------------------


def _additive_score(query: Tensor, keys: Tensor, normalize: bool) -> Tensor:
    """Return v . tanh(keys + query) for each step of the memory; normalized: with v scaled to the
    length g, and a bias in the tanh.
    """
    units: Any = keys.shape.as_list()[2]
    v = get_variable("attention_v", [units], dtype=query.dtype)
    if not normalize:
        return b.reduce_sum(v * b.tanh(keys + b.expand_dims(query, 1)), [2])
    g = get_variable(
        "attention_g",
        shape=(),
        dtype=query.dtype,
        initializer=Constant(math.sqrt(1.0 / units)),
    )
    bias = get_variable("attention_b", [units], dtype=query.dtype, initializer=Zeros())
    query = b.expand_dims(query, 1)
    scaled = g * v * b.rsqrt(b.reduce_sum(b.square(v)))
    return b.reduce_sum(scaled * b.tanh(keys + query + bias), [2])


@export("contrib.seq2seq.BahdanauAttention")
class BahdanauAttention(_BaseAttention):
    """Additive attention (Bahdanau et al., 2015): a layer of `num_units` compares the query with
    the memory [batch, time, ...]. normalize: weight normalization of the layer's weights.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Callable[[Tensor], Tensor] | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None,
        name: str = "BahdanauAttention",
    ) -> None:
        dtype = as_dtype(dtype or "float32")
        super().__init__(
            query_layer=_layer(num_units, "query_layer", dtype),
            memory_layer=_layer(num_units, "memory_layer", dtype),
            memory=memory,
            probability_fn=_softmax(probability_fn),
            memory_sequence_length=memory_sequence_length,
            score_mask_value=score_mask_value,
            custom_key_value_fn=custom_key_value_fn,
            name=name,
        )
        self._normalize = normalize

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        """Return the alignments, twice: they are the next state."""
        with variable_scope(None, "bahdanau_attention", [query]):
            score = _additive_score(self._query_layer(query), self._keys, self._normalize)
        alignments = self._probabilities(score, state)
        return alignments, alignments


# -- Multiplicative attention ----------------------------------------------------------------------


def _product_score(query: Tensor, keys: Tensor, scale: bool) -> Tensor:
    depth, units = query.shape[-1], keys.shape[-1]
    if depth != units:
        raise ValueError(
            "Incompatible or unknown inner dimensions between query and keys. Query "
            f"({query}) has units: {depth}. Keys ({keys}) have units: {units}. Perhaps you need "
            f"to set num_units to the keys' dimension ({units})?"
        )
    factor = None
    if scale:
        factor = get_variable("attention_g", dtype=query.dtype, initializer=Ones(), shape=())
    score = b.squeeze(b.matmul(b.expand_dims(query, 1), keys, transpose_b=True), [1])
    return score if factor is None else factor * score


@export("contrib.seq2seq.LuongAttention")
class LuongAttention(_BaseAttention):
    """Multiplicative attention (Luong et al., 2015): the product of the query with a layer of the
    memory, of the same size. scale: whether to learn a factor.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Callable[[Tensor], Tensor] | None = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None,
        name: str = "LuongAttention",
    ) -> None:
        dtype = as_dtype(dtype or "float32")
        super().__init__(
            query_layer=None,
            memory_layer=_layer(num_units, "memory_layer", dtype),
            memory=memory,
            probability_fn=_softmax(probability_fn),
            memory_sequence_length=memory_sequence_length,
            score_mask_value=score_mask_value,
            custom_key_value_fn=custom_key_value_fn,
            name=name,
        )
        self._scale = scale

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        """Return the alignments, twice: they are the next state."""
        with variable_scope(None, "luong_attention", [query]):
            score = _product_score(query, self._keys, self._scale)
        alignments = self._probabilities(score, state)
        return alignments, alignments


# -- Monotonic attention ---------------------------------------------------------------------------


@export("contrib.seq2seq.safe_cumprod")
def safe_cumprod(x: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Return the running product of numbers in [0, 1], by logarithms, so that its gradient is
    finite. args, kwargs: for tf.cumsum.
    """
    with name_scope(None, "SafeCumprod", [x]):
        x = convert_to_tensor(x, name="x")
        tiny = np.finfo(x.dtype.numpy).tiny
        return b.exp(b.cumsum(b.log(b.clip_by_value(x, tiny, 1)), *args, **kwargs))


@export("contrib.seq2seq.monotonic_attention")
def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> Tensor:
    """Return the attention of a step that only moves forward (Raffel et al., 2017).

    p_choose_i: the probability of stopping at each step of the memory. mode: "recursive",
    "parallel" (faster, less accurate), or "hard", for probabilities that are 0 or 1.
    """
    p = convert_to_tensor(p_choose_i, name="p_choose_i")
    before = convert_to_tensor(previous_attention, name="previous_attention")
    if mode == "recursive":
        batch = b.shape(p)[0]
        missed = b.concat([b.ones([batch, 1], p.dtype), 1 - p[:, :-1]], 1)
        reached = scan(
            lambda last, step: b.reshape(step[0] * last + step[1], [batch]),
            [b.transpose(missed), b.transpose(before)],
            b.zeros([batch], p.dtype),
        )
        return p * b.transpose(reached)
    if mode == "parallel":
        missed = safe_cumprod(1 - p, axis=1, exclusive=True)
        return p * missed * b.cumsum(before / b.clip_by_value(missed, 1e-10, 1.0), axis=1)
    if mode == "hard":
        p = p * b.cumsum(before, axis=1)
        return p * b.cumprod(1 - p, axis=1, exclusive=True)
    raise ValueError("mode must be 'recursive', 'parallel', or 'hard'.")


def _monotonic_probability(noise: float, mode: str, seed: int | None) -> Any:
    def probability(score: Tensor, before: Tensor) -> Tensor:
        if noise > 0:
            score = score + noise * random_normal(b.shape(score), dtype=score.dtype, seed=seed)
        if mode == "hard":
            chosen = b.cast(score > 0, score.dtype)
        else:
            chosen = b.sigmoid(score)
        return monotonic_attention(chosen, before, mode)

    return probability


class _MonotonicAttention(_BaseAttention):
    """A mechanism whose state, the last alignments, begins at the memory's first step."""

    _score_bias: float

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Return one for the first step of the memory, zero for the others."""
        first = b.zeros([batch_size], int32)
        return b.one_hot(first, self._alignments_size, dtype=dtype)

    def _biased(self, score: Tensor) -> Tensor:
        bias = get_variable("attention_score_bias", dtype=score.dtype, initializer=self._score_bias)
        return score + bias


@export("contrib.seq2seq.BahdanauMonotonicAttention")
class BahdanauMonotonicAttention(_MonotonicAttention):
    """Additive attention that only moves forward in the memory.

    sigmoid_noise: the standard deviation of noise added to the scores, for training. mode: see
    monotonic_attention.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        score_mask_value: Any = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: Any = None,
        name: str = "BahdanauMonotonicAttention",
    ) -> None:
        dtype = as_dtype(dtype or "float32")
        super().__init__(
            query_layer=_layer(num_units, "query_layer", dtype),
            memory_layer=_layer(num_units, "memory_layer", dtype),
            memory=memory,
            probability_fn=_monotonic_probability(sigmoid_noise, mode, sigmoid_noise_seed),
            memory_sequence_length=memory_sequence_length,
            score_mask_value=score_mask_value,
            name=name,
        )
        self._normalize = normalize
        self._score_bias = score_bias_init

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        """Return the alignments, twice: they are the next state."""
        with variable_scope(None, "bahdanau_monotonic_attention", [query]):
            score = _additive_score(self._query_layer(query), self._keys, self._normalize)
            score = self._biased(score)
        alignments = self._probabilities(score, state)
        return alignments, alignments


@export("contrib.seq2seq.LuongMonotonicAttention")
class LuongMonotonicAttention(_MonotonicAttention):
    """Multiplicative attention that only moves forward in the memory; see
    BahdanauMonotonicAttention.
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        score_mask_value: Any = None,
        sigmoid_noise: float = 0.0,
        sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0,
        mode: str = "parallel",
        dtype: Any = None,
        name: str = "LuongMonotonicAttention",
    ) -> None:
        dtype = as_dtype(dtype or "float32")
        super().__init__(
            query_layer=None,
            memory_layer=_layer(num_units, "memory_layer", dtype),
            memory=memory,
            probability_fn=_monotonic_probability(sigmoid_noise, mode, sigmoid_noise_seed),
            memory_sequence_length=memory_sequence_length,
            score_mask_value=score_mask_value,
            name=name,
        )
        self._scale = scale
        self._score_bias = score_bias_init

    def __call__(self, query: Any, state: Any) -> tuple[Tensor, Tensor]:
        """Return the alignments, twice: they are the next state."""
        with variable_scope(None, "luong_monotonic_attention", [query]):
            score = self._biased(_product_score(query, self._keys, self._scale))
        alignments = self._probabilities(score, state)
        return alignments, alignments


@export("contrib.seq2seq.hardmax")
def hardmax(logits: Any, name: str | None = None) -> Tensor:
    """Return one where the largest of the last dimension is, zero elsewhere."""
    with name_scope(name, "Hardmax", [logits]):
        logits = convert_to_tensor(logits, name="logits")
        return b.one_hot(b.argmax(logits, -1), b.shape(logits)[-1], dtype=logits.dtype)
