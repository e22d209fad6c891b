"""Every op can be found by searching the source for its name."""

import inspect
import sys

import pytest

from headrace._src.graph.definition import definitions


@pytest.mark.parametrize("op_type", definitions())
def test_the_family_of_an_op_names_it_in_full(op_type):
    home = definitions()[op_type].home
    assert f'"{op_type}"' in inspect.getsource(sys.modules[home]), (
        f"{home} puts the name {op_type} together from parts, so that no search finds it"
    )
