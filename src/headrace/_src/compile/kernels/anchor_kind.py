"""Kinds of anchors. A kind is declared once, beside its kernels: how groups around it are built, in
a step and ahead of time, and what it means in NumPy. `build.families` makes tables of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from headrace._src.core.dtypes import as_dtype

if TYPE_CHECKING:  # a kind's file is also loaded for single operations, which need no builder
    from headrace._src.compile.build.plan_builder import Builder
    from headrace._src.compile.regions.groups import Group

__all__ = [
    "AnchorKind",
    "Arrays",
    "Family",
    "as_given",
    "channels_first",
    "numpy_dtype",
    "splice",
    "wide",
]

Arrays = list[np.ndarray]


def _always(geometry: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Family:
    """build adds a group's calls to a plan; supports(geometry) tells whether there are kernels."""

    build: Callable[[Builder, Group], None]
    supports: Callable[[Any], bool] = _always


@dataclass(frozen=True, slots=True)
class AnchorKind:
    """A kind of anchor, by the name that lowering rules give it.

    family: how groups around it are built; None if the interpreter runs it
    ahead: the same in models that are compiled ahead of time, if it is another way
    meanings: of each class of geometry, the function of it and its operands, in NumPy. The geometry
        must determine the result: attributes are not looked at.
    """

    name: str
    family: Family | None
    ahead: Family | None = None
    meanings: Mapping[type, Callable[..., Arrays]] = field(default_factory=dict)


def splice(builder: Builder, group: Group, fragment: Any) -> None:
    """Add the fragment of a plan that computes the outputs of a group's head from its operands."""
    node = group.head
    inputs = {i: builder.whole(node.inputs[i]) for i in node.geometry.operands}
    outputs = {i: builder.result(v) for i, v in enumerate(node.outputs)}
    builder.splice(fragment, inputs, outputs, node.name)


# -- Meanings --------------------------------------------------------------------------------------


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(as_dtype(dtype).as_numpy_dtype)


def wide(x: np.ndarray) -> np.ndarray:
    """16-bit floats as float32; other arrays as they are."""
    narrow = x.dtype in (np.float16, ml_dtypes.bfloat16)
    return x.astype(np.float32) if narrow else x


def channels_first(g: Any, image: np.ndarray) -> np.ndarray:
    """An image of an anchor's data format as [n, c, h, w]."""
    return image if g.data_format == "NCHW" else image.transpose(0, 3, 1, 2)


def as_given(g: Any, image: np.ndarray) -> np.ndarray:
    """An image [n, c, h, w] in an anchor's data format."""
    return image if g.data_format == "NCHW" else image.transpose(0, 2, 3, 1)
