"""Functions of a SavedModel. In: the functions of its graph's library, what they capture, and how
their arguments and results are nested. Out: callables that add calls to the default graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace._src.core import nest
from headrace._src.graph.definition import Effect
from headrace._src.graph.graph_functions import GraphFunction
from headrace._src.graph.operation import Operation, Tensor
from headrace._src.graph.type_spec import TensorSpec, TypeSpec
from headrace._src.ops.base.to_tensor import convert_to_tensor
from headrace._src.ops.control.functional import (
    partitioned_call_op,
    stateful_partitioned_call_op,
)

__all__ = ["ConcreteFunction", "SavedFunction", "SignatureMap"]


class ConcreteFunction:
    """A function for one nest of arguments: those of `structured_input_signature`, a tuple of
    positional arguments and a dict, in which tensors are replaced by TypeSpecs. Only tensors are
    passed to the graph's function; other arguments are part of it.

    State: the objects that the function captures (`captures`), whose tensors come after the
    arguments.
    """

    def __init__(
        self,
        function: GraphFunction,
        captures: Sequence[tuple[Any, Tensor]],
        structured_input_signature: Any,
        structured_outputs: Any,
    ) -> None:
        self.function = function
        self.captures = list(captures)
        self.structured_input_signature = structured_input_signature
        self.structured_outputs = structured_outputs
        self.keywords: list[str] = []
        self.positional = 0

    @property
    def name(self) -> str:
        """The function's name in the library."""
        return self.function.name

    @property
    def captured_inputs(self) -> list[Tensor]:
        """The tensors that the function captures."""
        return [tensor for _, tensor in self.captures]

    def take_names(self, keywords: Sequence[str], positional: int) -> ConcreteFunction:
        """Give the arguments names, and say how many may be passed by position."""
        self.keywords, self.positional = list(keywords), positional
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results for arguments that are passed by name."""
        if len(args) > self.positional:
            allowed = self.positional
            raise TypeError(
                f"Expected at most {allowed} positional arguments (and the rest keywords, of "
                f"{tuple(self.keywords)}), got {args}. When calling a concrete function, "
                "positional arguments may not be bound to Tensors within nested structures."
            )
        given = dict(zip(self.keywords, args, strict=False))
        for name, value in kwargs.items():
            if name in given:
                raise TypeError(f"Got two values for keyword '{name}'.")
            given[name] = value
        if set(given) != set(self.keywords):
            missing = sorted(set(self.keywords) - set(given))
            extra = sorted(set(given) - set(self.keywords))
            raise TypeError(
                f"Expected argument names {self.keywords} but got values for {sorted(given)}. "
                f"Missing: {missing}; not known: {extra}."
            )
        specs = [s for s in nest.flatten(self.structured_input_signature) if _is_spec(s)]
        return self.call(
            [
                convert_to_tensor(given[name], spec.dtype, name=name)
                for name, spec in zip(self.keywords, specs, strict=True)
            ]
        )

    def add(self, tensors: Sequence[Tensor]) -> Operation:
        """Add a call to the default graph."""
        is_pure = self.function.effect is Effect.PURE
        call = partitioned_call_op if is_pure else stateful_partitioned_call_op
        made = call([*tensors, *self.captured_inputs], self.function.output_types, self.name)
        return made if isinstance(made, Operation) else made[0].op

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Add a call; return its results, nested as `structured_outputs`."""
        results = iter(self.add(tensors).outputs)
        outputs = [_result(spec, results) for spec in nest.flatten(self.structured_outputs)]
        return nest.pack_sequence_as(self.structured_outputs, outputs)


def _is_spec(value: Any) -> bool:
    return isinstance(value, TypeSpec)


def _result(spec: Any, results: Iterator[Tensor]) -> Any:
    if not isinstance(spec, TypeSpec):
        return spec
    if not isinstance(spec, TensorSpec):
        parts = [next(results) for _ in nest.flatten(spec._component_specs)]
        return spec._from_components(nest.pack_sequence_as(spec._component_specs, parts))
    tensor = next(results)
    tensor.set_shape(spec.shape)
    return tensor


