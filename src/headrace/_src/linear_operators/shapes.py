"""Parameters and shapes of linear operators: matrices in batches, which broadcast."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce
from typing import Any

import numpy as np

from headrace._src.core.tensor_shape import TensorShape, broadcast
from headrace._src.graph.inference import constant_value
from headrace._src.graph.operation import Tensor
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope
from headrace._src.variables.variable import Variable

__all__ = [
    "as_parameter",
    "batch_of",
    "broadcast_shapes",
    "cholesky_solve",
    "constant_of",
    "matrix_solve",
    "same_batches",
    "shape_of",
    "spread",
    "triangular_solve",
]


def as_parameter(value: Any, name: str, dtype: Any = None, rank: int = 0, words: str = "") -> Any:
    """Return a parameter as a tensor. A variable stays one, so the operator owns it.

    rank: the least number of dimensions, `words` in an error message.
    """
    if not isinstance(value, Variable):
        value = convert_to_tensor(value, dtype, name)
    if value.shape.rank is not None and value.shape.rank < rank:
        raise ValueError(f"Argument {name} must have at least {words}.  Found: {value}")
    return value


def constant_of(value: Any) -> np.ndarray | None:
    """Return the value of a tensor or variable if it is known while the graph is built."""
    return constant_value(value) if isinstance(value, Tensor) else None


# -- Shapes, static if they are known --------------------------------------------------------------


def shape_of(x: Any) -> Any:
    """Return the shape of a tensor: as an array if it is known."""
    if x.shape.is_fully_defined():
        return np.array(x.shape.as_list(), np.int32)
    return b.shape(x)


def batch_of(x: Any) -> Any:
    """Return the leading dimensions of a batch of matrices: as an array if they are known."""
    if x.shape[:-2].is_fully_defined():
        return np.array(x.shape[:-2].as_list(), np.int32)
    return b.shape(x)[:-2]


def broadcast_shapes(shapes: Iterable[Any]) -> Any:
    """Return the shape that arrays or vectors, or TensorShapes, broadcast to."""

    def pair(x: Any, y: Any) -> Any:
        if isinstance(x, TensorShape):
            return broadcast(x, y)
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            return np.array(broadcast(x.tolist(), y.tolist()).as_list(), np.int32)
        return b.broadcast_dynamic_shape(x, y)

    return reduce(pair, shapes)


def spread(x: Any, batch: Any) -> Any:
    """Broadcast the leading dimensions of matrices to `batch`."""
    own = batch_of(x)
    if (
        isinstance(own, np.ndarray)
        and isinstance(batch, np.ndarray)
        and own.tolist() == batch.tolist()
    ):
        return x
    wanted = b.concat([batch, b.shape(x)[-2:]], 0)
    return b.broadcast_to(x, wanted)


def same_batches(*matrices: Any) -> list[Any]:
    """Broadcast matrices to their common leading dimensions."""
    if all(m.shape.rank == 2 for m in matrices):
        return list(matrices)
    batch = broadcast_shapes(batch_of(m) for m in matrices)
    return [spread(m, batch) for m in matrices]


# -- Solvers that broadcast ------------------------------------------------------------------------


def _solved(solver: Any, matrix: Any, rhs: Any) -> Any:
    """Return solver(matrix, rhs) for batches that broadcast. All right sides of a single matrix
    become columns of one, so that it is factored once.
    """
    rank = rhs.shape.rank
    if matrix.shape.rank != 2 or rank is None or rank == 2:
        return solver(*same_batches(matrix, rhs))
    batch = list(range(rank - 2))
    rows_first = b.transpose(rhs, [rank - 2, *batch, rank - 1])
    columns = b.reshape(rows_first, b.stack([b.shape(rhs)[-2], -1]))
    found = b.reshape(solver(matrix, columns), b.shape(rows_first))
    found = b.transpose(found, [*(i + 1 for i in batch), 0, rank - 1])
    found.set_shape(rhs.shape)
    return found


def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False) -> Any:
    """Return x such that matrix @ x = rhs."""
    with name_scope(None, "MatrixSolveWithBroadcast", [matrix, rhs]):
        return _solved(partial(b.matrix_solve, adjoint=adjoint), matrix, rhs)


def triangular_solve(matrix: Any, rhs: Any, adjoint: bool = False) -> Any:
    """Return x such that matrix @ x = rhs, for lower triangular matrices."""
    with name_scope(None, "MatrixTriangularSolve", [matrix, rhs]):
        return _solved(partial(b.matrix_triangular_solve, adjoint=adjoint), matrix, rhs)


def cholesky_solve(factor: Any, rhs: Any) -> Any:
    """Return x such that factor @ factor^H @ x = rhs."""
    with name_scope(None, "CholeskySolveWithBroadcast", [factor, rhs]):
        return _solved(b.cholesky_solve, factor, rhs)
