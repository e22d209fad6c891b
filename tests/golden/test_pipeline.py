"""The printed form of small steps after each pass."""

import pytest

import headrace as tf
from headrace._src.devices.device import local_devices
from headrace._src.pipeline import PASSES, Options, prepare
from tests.golden.steps import HERE, STEPS, forms, printed

PRUNED = """\
feed  x:0 float32[?,3]
w:0 float32[3] = Const()
product:0 float32[?,3] = Mul(x:0, w:0)
fetch product:0"""

SPECIALISED = """\
feed  x:0 float32[2,3]
w:0 float32[3] = [1.0, 2.0, 3.0]
product:0 float32[2,3] = Mul(x:0, w:0)
fetch product:0"""

SCHEDULED = """\
s0 = feed x:0
s1 = [1.0, 2.0, 3.0]
s2 = Mul(s0, s1)  # product  free s0
fetch s2  # product:0"""


def test_each_stage_prints():
    with tf.Graph().as_default():
        x = tf.placeholder("float32", [None, 3], name="x")
        product = tf.multiply(x, tf.constant([1.0, 2.0, 3.0], name="w"), name="product")
        tf.identity(product, name="not_needed")
        seen = forms([product], [], {x: (2, 3)})
    expected = {name: SPECIALISED for stage, name, *_ in PASSES if stage == "optimise"}
    expected |= dict.fromkeys(("prune", "reread", "place", "transfer"), PRUNED)
    expected |= dict.fromkeys(("compress", "sort", "read"), PRUNED)
    expected |= dict.fromkeys(("in place", "cut"), SPECIALISED)
    expected["schedule"] = SCHEDULED
    assert seen == expected


def test_a_step_on_several_devices_prints_them():
    with tf.Graph().as_default():
        with tf.device("/cpu:1"):
            c = tf.constant(1.0, name="c")
        with tf.device("/cpu:0"):
            d = tf.negative(c, name="d")
        devices = local_devices({"CPU": 2})
        step = prepare([d], [], [], Options(devices=devices))
    assert str(step) == (
        f"c:0 float32[] = Const() on {devices[1].name}\n"
        f"d:0 float32[] = Neg(c:0) on {devices[0].name}\n"
        "fetch d:0"
    )


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_the_passes_print_what_they_did(step):
    assert printed(step) == (HERE / f"{step.__name__}.txt").read_text()
