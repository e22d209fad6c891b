"""Types, shapes, device names and errors behave as TensorFlow 1.15's, by facts recorded from it."""

import copy
import json
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

from headrace._src.core import device_names, dtypes, errors, tensor_shape

NAMES = {
    "copy": copy,
    "pickle": pickle,
    "device": device_names,
    "dtypes": dtypes,
    "errors": errors,
    "shapes": tensor_shape,
    "T": tensor_shape.TensorShape,
    "D": tensor_shape.Dimension,
    "Spec": device_names.DeviceSpec,
    "np": np,
}
LINES = (pathlib.Path(__file__).parent / "facts.jsonl").read_text().splitlines()


@pytest.mark.parametrize("fact", list(map(json.loads, LINES)), ids=lambda fact: fact["expression"])
def test_fact(fact: dict[str, Any]) -> None:
    if "raises" in fact:
        with pytest.raises(Exception) as caught:
            eval(fact["expression"], dict(NAMES))
        assert caught.type.__name__ == fact["raises"]
    else:
        value = eval(fact["expression"], dict(NAMES))
        assert (repr(value), str(value)) == (fact["repr"], fact["str"])
