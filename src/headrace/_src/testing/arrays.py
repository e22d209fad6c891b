"""Assertions on arrays, and on tensors by their values. In: the actual and the expected values, in
any structure. Out: an AssertionError that shows where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace._src.graph.operation import Tensor
from headrace._src.variables.variable import Variable

if TYPE_CHECKING:
    from unittest import TestCase as Base
else:
    Base = object

__all__ = ["ArrayAssertions"]

_SHOWN = 10  # elements listed in a message


class ArrayAssertions(Base):
    """Assertions to mix into a test case that has a method `evaluate` for tensors."""

    def evaluate(self, tensors: Any) -> Any:
        """Return the values of tensors."""
        raise NotImplementedError

    def _array(self, value: Any) -> np.ndarray:
        if isinstance(value, Tensor | Variable):
            value = self.evaluate(value)
        elif isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
            value = [self._array(v) for v in value]
        return np.asarray(value)

    def assertShapeEqual(self, np_array: Any, tf_tensor: Any, msg: str | None = None) -> None:
        """Check that an array has the static shape of a tensor."""
        if not isinstance(np_array, np.ndarray | np.generic):
            raise TypeError("np_array must be a Numpy ndarray or Numpy scalar")
        if not isinstance(tf_tensor, Tensor | Variable):
            raise TypeError("tf_tensor must be a Tensor")
        self.assertAllEqual(np_array.shape, tf_tensor.shape.as_list(), msg=msg)

    def assertDTypeEqual(self, target: Any, expected_dtype: Any) -> None:
        """Check that an array has a dtype."""
        found = self._array(target).dtype
        if found != np.dtype(getattr(expected_dtype, "as_numpy_dtype", expected_dtype)):
            self.fail(f"{found!r} != {expected_dtype!r}")

    # -- Close to each other -----------------------------------------------------------------------

    def assertNear(self, f1: float, f2: float, err: float, msg: str | None = None) -> None:
        """Check that two numbers differ by no more than `err`."""
        more = "" if msg is None else f" ({msg})"
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, f"{f1:f} != {f2:f} +/- {err:f}{more}")

    def assertArrayNear(
        self, farray1: Any, farray2: Any, err: float, msg: str | None = None
    ) -> None:
        """Check that the numbers of two sequences differ by no more than `err`."""
        self.assertEqual(len(farray1), len(farray2), msg)
        for f1, f2 in zip(farray1, farray2, strict=True):
            self.assertNear(float(f1), float(f2), err, msg)

    def assertNDArrayNear(
        self, ndarray1: Any, ndarray2: Any, err: float, msg: str | None = None
    ) -> None:
        """Check that the norm of the difference of two arrays is less than `err`."""
        norm = np.linalg.norm(self._array(ndarray1) - self._array(ndarray2))
        self.assertTrue(bool(norm < err), f"the norm of the difference is {norm}. {msg or ''}")

    def assertAllClose(
        self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: str | None = None
    ) -> None:
        """Check that |a - b| <= atol + rtol * |b| for all elements of two arrays, or of two
        structures of arrays: dicts, named tuples, lists of arrays of different shapes.
        """
        self._close(a, b, rtol, atol, "", msg)

    def _close(self, a: Any, b: Any, rtol: float, atol: float, path: str, msg: str | None) -> None:
        a, b = (x._asdict() if hasattr(x, "_asdict") else x for x in (a, b))
        if isinstance(a, Mapping) != isinstance(b, Mapping):
            raise ValueError(f"Can't compare dict to non-dict, a{path} vs b{path}. {msg or ''}")
        if isinstance(a, Mapping):
            keys = f"mismatched keys: a{path} has keys {a.keys()}, but b{path} has keys {b.keys()}."
            self.assertCountEqual(a.keys(), b.keys(), msg=f"{keys} {msg or ''}")
            for key in a:
                self._close(a[key], b[key], rtol, atol, f"{path}[{key}]", msg)
            return
        try:
            arrays = self._array(a), self._array(b)
        except ValueError:  # a list whose elements don't form an array
            arrays = None
        if arrays is not None:
            self._arrays_close(*arrays, rtol, atol, path, msg)
            return
        self.assertEqual(len(a), len(b), f"a{path} and b{path} have different lengths. {msg or ''}")
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            self._close(left, right, rtol, atol, f"{path}[{i}]", msg)

    def _arrays_close(
        self, a: np.ndarray, b: np.ndarray, rtol: float, atol: float, path: str, msg: str | None
    ) -> None:
        self._same_shape(a, b, msg)
        a, b = np.atleast_1d(a, b)
        wrong = np.where(~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True))
        if not wrong[0].size:
            return
        left, right = a[wrong], b[wrong]
        told = [
            f"Mismatched value: a{path} is different from b{path}. {msg or ''}",
            f"not close where = {_where(wrong)}",
            f"not close lhs = {_some(left)}",
            f"not close rhs = {_some(right)}",
            f"not close dif = {_some(np.abs(left - right))}",
            f"not close tol = {_some(atol + rtol * np.abs(right))}",
            f"dtype = {a.dtype}, shape = {a.shape}",
        ]
        np.testing.assert_allclose(
            a, b, rtol=rtol, atol=atol, equal_nan=True, err_msg="\n".join(told)
        )

    def assertAllCloseAccordingToType(
        self,
        a: Any,
        b: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
        float_rtol: float = 1e-6,
        float_atol: float = 1e-6,
        half_rtol: float = 1e-3,
        half_atol: float = 1e-3,
        bfloat16_rtol: float = 1e-2,
        bfloat16_atol: float = 1e-2,
        msg: str | None = None,
    ) -> None:
        """Call assertAllClose with the tolerances of the less precise of the two dtypes."""
        a, b = self._array(a), self._array(b)
        limits = {
            "float32": (float_rtol, float_atol),
            "complex64": (float_rtol, float_atol),
            "float16": (half_rtol, half_atol),
            "bfloat16": (bfloat16_rtol, bfloat16_atol),
        }
        for relative, absolute in (limits.get(x.dtype.name, (0.0, 0.0)) for x in (a, b)):
            rtol, atol = max(rtol, relative), max(atol, absolute)
        self.assertAllClose(a, b, rtol=rtol, atol=atol, msg=msg)

    def assertNotAllClose(self, a: Any, b: Any, **kwargs: Any) -> None:
        """Check that assertAllClose fails for these arrays."""
        try:
            self.assertAllClose(a, b, **kwargs)
        except AssertionError:
            return
        raise AssertionError("The two values are close at all elements")

    # -- Equal -------------------------------------------------------------------------------------

    def assertAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Check that all elements of two arrays are equal; NaNs equal each other."""
        a, b = self._array(a), self._array(b)
        self._same_shape(a, b, msg)
        a, b = np.atleast_1d(a, b)
        same = np.asarray(a == b)
        if a.dtype.kind in "fc" and b.dtype.kind in "fc":
            same = same | (np.isnan(a) & np.isnan(b))
        if same.all():
            return
        wrong = np.where(~same)
        told = [
            msg or "",
            f"not equal where = {_where(wrong)}",
            f"not equal lhs = {_some(a[wrong])}",
            f"not equal rhs = {_some(b[wrong])}",
        ]
        np.testing.assert_array_equal(a, b, err_msg="\n".join(told))

    def assertNotAllEqual(self, a: Any, b: Any, msg: str | None = None) -> None:
        """Check that the arrays differ in some element."""
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        raise AssertionError(f"The two values are equal at all elements. {msg or ''}")

    def _same_shape(self, a: np.ndarray, b: np.ndarray, msg: str | None) -> None:
        shown = f"Shape mismatch: expected {a.shape}, got {b.shape} with contents {b}. {msg or ''}"
        self.assertEqual(a.shape, b.shape, shown)

    # -- Ranges and sets ---------------------------------------------------------------------------

    def assertAllGreater(self, a: Any, comparison_target: Any) -> None:
        """Check that all elements are greater."""
        self.assertGreater(self._array(a).min().item(), comparison_target)

    def assertAllGreaterEqual(self, a: Any, comparison_target: Any) -> None:
        """Check that no element is less."""
        self.assertGreaterEqual(self._array(a).min().item(), comparison_target)

    def assertAllLess(self, a: Any, comparison_target: Any) -> None:
        """Check that all elements are less."""
        self.assertLess(self._array(a).max().item(), comparison_target)

    def assertAllLessEqual(self, a: Any, comparison_target: Any) -> None:
        """Check that no element is greater."""
        self.assertLessEqual(self._array(a).max().item(), comparison_target)

    def assertAllInRange(
        self,
        target: Any,
        lower_bound: Any,
        upper_bound: Any,
        open_lower_bound: bool = False,
        open_upper_bound: bool = False,
    ) -> None:
        """Check that all elements lie between two bounds, which are included unless they are
        open.
        """
        found = self._array(target)
        if found.dtype.kind not in "biuf":
            raise AssertionError(
                f"The value of {found} does not have an ordered numeric type, instead it has type: "
                f"{found.dtype}"
            )
        below: Callable[..., Any] = np.less_equal if open_lower_bound else np.less
        above: Callable[..., Any] = np.greater_equal if open_upper_bound else np.greater
        outside = below(found, lower_bound) | above(found, upper_bound) | np.isnan(found)
        if outside.any():
            between = f"{'(['[not open_lower_bound]}{lower_bound}, {upper_bound}"
            raise AssertionError(
                f"{outside.sum()} of the {found.size} element(s) are outside the range {between}"
                f"{')]'[not open_upper_bound]}. Subscript(s) and value(s) of the offending "
                f"elements:\n{_listed(found, outside)}"
            )

    def assertAllInSet(self, target: Any, expected_set: Collection[Any]) -> None:
        """Check that all elements are in a set."""
        found = np.unique(self._array(target)).tolist()
        strange = [value for value in found if value not in expected_set]
        if strange:
            raise AssertionError(
                f"{len(strange)} unique element(s) are not in the set {expected_set}: {strange}"
            )


def _where(places: tuple[np.ndarray, ...]) -> str:
    more = " ..." if places[0].size > _SHOWN else ""
    return f"{tuple(axis[:_SHOWN] for axis in places)}{more}"


def _some(values: np.ndarray) -> str:
    return f"{values[:_SHOWN]}{' ...' if values.size > _SHOWN else ''}"


def _listed(values: np.ndarray, chosen: np.ndarray) -> str:
    places = np.argwhere(chosen)[:_SHOWN]
    lines = [f"  [{', '.join(map(str, place))}] : {values[tuple(place)]}" for place in places]
    return "\n".join([*lines, *(["  ..."] if chosen.sum() > _SHOWN else [])])
