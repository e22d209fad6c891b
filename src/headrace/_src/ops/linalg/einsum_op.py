"""The op Einsum: sums of products of one or two tensors, by a subscript equation. (As in TensorFlow
1.15, `tf.einsum` is composed of transposes and products instead.)

Every character of an equation is a label, except "..." (any dimensions, which broadcast), "," and
"->". A label that occurs twice in an input takes the diagonal; one that occurs twice in the output
puts values on a diagonal of zeros.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.core.tensor_shape import TensorShape, broadcast
from headrace._src.graph.definition import Kind, Sample
from headrace._src.ops.base.builder import OpBuilder
from headrace._src.ops.base.define import define
from headrace._src.ops.base.samples import r

__all__ = ["einsum_op"]

_ELLIPSIS = "..."
Labels = tuple[str, ...]


class _Equation(NamedTuple):
    """Return the labels of the inputs and of the output; "..." is one of them."""

    inputs: tuple[Labels, ...]
    output: Labels


@lru_cache(256)
def _parsed(equation: str) -> _Equation:
    sides = equation.split("->")
    if len(sides) != 2:
        raise ValueError(f"Expecting exactly one '->' in einsum equation: {equation}")
    inputs = tuple(_labels(side, equation) for side in sides[0].split(","))
    if len(inputs) not in (1, 2):
        raise ValueError(
            f"Expecting 1 or 2 input subscripts in equation '{equation}' but got: {len(inputs)}"
        )
    output = _labels(sides[1], equation)
    for label in output:
        if label != _ELLIPSIS and not any(label in labels for labels in inputs):
            raise ValueError(
                f"Einsum output subscripts for equation '{equation}' has label '{label}' which is "
                "not present in the input subscripts"
            )
    return _Equation(inputs, output)


def _labels(subscripts: str, equation: str) -> Labels:
    before, ellipsis, after = subscripts.partition(_ELLIPSIS)
    if "." in before + after:
        raise ValueError(
            f"Expected at most one ellipsis (...), but found {subscripts.count('.')} periods (.) "
            f"in the input subscript: {subscripts} of equation {equation}"
        )
    return (*before, *([_ELLIPSIS] if ellipsis else []), *after)


def _infer(c: Any, shapes: list[TensorShape]) -> TensorShape:
    equation = _parsed(c.attrs["equation"])
    if len(equation.inputs) != len(shapes):
        raise ValueError(
            f"Expected {len(equation.inputs)} inputs for equation '{c.attrs['equation']}' but got: "
            f"{len(shapes)}"
        )
    sizes: dict[str, int | None] = {}
    around = TensorShape(())  # the shape that the ellipses broadcast to
    for labels, shape in zip(equation.inputs, shapes, strict=True):
        if shape.sizes is None:
            around = TensorShape(None) if _ELLIPSIS in labels else around
            continue
        named, rest = _split(labels, shape.sizes)
        around = broadcast(around, rest)
        for label, size in named:
            known = sizes.get(label)
            if known is not None and size is not None and known != size:
                raise ValueError(f"Dimensions must be equal, but are {known} and {size}")
            sizes[label] = known if size is None else size
    if _ELLIPSIS not in equation.output:
        if around.sizes:
            raise ValueError(f"Shape must be at most rank 0 but is rank {len(around.sizes)}")
        return TensorShape([sizes.get(label) for label in equation.output])
    if around.sizes is None:
        return TensorShape(None)
    place = equation.output.index(_ELLIPSIS)
    before, after = equation.output[:place], equation.output[place + 1 :]
    found = [*(sizes.get(v) for v in before), *around.sizes, *(sizes.get(v) for v in after)]
    return TensorShape(found)


def _split(labels: Labels, sizes: Any) -> tuple[list[tuple[str, Any]], tuple[Any, ...]]:
    """Return the size of each label, and the sizes that the ellipsis stands for."""
    extra = len(sizes) - len(labels) + (_ELLIPSIS in labels)
    if extra < 0 or (extra and _ELLIPSIS not in labels):
        wanted = len(labels) - (_ELLIPSIS in labels)
        least = "at least " if _ELLIPSIS in labels else ""
        raise ValueError(f"Shape must be {least}rank {wanted} but is rank {len(sizes)}")
    if _ELLIPSIS not in labels:
        return list(zip(labels, sizes, strict=True)), ()
    place = labels.index(_ELLIPSIS)
    before = zip(labels[:place], sizes[:place], strict=True)
    after = zip(labels[place + 1 :], sizes[place + extra :], strict=True)
    return [*before, *after], tuple(sizes[place : place + extra])


def _kernel(inputs: Any, *, equation: str) -> np.ndarray:
    parsed = _parsed(equation)
    _check(parsed, inputs)
    labels = dict.fromkeys(label for part in parsed.inputs for label in part)
    numbers: dict[str, Any] = {label: i for i, label in enumerate(labels)}
    numbers[_ELLIPSIS] = Ellipsis

    def places(labels: Labels) -> list[Any]:
        return [numbers[label] for label in labels]

    operands: list[Any] = []
    for part, array in zip(parsed.inputs, inputs, strict=True):
        operands += [array, places(part)]
    once = tuple(dict.fromkeys(parsed.output))
    found = np.einsum(*operands, places(once), optimize=len(inputs) > 1)
    if once != parsed.output:
        found = _on_diagonals(found, once, parsed.output, places)
    return np.array(found)  # not a view of an input


def _check(parsed: _Equation, inputs: Any) -> None:
    """Reject what NumPy would accept: broadcasting a label of size 1, and any type."""
    sizes: dict[str, int] = {}
    for i, (labels, array) in enumerate(zip(parsed.inputs, inputs, strict=True)):
        if array.dtype.char not in "fdFD":
            raise InvalidArgumentError(
                None, None, f"No OpKernel was registered to support Op 'Einsum' of {array.dtype}"
            )
        rank = len(labels)
        if array.ndim < rank - 1 or (_ELLIPSIS not in labels and array.ndim != rank):
            raise ValueError(f"Expected input {i} to have rank {rank} but got: {array.ndim}")
        named, around = _split(labels, array.shape)
        if around and _ELLIPSIS not in parsed.output:
            raise ValueError(
                f"Output contains {len(around)} broadcasting dimension(s) but no ellipsis (...) "
                "was found in the output subscripts."
            )
        for label, size in named:
            if sizes.setdefault(label, size) != size:
                raise ValueError(
                    f"Expected dimension {sizes[label]} of label '{label}' in the input shaped "
                    f"{list(array.shape)} but got dimension {size}"
                )


def _on_diagonals(found: np.ndarray, once: Labels, output: Labels, places: Any) -> np.ndarray:
    named, around = _split(once, found.shape)
    sizes = dict(named)
    shape: list[int] = []
    for label in output:
        shape += around if label == _ELLIPSIS else [sizes[label]]
    result = np.zeros(shape, found.dtype)
    np.einsum(result, places(output), places(once))[...] = found  # a view of the diagonals
    return result


def _gradient(b: OpBuilder, op: Any, dy: Any) -> list[Any]:
    """Return the gradient of each input: `dy` times the other input, by an equation too."""
    equation, inputs = _parsed(op.attrs["equation"]), list(op.inputs)
    both = [*zip(equation.inputs, inputs, strict=True)]
    return [
        _gradient_of(b, equation, dy, part, both[:i] + both[i + 1 :]) for i, part in enumerate(both)
    ]


def _gradient_of(b: OpBuilder, equation: _Equation, dy: Any, part: Any, others: list[Any]) -> Any:
    """First compute a product with the ellipsis in front and each label of `dy` or the other input
    once. Then sum over broadcast dimensions and restore the input's own labels.
    """
    labels, x = part
    given = [(equation.output, dy), *((other, b.conj(y)) for other, y in others)]
    known = {label for other, _ in given for label in other}
    own = dict.fromkeys(label for label in labels if label != _ELLIPSIS)
    kept = "".join(label for label in own if label in known)
    dots = _ELLIPSIS if _ELLIPSIS in labels else ""
    sides = ",".join("".join(other) for other, _ in given)
    front = _ELLIPSIS if _ELLIPSIS in known else dots
    found = b.einsum_op([value for _, value in given], f"{sides}->{front}{kept}")
    whole = "".join(labels)
    if front:
        found = b.sum_to(found, b.einsum_op([x], f"{whole}->{dots}{kept}"))
    lacking = [label for label in own if label not in known]
    if lacking:
        sizes = [b.shape(x)[_axis(labels, label)] for label in lacking]
        ones = b.fill(b.stack(sizes), b.cast(1, x.dtype))
        return b.einsum_op([found, ones], f"{dots}{kept},{''.join(lacking)}->{whole}")
    return found if whole == dots + kept else b.einsum_op([found], f"{dots}{kept}->{whole}")


def _axis(labels: Labels, label: str) -> int:
    """Return the axis of a label, counted from the end if it comes after the ellipsis."""
    place = labels.index(label)
    return place - len(labels) if _ELLIPSIS in labels[:place] else place


@define(
    "Einsum",
    "inputs: N*T -> output: T",
    "equation: string; N: int >= 1; T: type",
    infer=_infer,
    kernel=_kernel,
    gradient=_gradient,
    kind=Kind.CONTRACTION,
    samples=[
        Sample([r(2, 3), r(3, 4)], equation="ij,jk->ik", T="float32"),
        Sample([r(5, 2, 3), r(3, 4)], equation="...ij,...jk->...ik", T="float64"),
        Sample([r(3, 3)], equation="ii->i", T="float32"),
        Sample([r(3)], equation="i->ii", T="complex64"),
        Sample([r(2, 3, 4)], equation="i...->...i", T="float32"),
        Sample([r(3), r(3)], equation="i,i->", T="float32"),
        Sample([r(2, 3), r(3, 4)], equation="ij,jk->k", T="float64"),
        Sample([r(2, 3, 2), r(3)], equation="iji,j->ij", T="float64"),
        Sample([r(3, 2, 4), r(1, 3, 5)], equation="i...k,...ij->j...", T="float64"),
        Sample([r(2, 3), r(4, 3, 2)], equation="ij,...jk->...ik", T="complex128"),
    ],
)
def einsum_op(inputs, equation, name=None):
    """Return sums of products of the elements of one or two tensors, by a subscript equation."""
