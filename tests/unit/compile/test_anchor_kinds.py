"""Kinds of anchors are declared once, and for every anchor that an op has."""

from __future__ import annotations

from headrace._src.compile.build.families import AHEAD, FAMILIES, KINDS
from headrace._src.graph.definition import definitions
from headrace._src.lowering.anchor_geometry import AnchorGeometry
from headrace._src.lowering.rules import Anchor


def test_a_kind_is_declared_once():
    names = [kind.name for kind in KINDS]
    assert len(names) == len({*names})
    assert {*FAMILIES} | {*AHEAD} == {*names}


def test_every_anchor_is_of_a_declared_kind():
    rules = [d.lower for d in definitions().values()]
    named = {rule.family for rule in rules if isinstance(rule, Anchor)}
    assert {"contraction", "convolution", "random", "softmax"} < named
    assert named <= {kind.name for kind in KINDS}


def test_meanings_are_of_geometries_and_none_has_two():
    found = [geometry for kind in KINDS for geometry in kind.meanings]
    assert len(found) == len({*found})
    assert all(issubclass(geometry, AnchorGeometry) for geometry in found)
