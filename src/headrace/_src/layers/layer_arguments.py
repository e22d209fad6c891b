"""Normalise the arguments of layers' constructors; and turn layers into functions.

`sizes` makes one entry per spatial dimension, `padding_name` and `channels_order` check names,
`data_format_name` returns the ops' name for an order of axes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from headrace._src.core.tensor_shape import as_shape
from headrace._src.variables.initializers import Ones, Zeros

__all__ = [
    "ONES",
    "ZEROS",
    "as_function",
    "channels_order",
    "data_format_name",
    "known_channels",
    "padding_name",
    "sizes",
]

ZEROS, ONES = Zeros(), Ones()  # the default initializers of biases, scales and averages


def sizes(value: Any, count: int, name: str) -> tuple[int, ...]:
    """Return `count` integers, given one integer or that many."""
    given = (value,) * count if isinstance(value, int) else value
    message = f"The `{name}` argument must be a tuple of {count} integers. Received: {value}"
    try:
        found = tuple(given)
    except TypeError:
        raise ValueError(message) from None
    if len(found) != count:
        raise ValueError(message)
    try:
        return tuple(int(n) for n in found)
    except (ValueError, TypeError):
        raise ValueError(message) from None


def padding_name(value: Any, causal: bool = False) -> str:
    """Return 'valid', 'same' or, where allowed, 'causal', in lower case."""
    name = value.lower() if isinstance(value, str) else value
    if name not in ("valid", "same", "causal"):
        raise ValueError(
            'The `padding` argument must be one of "valid", "same" (or "causal", only for '
            f"`Conv1D`). Received: {value}"
        )
    if name == "causal" and not causal:
        raise ValueError("Causal padding is only supported for `Conv1D` and `SeparableConv1D`.")
    return name


def channels_order(value: Any) -> str:
    """Return 'channels_first' or 'channels_last', the default."""
    name = "channels_last" if value is None else str(value).lower()
    if name not in ("channels_first", "channels_last"):
        raise ValueError(
            'The `data_format` argument must be one of "channels_first", "channels_last". '
            f"Received: {value}"
        )
    return name


def data_format_name(order: str, spatial: int) -> str:
    """Return a name such as NHWC or NCW."""
    space = "DHW"[-spatial:]
    return f"NC{space}" if order == "channels_first" else f"N{space}C"


def known_channels(input_shape: Any, order: str) -> int:
    """Return the number of channels of a layer's input, which must be known."""
    found = as_shape(input_shape).as_list()[1 if order == "channels_first" else -1]
    if found is None:
        raise ValueError("The channel dimension of the inputs should be defined. Found `None`.")
    return found


def as_function(layer: Any, name: str, reuse: bool = True) -> Callable[..., Any]:
    """Return the function that makes a layer and calls it: `dense(inputs, ...)` for Dense.

    It takes the inputs, the layer's arguments and, if the layer has variables, `reuse`: whether
    they must already exist. `name` is then also their scope.
    """
    keep = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [p for p in inspect.signature(layer).parameters.values() if p.kind is keep]
    parameters = [inspect.Parameter("inputs", keep), *own]
    if reuse:
        parameters.append(inspect.Parameter("reuse", keep, default=None))
    signature = inspect.Signature(parameters)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        inputs = given.pop("inputs")
        if reuse:
            given |= {"_scope": given.get("name"), "_reuse": given.pop("reuse", None)}
        return layer(**given)(inputs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = layer.__module__
    function.__doc__ = f"Make a {layer.__name__} and return its function of `inputs`."
    function.__signature__ = signature  # type: ignore[attr-defined]  # for help() and the laws
    function.layer = layer  # type: ignore[attr-defined]  # for scripts/generate_api
    return function
