"""The steps by which a machine is measured: that they run, not how long they take."""

import itertools

from headrace._src.cli.place.micro_graphs import MICRO_GRAPHS, calibrated, measure
from headrace._src.place.estimate import Roofs


def test_micro_graphs_are_timed_and_fitted():
    ticks = itertools.count()
    chosen = [micro for micro in MICRO_GRAPHS if micro.name in ("calls", "small products")]
    samples = measure(1, lambda: float(next(ticks)), chosen)
    assert [sample.name for sample in samples] == [
        "calls, loss",
        "calls, training",
        "small products, loss",
        "small products, training",
    ]
    assert all(sample.seconds == 1.0 for sample in samples)
    loss, training = samples[2:]
    # The gradients of two layers: both weights', and one input's.
    assert training.amounts["product flops"] == loss.amounts["product flops"] * 5 / 2
    roofs = calibrated(Roofs(), samples)
    assert set(roofs.rates) >= {"calls", "product flops"}
    assert roofs.rate("bytes") > 0


def test_their_names_are_different():
    assert len({micro.name for micro in MICRO_GRAPHS}) == len(MICRO_GRAPHS)
