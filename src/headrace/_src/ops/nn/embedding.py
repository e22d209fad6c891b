"""Embeddings: rows of a table, or of a sharded table, looked up by id."""

from __future__ import annotations

from typing import Any

from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape, all_known, as_shape
from headrace._src.graph.composite import SparseTensor
from headrace._src.graph.operation import Tensor
from headrace._src.graph.scoped import colocate_with
from headrace._src.ops.base.define import b, composed
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = ["embedding_lookup", "embedding_lookup_sparse", "safe_embedding_lookup_sparse"]


def _shards(params: Any) -> list[Any]:
    """Return the table's shards: those of a partitioned variable or a list, or the table itself."""
    if params is None:
        raise ValueError("params must be specified")
    if hasattr(params, "_get_variable_list"):
        params = list(params)
    elif not isinstance(params, list | tuple):
        params = [params]
    if not params:
        raise ValueError("Need at least one param")
    # A reference variable is read from its cached value, which may be on another device.
    return [p.value() if hasattr(p, "_ref") else p for p in params]


@composed
@export("nn.embedding_lookup")
def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: Any = None,
) -> Tensor:
    """Return the rows of `params` that `ids` select, each scaled down to norm `max_norm` if given.

    partition_strategy: how rows are distributed over a list of shards, 'mod' (row i is in shard
    i % n) or 'div' (contiguous shards). Ids are always validated, whatever validate_indices says.
    """
    shards = _shards(params)
    if partition_strategy not in ("mod", "div"):
        raise ValueError(f"Unrecognized partition strategy: {partition_strategy}")
    with name_scope(name, "embedding_lookup", [*shards, ids]) as scope:
        shards = [
            p if hasattr(p, "graph") else convert_to_tensor(p, name=f"params_{i}")
            for i, p in enumerate(shards)
        ]
        ids = convert_to_tensor(ids, name="ids")
        if len(shards) == 1:
            with colocate_with(shards[0]):
                rows = _clipped(b.gather(shards[0], ids, name=scope), ids, max_norm)
            return b.identity(rows)
        return _clipped(_stitched(shards, ids, partition_strategy, scope), ids, max_norm)


def _stitched(shards: list[Any], ids: Tensor, strategy: str, name: str) -> Tensor:
    """Look up each id in its shard and put the rows back in the ids' order."""
    count = len(shards)
    flat = b.reshape(ids, [-1])
    order = b.range(b.size(flat))
    if strategy == "mod":
        where, rows = flat % count, flat // count
    else:
        where, rows = _contiguous(shards, flat)
    where = b.cast(where, "int32")
    rows_of = b.dynamic_partition(rows, where, count)
    places = b.dynamic_partition(order, where, count)
    found = []
    for shard, wanted in zip(shards, rows_of, strict=True):
        with colocate_with(shard):
            found.append(b.gather(shard, wanted))
    stitched = b.parallel_dynamic_stitch(places, found, name=name)
    return _in_shape_of_ids(stitched, ids, shards)


