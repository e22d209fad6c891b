"""Circulant matrices, which the Fourier transform diagonalises, in one to three dimensions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from headrace._src.core import dtypes
from headrace._src.core.dtypes import as_dtype
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import TensorShape
from headrace._src.linear_operators.checks import assert_no_zeros, assert_zero_imag_part
from headrace._src.linear_operators.hints import always
from headrace._src.linear_operators.linear_operator import LinearOperator
from headrace._src.ops.base.define import b
from headrace._src.ops.base.to_tensor import convert_to_tensor, name_scope

__all__ = [
    "BlockCirculant",
    "LinearOperatorCirculant",
    "LinearOperatorCirculant2D",
    "LinearOperatorCirculant3D",
]

_TRANSFORMS = {1: ("fft", "ifft"), 2: ("fft2d", "ifft2d"), 3: ("fft3d", "ifft3d")}


class BlockCirculant(LinearOperator):
    """The operator F^-1 diag(spectrum) F, where F is the Fourier transform over as many dimensions
    as a subclass says: a vector is an array of the spectrum's shape, row after row.

    input_output_dtype: the type of vectors; a real one asks for a spectrum whose inverse transform
    is real, because imaginary parts are dropped.
    """

    _block_depth = 1

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any,
        is_non_singular: bool | None,
        is_self_adjoint: bool | None,
        is_positive_definite: bool | None,
        is_square: bool | None,
        name: str,
    ) -> None:
        with name_scope(name, values=[spectrum]):
            self._spectrum = convert_to_tensor(spectrum, name="spectrum")
            depth, rank = self._block_depth, self._spectrum.shape.rank
            if rank is not None and rank < depth:
                raise ValueError(
                    f"Argument spectrum must have at least {depth} dimensions.  Found: "
                    f"{self._spectrum}"
                )
            is_square = always(is_square, "A [[nested] block] circulant operator is always square.")
            if not self._spectrum.dtype.is_complex:
                is_self_adjoint = always(
                    is_self_adjoint,
                    "A real spectrum always corresponds to a self-adjoint operator.",
                )
            super().__init__(
                as_dtype(input_output_dtype),
                [self._spectrum],
                is_non_singular,
                is_self_adjoint,
                is_positive_definite,
                is_square,
                name,
            )

    @property
    def spectrum(self) -> Any:
        """The eigenvalues."""
        return self._spectrum

    @property
    def block_depth(self) -> int:
        """The number of dimensions that are transformed."""
        return self._block_depth

    @property
    def block_shape(self) -> TensorShape:
        """The static shape of the transformed dimensions."""
        return self._spectrum.shape[-self._block_depth :]

    def block_shape_tensor(self) -> Any:
        """Return the shape of the transformed dimensions as a tensor."""
        return b.shape(self._spectrum)[-self._block_depth :]

    def _shape(self) -> TensorShape:
        shape = self._spectrum.shape
        if shape.rank is None:
            return shape
        sizes: list[Any] = shape.as_list()[-self._block_depth :]
        size = None if None in sizes else math.prod(sizes)
        return shape[: -self._block_depth].concatenate([size, size])

    def _shape_tensor(self) -> Any:
        size = b.reduce_prod(self.block_shape_tensor())
        return b.concat([b.shape(self._spectrum)[: -self._block_depth], b.stack([size, size])], 0)

    # -- Transforms --------------------------------------------------------------------------------

    def _complex(self, x: Any) -> Any:
        """Return `x` in the complex type of the spectrum."""
        wide = self._spectrum.dtype.base_dtype in (dtypes.float64, dtypes.complex128)
        return b.cast(x, dtypes.complex128 if wide else dtypes.complex64)

    def _output(self, x: Any) -> Any:
        """Return `x` in the type of vectors, without the imaginary part if that is real."""
        return b.cast(x if self.dtype.is_complex else b.real(x), self.dtype)

    def _transform(self, x: Any, inverse: bool = False) -> Any:
        return getattr(b, _TRANSFORMS[self._block_depth][inverse])(x)

    def _filtered(self, x: Any, adjoint: bool, adjoint_arg: bool, divide: bool) -> Any:
        """Multiply the transforms of vectors by the spectrum, or divide them by it."""
        if adjoint_arg:
            x = b.conj(x)  # with vectors as rows, as they are transformed
        else:
            x = b.matrix_transpose(x)
        depth, known = self._block_depth, self.block_shape.is_fully_defined()
        block: Any = self.block_shape.as_list() if known else self.block_shape_tensor()
        spectrum = self._complex(self._spectrum)
        spectrum = b.expand_dims(b.conj(spectrum) if adjoint else spectrum, -depth - 1)
        rows = self._transform(b.reshape(self._complex(x), b.concat([b.shape(x)[:-1], block], 0)))
        rows = self._transform(rows / spectrum if divide else rows * spectrum, inverse=True)
        sizes = b.concat([b.shape(rows)[:-depth], [-1]], 0)
        return self._output(b.matrix_transpose(b.reshape(rows, sizes)))

    def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._filtered(x, adjoint, adjoint_arg, divide=False)

    def _solve(self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
        return self._filtered(rhs, adjoint, adjoint_arg, divide=True)

    def _kernel(self) -> Any:
        return self._transform(self._complex(self._spectrum), inverse=True)

    def convolution_kernel(self, name: str = "convolution_kernel") -> Any:
        """Return the first columns of the matrices, in the shape of the spectrum."""
        with self._name_scope(name):
            return self._output(self._kernel())

    # -- Numbers -----------------------------------------------------------------------------------

    def _axes(self) -> list[int]:
        return list(range(-self._block_depth, 0))

    def _determinant(self) -> Any:
        return self._output(b.reduce_prod(self._spectrum, axis=self._axes()))

    def _log_abs_determinant(self) -> Any:
        logs = b.log(b.abs(self._spectrum))
        return b.cast(b.reduce_sum(logs, axis=self._axes()), self.dtype)

    def _trace(self) -> Any:
        return self._output(b.reduce_sum(self._spectrum, axis=self._axes()))

    def _diag_part(self) -> Any:
        size = self.domain_dimension_tensor()
        mean = self.trace() / b.cast(size, self.dtype)
        return mean[..., None] * b.ones(b.stack([size]), self.dtype)

    # -- Assertions --------------------------------------------------------------------------------

    def assert_hermitian_spectrum(self, name: str = "assert_hermitian_spectrum") -> Any:
        """Return an operation that fails if the matrices are not real, up to rounding."""
        with self._name_scope(name):
            kernel = self._kernel()
            eps = float(ml_dtypes.finfo(kernel.dtype.real_dtype.numpy).eps)
            scale = b.cast(self.domain_dimension_tensor(), kernel.dtype.real_dtype) * eps
            return b.assert_less_equal(
                b.abs(b.imag(kernel)),
                scale * b.reduce_max(b.abs(kernel)),
                message="Spectrum was not Hermitian",
            )

    def _assert_non_singular(self) -> Any:
        return assert_no_zeros(
            self._spectrum, "Singular operator:  Spectrum contained zero values."
        )

    def _assert_positive_definite(self) -> Any:
        return b.assert_positive(
            b.real(self._spectrum),
            message="Not positive definite:  Real part of spectrum was not all positive.",
        )

    def _assert_self_adjoint(self) -> Any:
        return assert_zero_imag_part(
            self._spectrum, "Not self-adjoint:  The spectrum contained non-zero imaginary part."
        )


@export("linalg.LinearOperatorCirculant")
class LinearOperatorCirculant(BlockCirculant):
    """The operator of circulant matrices: each column is the one before, moved down by one.

    spectrum: the Fourier transforms of the first columns. input_output_dtype: the type of vectors.
    """

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any = dtypes.complex64,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        name: str = "LinearOperatorCirculant",
    ) -> None:
        hints = is_non_singular, is_self_adjoint, is_positive_definite, is_square
        super().__init__(spectrum, input_output_dtype, *hints, name)


@export("linalg.LinearOperatorCirculant2D")
class LinearOperatorCirculant2D(BlockCirculant):
    """The operator of block circulant matrices with circulant blocks: convolutions of images.

    spectrum: the Fourier transforms of the kernels, over two dimensions. input_output_dtype: the
    type of vectors.
    """

    _block_depth = 2

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any = dtypes.complex64,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        name: str = "LinearOperatorCirculant2D",
    ) -> None:
        hints = is_non_singular, is_self_adjoint, is_positive_definite, is_square
        super().__init__(spectrum, input_output_dtype, *hints, name)


@export("linalg.LinearOperatorCirculant3D")
class LinearOperatorCirculant3D(BlockCirculant):
    """The operator of nested block circulant matrices: convolutions over three dimensions.

    spectrum: the Fourier transforms of the kernels, over three dimensions. input_output_dtype: the
    type of vectors.
    """

    _block_depth = 3

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any = dtypes.complex64,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = True,
        name: str = "LinearOperatorCirculant3D",
    ) -> None:
        hints = is_non_singular, is_self_adjoint, is_positive_definite, is_square
        super().__init__(spectrum, input_output_dtype, *hints, name)
