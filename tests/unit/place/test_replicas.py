"""Simulated data-parallel training, against what can be computed by hand."""

import pytest

from headrace._src.devices.device import LinkCost
from headrace._src.place import replicas
from headrace._src.place.cost_graph import CostGraph, CostItem, Output
from headrace._src.place.replicas import (
    ReplicaCluster,
    ReplicaStep,
    Way,
    replica_step,
    simulate_replicas,
)

NETWORK = LinkCost(0.001, 1e9)
MB = 1e6


def simulated(step, workers, servers=1, way=Way.ASYNCHRONOUS, network=NETWORK, **options):
    cores = options.pop("cores", None)
    return simulate_replicas(step, ReplicaCluster(workers, servers, network, cores), way, **options)


def test_one_worker_adds_up():
    """Two latencies for the parameters, two for the gradients, bytes once each way."""
    step = ReplicaStep([0.1], 100 * MB, 50 * MB, overhead=0.02, request=0.003, per_byte=1e-10)
    expected = 4 * 0.001 + 0.1 + 0.05 + 0.12 + 2 * 0.003 + 0.015
    for way in (Way.ASYNCHRONOUS, Way.SYNCHRONOUS):
        found = simulated(step, 1, way=way)
        assert found.median == pytest.approx(expected)
        assert found.rate == pytest.approx(1 / expected)


def test_servers_share_the_bytes():
    """A worker's own port carries all of them; a server's only its part."""
    step = ReplicaStep([0.0], 100 * MB, 0.0)
    assert simulated(step, 1, 10).median == pytest.approx(0.104, rel=1e-3)
    many = simulated(step, 40, 10, Way.SYNCHRONOUS, steps=5)
    assert many.median == pytest.approx(0.4, rel=0.3)
    assert many.bottleneck == "parameter servers' ports"


def test_asynchronous_workers_scale_until_a_port_is_full():
    step = ReplicaStep([1.0], 100 * MB, 0.0)
    alone = simulated(step, 1).rate
    assert simulated(step, 4).rate == pytest.approx(4 * alone, rel=0.02)
    full = simulated(step, 50)
    assert full.rate == pytest.approx(1e9 / (100 * MB), rel=0.05)
    assert full.busy["parameter servers' ports"] > 0.95


def test_a_shared_host_is_limited_by_its_cores():
    step = ReplicaStep([0.1], 0.0, 0.0)
    free = LinkCost(0.0, 1e12)
    found = simulated(step, 4, network=free, cores=2)
    assert found.rate == pytest.approx(2 / 0.1, rel=0.02)
    assert found.bottleneck == "the host's cores"


def test_synchronous_steps_wait_for_the_slowest_and_backups_do_not():
    step = ReplicaStep([0.1] * 95 + [1.0] * 5, 0.0, 0.0)
    sync = [
        simulated(step, 50, way=Way.SYNCHRONOUS, backups=b, steps=40).median for b in (0, 3, 10)
    ]
    assert sync[0] > 0.9  # nearly every step has a slow worker
    assert sync[2] < 0.3
    assert sync[0] > sync[1] >= sync[2] - 1e-9


def test_a_late_worker_leaves_its_token_to_another_one():
    """SyncReplicasOptimizer's tokens, event by event: workers of 1 and of 10 seconds, one backup.

    The quick worker makes the updates at 1 s, 2 s and so on. Each adds two tokens, and tokens are
    taken in order, so it computes for the step of each token twice: once in time, once in vain.
    """
    step = ReplicaStep([[1.0], [10.0]])
    cluster = ReplicaCluster(2, network=None)
    found = simulate_replicas(step, cluster, Way.SYNCHRONOUS, backups=1, steps=50)
    assert set(found.steps) == {1.0, 2.0}
    assert found.rate == pytest.approx(0.55, rel=0.05)
    assert found.dropped == pytest.approx(0.5, abs=0.03)


def test_workers_draw_from_their_own_seconds():
    for way, expected in ((Way.SYNCHRONOUS, 3.0), (Way.ALL_REDUCE, 3.0)):
        found = simulate_replicas(ReplicaStep([[1.0], [3.0]]), ReplicaCluster(2, network=None), way)
        assert found.median == pytest.approx(expected)
    with pytest.raises(ValueError, match="2 lists of seconds for 3 workers"):
        simulate_replicas(ReplicaStep([[1.0], [3.0]]), ReplicaCluster(3))
    with pytest.raises(ValueError, match="at least one measurement"):
        ReplicaStep([[1.0], []])


def test_tokens_can_take_their_time():
    step = ReplicaStep([1.0], update=0.25)
    found = simulate_replicas(step, ReplicaCluster(3, network=None), Way.SYNCHRONOUS)
    assert found.median == pytest.approx(1.25)


def test_a_ring_takes_the_same_bytes_for_any_number_of_workers():
    step = ReplicaStep([0.1], 0.0, 100 * MB)
    free = LinkCost(0.0, 1e9)
    for n in (2, 4, 100):
        found = simulated(step, n, 0, Way.ALL_REDUCE, free)
        assert found.median == pytest.approx(0.1 + 2 * (n - 1) / n * 0.1)
    assert simulated(step, 1, 0, Way.ALL_REDUCE, free).median == pytest.approx(0.1)


def test_bundles_of_servers_stand_for_all_of_them(monkeypatch):
    step = ReplicaStep([0.05], 20 * MB, 20 * MB, request=1e-5, per_byte=1e-10)
    whole = simulated(step, 20, 8)
    monkeypatch.setattr(replicas, "_MESSAGES", 80)
    assert simulated(step, 20, 8).median == pytest.approx(whole.median, rel=0.05)


def test_the_same_seed_gives_the_same_steps():
    step = ReplicaStep([0.1, 0.2, 0.3], MB, MB)
    first, second, other = (simulated(step, 3, seed=s).steps for s in (1, 1, 2))
    assert first == second != other


@pytest.mark.parametrize(
    ("workers", "servers", "options", "message"),
    [
        (0, 1, {}, "0 workers"),
        (2, 1, {"way": Way.SYNCHRONOUS, "backups": 2}, "backups"),
        (2, 1, {"backups": 1}, "only synchronous"),
        (2, 0, {}, "all-reduce"),
    ],
)
def test_mistakes_are_refused(workers, servers, options, message):
    with pytest.raises(ValueError, match=message):
        simulated(ReplicaStep([0.1], 0, 0), workers, servers, **options)


def test_variables_and_their_updates_are_on_the_servers():
    """v -> compute -> gradient -> update of v; the read and the gradient travel."""

    def item(name, group, seconds, state=0):
        return CostItem(name, {"CPU": seconds}, group, state)

    graph = CostGraph.apart(
        [item("v", 0, 0.0, 400), item("compute", 1, 2.0), item("update", 0, 0.5)],
        [Output("v:0", 0, 400, (1, 2)), Output("g:0", 1, 300, (2,))],
    )
    found = replica_step(graph, slow=0.1, by=3.0)
    assert (found.pulled, found.pushed) == (400, 300)
    assert found.per_byte == pytest.approx(0.5 / 700)
    assert sorted(set(found.seconds)) == [2.0, 6.0]
    assert len(found.seconds) == 100 and found.seconds.count(6.0) == 10
