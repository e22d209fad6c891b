"""tf.contrib.training.HParams: named hyperparameters with types. In: values, and strings such as
"rate=0.1,sizes=[3,4]" that change them. Out: attributes.
"""

from __future__ import annotations

import json
import numbers
import re
from collections.abc import Mapping
from typing import Any

from headrace._src.core.export import export

__all__ = ["HParams", "parse_values"]

_ASSIGNMENT = re.compile(
    r"""(?P<name>[a-zA-Z][\w.]*)           # rate
        (?:\[\s*(?P<index>\d+)\s*\])?      # [2]
        \s*=\s*
        (?:\[(?P<list>[^\]]*)\]|(?P<value>[^,\[]*))
        (?:,\s*|$)""",
    re.VERBOSE,
)
_TRUTHS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}


@export("contrib.training.parse_values")
def parse_values(
    values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
    """Parse comma-separated assignments to a dict from names to values of the types in `type_map`:
    `name=value`, `name=[value,value]`, or `name[index]=value`, which gives a dict from index to
    value. Names without a type raise ValueError, or are skipped if `ignore_unknown`.
    """
    found: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if match is None:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = match.end()
        if match["name"] in type_map:
            _assign(found, match, type_map[match["name"]], values)
        elif not ignore_unknown:
            raise ValueError(f"Unknown hyperparameter type for {match['name']}")
    return found


def _assign(found: dict[str, Any], match: re.Match[str], kind: type, values: str) -> None:
    name, index = match["name"], match["index"]

    def parsed(text: str) -> Any:
        try:
            return _TRUTHS[text] if kind is bool else kind(text)
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}' "
                f"in {values}"
            ) from None

    if index is not None and match["list"] is not None:
        raise ValueError("Assignment of a list to a list index.")
    shown = name if index is None else f"{name}[{index}]"
    before = found.get(name)
    if before is not None and (index is None or not isinstance(before, dict)):
        raise ValueError(f"Multiple assignments to variable '{shown}' in {values}")
    if match["list"] is not None:
        parts = [part.strip() for part in match["list"].split(",")]
        found[name] = [parsed(part) for part in parts if part]
    elif index is None:
        found[name] = parsed(match["value"].strip())
    elif int(index) in (before or {}):
        raise ValueError(f"Multiple assignments to variable '{shown}' in {values}")
    else:
        found.setdefault(name, {})[int(index)] = parsed(match["value"].strip())


def _cast(name: str, kind: Any, value: Any) -> Any:
    """Convert a value to a hyperparameter's type: only numbers are converted, and only without
    loss.
    """
    if kind is type(None):
        return value
    found: Any = value
    wrong = (
        isinstance(value, bool) != (kind is bool)
        or (issubclass(kind, str) and not isinstance(value, str | bytes))
        or (issubclass(kind, int) and not isinstance(value, numbers.Integral))
        or (issubclass(kind, float) and not isinstance(value, numbers.Number))
    )
    if wrong:
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")
    return found if issubclass(kind, str) else kind(found)


@export("contrib.training.HParams")
class HParams:
    """Hyperparameters: `HParams(rate=0.1, sizes=[3, 4])` has attributes `rate` and `sizes`.

    The type of each is that of its first value: numbers, strings, bools, or lists of one of these.
    hparam_def: None; TensorFlow's HParamDef isn't supported. model_structure: any object that a
    program stores with them.

    State: `_hparam_types`, (type, whether it's a list) by name; the values are attributes.
    """

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        if hparam_def is not None:
            raise ValueError(
                "HParams are not made from a HParamDef here: give names and values, or parse_json"
            )
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter; its name must not be that of another, or of a method."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
            self._hparam_types[name] = (type(value[0]), True)
        else:
            self._hparam_types[name] = (type(value), False)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Change a hyperparameter, which keeps its type; KeyError if there is none of that name."""
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list):
            if not is_list:
                raise ValueError(f"Must not pass a list for single-valued parameter: {name}")
            setattr(self, name, [_cast(name, kind, each) for each in value])
        else:
            if is_list:
                raise ValueError(f"Must pass a list for multi-valued parameter: {name}.")
            setattr(self, name, _cast(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter, if it's there."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Change hyperparameters by a string, see `parse_values`; return self."""
        types = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, types))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Change hyperparameters by a dict; return self."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: Mapping[str, Any]) -> HParams:
        """The older name of `override_from_dict`."""
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> HParams:
        """Change hyperparameters by a JSON object; return self."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(
        self,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Return them as a JSON object; functions among them are left out."""
        kept = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(kept, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default` if there is none; `default` must have the value's type."""
        if key not in self._hparam_types:
            return default
        if default is not None:
            self._check_default(key, default)
        return getattr(self, key)

    def _check_default(self, key: str, default: Any) -> None:
        kind, is_list = self._hparam_types[key]
        shown = f"list<{kind}>" if is_list else str(kind)
        message = f"Hparam '{key}' of type '{shown}' is incompatible with default={default}"
        if is_list != isinstance(default, list):
            raise ValueError(message)
        try:
            for each in default if is_list else [default]:
                _cast(key, kind, each)
        except ValueError as error:
            raise ValueError(f"{message}. {error}") from None

    def get_model_structure(self) -> Any:
        """Return the object stored with the hyperparameters."""
        return self._model_structure

    def set_model_structure(self, model_structure: Any) -> None:
        """Store an object with the hyperparameters."""
        self._model_structure = model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({sorted(self.values().items())!r})"
