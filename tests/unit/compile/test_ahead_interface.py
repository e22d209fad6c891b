"""Names of compiled models in C, and what their JavaScript refuses."""

from __future__ import annotations

import pytest

from headrace._src.compile.ahead.interface import Interface, Port, c_header, c_identifier
from headrace._src.compile.ahead.javascript import javascript_glue
from headrace._src.compile.ahead.targets import target_for


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("x", "x"),
        ("layer/Softmax:0", "layer_Softmax_0"),
        ("2nd", "model_2nd"),
        ("float", "float_"),
        ("workspace", "workspace_"),
        ("größe", "gr_e"),
        ("//", "model"),
    ],
)
def test_identifiers(name, identifier):
    assert c_identifier(name) == identifier


def ports(*names: str) -> tuple[Port, ...]:
    return tuple(Port(n, "float32", (2, 3)) for n in names)


def test_identifiers_and_their_macros_are_distinct():
    interface = Interface("m", ports("a/b", "A_b"), ports("a:b", "a/b"), 64)
    assert interface.identifiers == ("a_b", "A_b_2", "a_b_3", "a_b_4")


def test_a_function_needs_a_c_name():
    with pytest.raises(ValueError, match="'my-model' can't be a function's name"):
        Interface("my-model", (), (), 64)


def test_c_has_no_strings_of_tensors():
    with pytest.raises(ValueError, match="'s' is of type string"):
        Port("s", "string", ())


def test_names_can_not_break_out_of_comments():
    interface = Interface("m", ports("a*/b"), ports("y"), 64)
    header = c_header(interface, target_for("wasm32"), "evil */ #error\n.pb")
    assert header.count("/*") == header.count("*/")


def test_scalars_have_one_element():
    interface = Interface("m", (Port("s", "int64", ()),), ports("y"), 64)
    header = c_header(interface, target_for("wasm32"), "m.pb")
    assert "#define M_S_ELEMENTS 1\n#define M_S_RANK 0\n#define M_S_SHAPE {1}" in header
    assert "const int64_t* s" in header


def test_glue_names_every_port():
    interface = Interface("m", (Port('say "x"', "int64", (4,)),), ports("y"), 64)
    glue = javascript_glue(interface, "m", "m.pb")
    assert r"""{ name: "say \"x\"", dtype: 'int64', array: BigInt64Array, shape: [4] }""" in glue
    assert "@" not in glue