def _contiguous(shards: list[Any], ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shard and the row of each id when the first `extra` shards have one row more."""
    total = _total_rows(shards, ids)
    per_shard = total // len(shards)
    extra = total % len(shards)
    where = b.maximum(ids // (per_shard + 1), (ids - extra) // per_shard)
    rows = b.where(b.less(where, extra), ids % (per_shard + 1), (ids - extra) % per_shard)
    return where, rows


def _total_rows(shards: list[Any], ids: Tensor) -> Tensor:
    sizes = [_shape(shard)[:1].as_list()[0] for shard in shards]
    known = all_known(sizes)
    if known is not None:
        return b.constant(sum(known), ids.dtype)
    found = []
    for shard, size in zip(shards, sizes, strict=True):
        if size is not None:
            found.append(size)
        else:
            with colocate_with(shard):
                found.append(b.shape(shard)[0])
    return b.reduce_sum(b.cast(b.stack(found), ids.dtype))


def _shape(shard: Any) -> TensorShape:
    return as_shape(shard.shape).with_rank_at_least(1)


def _in_shape_of_ids(rows: Tensor, ids: Tensor, shards: list[Any]) -> Tensor:
    row_shape = _shape(shards[0])[1:]
    for shard in shards[1:]:
        row_shape = row_shape.merge_with(_shape(shard)[1:])
    if row_shape.is_fully_defined():
        rows = b.reshape(rows, b.concat([b.shape(ids), row_shape], 0))
    else:
        with colocate_with(shards[0]):
            table_shape = b.shape(shards[0])
        rest = b.slice(table_shape, [1], [-1])
        rows = b.reshape(rows, b.concat([b.shape(ids), rest], 0))
    rows.set_shape(ids.shape.concatenate(row_shape))
    return rows


def _clipped(rows: Tensor, ids: Tensor, max_norm: Any) -> Tensor:
    if max_norm is None:
        return rows
    first = b.rank(ids) if ids.shape.ndims is None else ids.shape.ndims
    last = b.rank(rows) if rows.shape.ndims is None else rows.shape.ndims
    if isinstance(first, int) and isinstance(last, int):
        axes = list(range(first, last))
    else:
        axes = b.range(first, last)
    return b.clip_by_norm(rows, max_norm, axes=axes)


# ---- sparse ids ----------------------------------------------------------------------------------


@composed
@export("nn.embedding_lookup_sparse")
def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: Any = None,
) -> Tensor:
    """Return, for each row of sparse ids, the combination of its embeddings.

    sp_weights: weights of the ids (sparse, of the same shape), or None. combiner: 'sum', 'mean', or
    'sqrtn' (the sum divided by the root of the sum of squared weights). Every row needs an id.

    params, partition_strategy and max_norm are those of embedding_lookup.
    """
    combiner = combiner or "mean"
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError("combiner must be one of 'mean', 'sqrtn' or 'sum'")
    shards = _shards(params)
    _check_sparse(sp_ids, sp_weights)
    with name_scope(name, "embedding_lookup_sparse", [*shards, sp_ids]) as scope:
        segments = sp_ids.indices[:, 0]
        if segments.dtype != "int32":
            segments = b.cast(segments, "int32")
        ids, which = b.unique(sp_ids.values)
        rows = embedding_lookup(
            shards, ids, partition_strategy=partition_strategy, max_norm=max_norm
        )
        if rows.dtype.name in ("float16", "bfloat16"):
            rows = b.cast(rows, "float32")
        if sp_weights is None:
            builders = {
                "sum": b.sparse_segment_sum,
                "mean": b.sparse_segment_mean,
                "sqrtn": b.sparse_segment_sqrt_n,
            }
            return builders[combiner](rows, which, segments, name=scope)
        weights = sp_weights.values
        if weights.dtype != rows.dtype:
            weights = b.cast(weights, rows.dtype)
        return _weighted(b.gather(rows, which), weights, segments, combiner, scope)


def _weighted(rows: Tensor, weights: Tensor, segments: Tensor, combiner: str, name: str) -> Tensor:
    """Combine rows that are sorted by segment, each multiplied by its weight."""
    ones = b.fill(b.expand_dims(b.rank(rows) - 1, 0), 1)
    known = weights.shape
    weights = b.reshape(weights, b.concat([b.shape(weights), ones], 0))
    if rows.shape.ndims is not None:
        weights.set_shape(known.concatenate([1] * (rows.shape.ndims - 1)))
    rows = rows * weights
    if combiner == "sum":
        return b.segment_sum(rows, segments, name=name)
    total = b.segment_sum(rows, segments)
    if combiner == "mean":
        return b.div(total, b.segment_sum(weights, segments), name=name)
    squares = b.segment_sum(b.pow(weights, 2), segments)
    return b.div(total, b.sqrt(squares), name=name)


def _check_sparse(sp_ids: Any, sp_weights: Any) -> None:
    if not isinstance(sp_ids, SparseTensor):
        raise TypeError("sp_ids must be SparseTensor")
    if sp_weights is None:
        return
    if not isinstance(sp_weights, SparseTensor):
        raise TypeError("sp_weights must be either None or SparseTensor")
    for part in ("values", "indices", "dense_shape"):
        getattr(sp_ids, part).shape.assert_is_compatible_with(getattr(sp_weights, part).shape)


@composed
@export("nn.safe_embedding_lookup_sparse")
def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: Any,
    sparse_weights: Any = None,
    combiner: str = "mean",
    default_id: int | None = None,
    name: str | None = None,
    partition_strategy: str = "div",
    max_norm: Any = None,
) -> Tensor:
    """As embedding_lookup_sparse, but rows without a valid id use `default_id`, or are zero.

    Ids below 0 are not valid; nor, unless the combiner is 'sum', are those of weight 0 or less. The
    ids may have more than two dimensions: the last is the one combined.

    The other arguments are those of embedding_lookup_sparse.
    """
    if embedding_weights is None:
        raise ValueError("Missing embedding_weights None.")
    tables = _shards(embedding_weights)
    if not isinstance(sparse_ids, SparseTensor):
        raise TypeError("sparse_ids must be SparseTensor")
    dtype = sparse_weights.dtype if sparse_weights is not None else None
    tables = [w if hasattr(w, "handle") else convert_to_tensor(w, dtype=dtype) for w in tables]
    values = [*tables, sparse_ids, *([] if sparse_weights is None else [sparse_weights])]
    with name_scope(name, "embedding_lookup", values) as scope:
        shape = sparse_ids.dense_shape
        rank = shape.shape.as_list()[0]
        last = b.size(shape) - 1 if rank is None else rank - 1
        ids, weights = _as_matrices(sparse_ids, sparse_weights, shape, last)
        ids, weights = _without_invalid(ids, weights, combiner)
        ids, is_empty = b.sparse_fill_empty_rows(ids, default_id or 0)
        if weights is not None:
            weights, _ = b.sparse_fill_empty_rows(weights, 1.0)
        result = embedding_lookup_sparse(
            tables,
            ids,
            weights,
            combiner=combiner,
            partition_strategy=partition_strategy,
            name=None if default_id is None else scope,
            max_norm=max_norm,
        )
        if default_id is None:
            column = b.reshape(is_empty, [-1, 1])
            blank = b.tile(column, b.stack([1, b.shape(result)[1]]))
            result = b.where(blank, b.zeros_like(result), result, name=scope)
        outer = b.slice(b.cast(shape, "int32"), [0], [last])
        inner = b.slice(b.shape(result), [1], [-1])
        final = b.reshape(result, b.concat([outer, inner], 0))
        if rank is not None:
            unknown = TensorShape.of((None,) * (rank - 1))
            final.set_shape(unknown.concatenate(result.shape[1:]))
        return final


def _as_matrices(ids: Any, weights: Any, shape: Tensor, last: Any) -> tuple[Any, Any]:
    """Flatten all dimensions of ids and weights except the last."""
    rows = b.reduce_prod(b.slice(shape, [0], [last]))
    ids = b.sparse_reshape(ids, [rows, b.gather(shape, last)])
    if weights is not None:
        weights = SparseTensor(ids.indices, weights.values, ids.dense_shape)
    return ids, weights


def _without_invalid(ids: Any, weights: Any, combiner: str) -> tuple[Any, Any]:
    valid = b.greater_equal(ids.values, 0)
    if weights is not None:
        valid = b.logical_and(valid, b.ones_like(weights.values, dtype="bool"))
    ids = b.sparse_retain(ids, valid)
    if weights is None:
        return ids, None
    weights = b.sparse_retain(weights, valid)
    if combiner == "sum":
        return ids, weights
    positive = b.greater(weights.values, 0)
    return b.sparse_retain(ids, positive), b.sparse_retain(weights, positive)
