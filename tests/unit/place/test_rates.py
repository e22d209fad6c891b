"""Rates of work that are fitted to measured steps."""

import pytest

import headrace as tf
from headrace._src.devices.device import local_devices
from headrace._src.pipeline import Options, optimise, prepare
from headrace._src.place.estimate import (
    Roofs,
    estimate_flow,
    seconds_of,
    total,
    workload,
)
from headrace._src.place.rates import TimedSample, fit_rates, show_rates

ROOFS = Roofs(flops=1e9, bandwidth=1e8, efficiency=0.5, kernel=1e-6, call=1e-4)


def step():
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [64, 48], name="x")
        w = tf.get_variable("w", [48, 40], use_resource=False)
        y = tf.reduce_sum(tf.nn.relu(tf.matmul(x, w)))
        options = Options(local_devices({"CPU": 1})[:1], soft_placement=True)
        return optimise(prepare([y], [], [x], options), [(64, 48)], options)


def test_a_workload_is_the_sum_of_its_items_and_a_call():
    flow = step()
    amounts = workload(flow, ROOFS)
    assert amounts["product flops"] == 2 * 64 * 48 * 40
    assert amounts["calls"] == 1
    items = estimate_flow(flow, {"CPU": ROOFS}).seconds["CPU"]
    assert seconds_of(amounts, ROOFS) == pytest.approx(items + ROOFS.call)


def test_measured_rates_come_first():
    roofs = Roofs(rates={"product flops": 2.0})
    assert seconds_of({"product flops": 3.0}, roofs) == 6.0
    assert roofs.rate("winograd forward flops") == Roofs().rate("winograd forward flops")


def test_rates_are_found_again():
    true = {"product flops": 4e-9, "bytes": 2e-8, "calls": 3e-5}
    work = [
        {"product flops": 1e6, "bytes": 1e3, "calls": 1.0},
        {"product flops": 1e4, "bytes": 1e6, "calls": 1.0},
        {"product flops": 1e3, "bytes": 1e2, "calls": 1.0},
        {"product flops": 1e7, "bytes": 1e6, "calls": 1.0},
    ]
    roofs = Roofs(rates=true)
    samples = [TimedSample(f"step {n}", w, seconds_of(w, roofs)) for n, w in enumerate(work)]
    found = fit_rates(samples, ROOFS)
    assert found == pytest.approx(true, rel=0.05)
    again = fit_rates(samples[::-1], ROOFS)
    assert again == pytest.approx(found)


def test_work_that_tells_nothing_keeps_its_roof_and_none_is_free():
    work = {"product flops": 1e6, "kernels": 1e-9}
    found = fit_rates([TimedSample("step", work, 1e-3)], ROOFS)
    assert found["kernels"] == pytest.approx(ROOFS.kernel)
    assert found["product flops"] == pytest.approx(1e-9, rel=0.01)
    quick = fit_rates([TimedSample("step", work, 1e-9)], ROOFS)
    assert quick["product flops"] == pytest.approx(0.05 * ROOFS.rate("product flops"))
    assert fit_rates([], ROOFS) == {}


def test_a_sample_needs_a_time():
    with pytest.raises(ValueError, match="step s can't have taken 0 seconds"):
        TimedSample("s", {}, 0)


def test_rates_are_shown_as_speeds():
    shown = show_rates({"product flops": 1e-11, "kernels": 5e-7})
    assert shown.splitlines() == [
        "kernels             500.0 ns each",
        "product flops       100.0 G/s",
    ]


def test_amounts_are_added_by_name():
    assert total([{"a": 1.0}, {"a": 2.0, "b": 3.0}]) == {"a": 3.0, "b": 3.0}
