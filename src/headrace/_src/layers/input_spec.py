"""A layer's requirements for its inputs: rank, dtype and sizes, checked before each call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace._src.core import nest
from headrace._src.core.export import export
from headrace._src.core.tensor_shape import as_shape

__all__ = ["InputSpec", "check_inputs"]


@export("layers.InputSpec")
class InputSpec:
    """The rank (exact, least or most), dtype, shape and sizes of some axes of one input.

    A field that is None isn't checked; a size of None in `shape` or `axes` matches any.
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Any = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: Mapping[int, int | None] | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.ndim = len(shape) if shape is not None else ndim
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.axes = {int(axis): size for axis, size in (axes or {}).items()}
        most = (self.ndim or max_ndim or 0) - 1
        for axis in self.axes:
            if (self.ndim or max_ndim) and axis > most:
                raise ValueError(f"Axis {axis} is greater than the maximum allowed value: {most}")

    def __repr__(self) -> str:
        given = [f"{name}={value}" for name, value in self.get_config().items() if value]
        return f"InputSpec({', '.join(given)})"

    def get_config(self) -> dict[str, Any]:
        """Return arguments from which `from_config` makes an equal spec."""
        fields = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes")
        return {name: getattr(self, name) for name in fields}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> InputSpec:
        """Return a spec made from the result of get_config."""
        return cls(**config)


def check_inputs(specs: Any, inputs: Any, layer: str) -> None:
    """Raise ValueError if `inputs` don't match `specs` (an InputSpec or a nest)."""
    if not specs:
        return
    specs, inputs = nest.flatten(specs), nest.flatten(inputs)
    if len(specs) != len(inputs):
        raise ValueError(
            f"Layer {layer} expects {len(specs)} inputs, but it received {len(inputs)} input "
            f"tensors. Inputs received: {inputs}"
        )
    for position, (spec, value) in enumerate(zip(specs, inputs, strict=True)):
        if spec is not None:
            _check(spec, value, f"Input {position} of layer {layer} is incompatible with the layer")


def _check(spec: InputSpec, value: Any, what: str) -> None:
    sizes = as_shape(value.shape).sizes
    ranked = (spec.ndim, spec.min_ndim, spec.max_ndim)
    if sizes is None:
        if any(rank is not None for rank in ranked):
            raise ValueError(
                f"{what}: its rank is undefined, but the layer requires a defined rank."
            )
        return
    rank, shape = len(sizes), list(sizes)
    if spec.ndim is not None and rank != spec.ndim:
        raise ValueError(
            f"{what}: expected ndim={spec.ndim}, found ndim={rank}. Full shape received: {shape}"
        )
    if spec.max_ndim is not None and rank > spec.max_ndim:
        raise ValueError(f"{what}: expected max_ndim={spec.max_ndim}, found ndim={rank}")
    if spec.min_ndim is not None and rank < spec.min_ndim:
        raise ValueError(
            f"{what}: expected min_ndim={spec.min_ndim}, found ndim={rank}. Full shape received: "
            f"{shape}"
        )
    if spec.dtype is not None and value.dtype != spec.dtype:
        raise ValueError(f"{what}: expected dtype={spec.dtype}, found dtype={value.dtype}")
    for axis, size in spec.axes.items():
        size = getattr(size, "value", size)
        if size is not None and shape[axis] not in (size, None):
            raise ValueError(
                f"{what}: expected axis {axis} of input shape to have value {size} but received "
                f"input with shape {shape}"
            )
    if spec.shape is not None and not as_shape(spec.shape).is_compatible_with(shape):
        raise ValueError(f"{what}: expected shape={spec.shape}, found shape={shape}")