class SavedFunction:
    """A function that was saved for several nests of arguments; a call takes the first that fits.

    State: the functions, and the parameters of the Python function that they were made of.
    """

    def __init__(self, functions: Sequence[ConcreteFunction], spec: Any, message: Any) -> None:
        self.concrete_functions = list(functions)
        self.message = message
        self._parameters = _signature(spec, message.function_spec.is_method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results of the function that fits the arguments."""
        bound = self._parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        given = (bound.args, bound.kwargs)
        for converts in (False, True):
            for function in self.concrete_functions:
                tensors = _fitted(function.structured_input_signature, given, converts)
                if tensors is not None:
                    return function.call(tensors)
        options = "\n".join(
            f"Option {i}: {f.structured_input_signature}"
            for i, f in enumerate(self.concrete_functions, 1)
        )
        raise ValueError(
            "Could not find matching function to call loaded from the SavedModel. Got:\n"
            f"  {given}\nExpected these arguments to match one of the following "
            f"{len(self.concrete_functions)} option(s):\n{options}"
        )


def _signature(spec: Any, is_method: bool) -> inspect.Signature:
    """The parameters that an inspect.FullArgSpec describes, without a method's first one."""
    kinds = inspect.Parameter
    names, defaults = list(spec.args), list(spec.defaults or ())
    values = [kinds.empty] * (len(names) - len(defaults)) + defaults
    parameters = [
        kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=value)
        for name, value in zip(names, values, strict=True)
    ]
    parameters = parameters[1:] if is_method else parameters
    if spec.varargs:
        parameters.append(kinds(spec.varargs, kinds.VAR_POSITIONAL))
    for name in spec.kwonlyargs or ():
        default = (spec.kwonlydefaults or {}).get(name, kinds.empty)
        parameters.append(kinds(name, kinds.KEYWORD_ONLY, default=default))
    if spec.varkw:
        parameters.append(kinds(spec.varkw, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _fitted(expected: Any, given: Any, converts: bool) -> list[Tensor] | None:
    """The tensors among the arguments, None if the arguments don't fit. With `converts`, numbers
    and lists become tensors where tensors are expected.
    """
    if isinstance(expected, TensorSpec):
        if not converts and not isinstance(given, Tensor | np.ndarray | np.generic):
            given = convert_to_tensor(given) if hasattr(given, "value") else given
            if not isinstance(given, Tensor):
                return None
        try:
            tensor = convert_to_tensor(given, expected.dtype if converts else None)
        except (TypeError, ValueError):
            return None
        return [tensor] if expected.is_compatible_with(tensor) else None
    if isinstance(expected, TypeSpec):
        if not expected.is_compatible_with(given):
            return None
        return [convert_to_tensor(t) for t in nest.flatten(expected._to_components(given))]
    if isinstance(expected, Mapping):
        if not isinstance(given, Mapping) or set(expected) != set(given):
            return None
        return _joined(_fitted(expected[k], given[k], converts) for k in sorted(expected))
    if isinstance(expected, list | tuple):
        if not isinstance(given, list | tuple) or len(expected) != len(given):
            return None
        return _joined(_fitted(e, g, converts) for e, g in zip(expected, given, strict=True))
    same = not isinstance(given, Tensor | np.ndarray) and expected == given
    return [] if same else None


def _joined(parts: Iterator[list[Tensor] | None]) -> list[Tensor] | None:
    found = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found


class SignatureMap(Mapping[str, ConcreteFunction]):
    """The signatures of a SavedModel by name: functions that take tensors by name, and return a
    dict.
    """

    def __init__(self, functions: Mapping[str, ConcreteFunction]) -> None:
        self._functions = dict(functions)

    def __getitem__(self, key: str) -> ConcreteFunction:
        return self._functions[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        return f"_SignatureMap({self._functions})"
