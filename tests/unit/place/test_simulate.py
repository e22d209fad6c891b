"""The simulator on steps that can be followed by hand, and what its timelines say."""

import math

import pytest

from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import LinkCost
from headrace._src.place.cost_graph import (
    ClusterModel,
    CostGraph,
    CostItem,
    DeviceModel,
    Output,
    Problem,
)
from headrace._src.place.greedy import greedy
from headrace._src.place.improve import improve
from headrace._src.place.simulate import makespan, score, simulate

NETWORK = LinkCost(1.0, 100.0)  # a second per tensor, 100 bytes per second


def step(seconds, edges, together=(), state=()):
    """A step of items a, b, c, ...; edges: (producer, bytes, readers)."""
    letters = "abcdefghij"
    group = {i: i for i in range(len(seconds))}
    for pair in together:
        group[letters.index(pair[1])] = group[letters.index(pair[0])]
    numbers = {g: n for n, g in enumerate(dict.fromkeys(group.values()))}
    held = dict(state)
    items = [
        CostItem(letters[i], {"CPU": float(s)}, numbers[group[i]], held.get(letters[i], 0))
        for i, s in enumerate(seconds)
    ]
    outputs = [
        Output(f"{a}:0", letters.index(a), size, tuple(letters.index(r) for r in readers))
        for a, size, readers in edges
    ]
    return CostGraph.apart(items, outputs)


def machines(count, **options):
    devices = tuple(DeviceModel(f"m{n}", **options) for n in range(count))
    return ClusterModel(devices, network=NETWORK)


def test_two_machines_work_at_once_and_wait_for_transfers():
    graph = step([1, 4, 2, 1], [("a", 200, "bc"), ("b", 100, "d"), ("c", 100, "d")])
    timeline = simulate(Problem(graph, machines(2)), (0, 0, 1, 0))
    assert [(r.item, r.start, r.end) for r in timeline.ran] == [
        ("a", 0, 1),
        ("b", 1, 5),
        ("c", 4, 6),  # a second of latency, two for 200 bytes
        ("d", 8, 9),
    ]
    assert [(s.tensor, s.start, s.end) for s in timeline.sent] == [("a:0", 1, 4), ("c:0", 6, 8)]
    assert timeline.makespan == 9
    assert timeline.busy == {"m0": 6, "m1": 2}
    assert timeline.traffic == {("m0", "m1"): 200, ("m1", "m0"): 100}
    assert timeline.critical == ("a", "a:0 (sent)", "c", "c:0 (sent)", "d")
    assert timeline.bottleneck == ("processor", "m0", 6 / 9)
    assert str(timeline).splitlines()[-1] == "9000.0000 ms"


def test_a_tensor_is_sent_once_to_each_device():
    graph = step([1, 1, 1, 1], [("a", 100, "bcd")])
    timeline = simulate(Problem(graph, machines(3)), (0, 1, 1, 2))
    assert [(s.target, s.start, s.end) for s in timeline.sent] == [("m1", 1, 3), ("m2", 3, 5)]
    assert timeline.lanes["m0 sends"] == 4
    assert timeline.lanes["m1 receives"] == timeline.lanes["m2 receives"] == 2


def test_devices_of_one_processor_take_turns():
    graph = step([3, 3], [])
    one = ClusterModel((DeviceModel("x", processor="p"), DeviceModel("y", processor="p")))
    assert simulate(Problem(graph, one), (0, 1)).makespan == 6
    two = ClusterModel((DeviceModel("x"), DeviceModel("y")), network=NETWORK)
    assert simulate(Problem(graph, two), (0, 1)).makespan == 3


def test_devices_of_one_process_pass_references_unless_a_link_says_otherwise():
    graph = step([1, 1], [("a", 500, "b")])
    devices = (DeviceModel("x", processor="p"), DeviceModel("y", processor="p"))
    assert makespan(Problem(graph, ClusterModel(devices)), (0, 1)) == 2
    copied = ClusterModel(devices, {("x", "y"): LinkCost(0.0, 1000.0)})
    assert makespan(Problem(graph, copied), (0, 1)) == 2.5
    assert simulate(Problem(graph, copied), (0, 1)).lanes["x to y"] == 0.5


def test_the_longest_path_goes_first():
    graph = step([1, 5, 5, 1], [("b", 0, "c")])
    problem = Problem(graph, machines(2))
    where = (0, 0, 1, 0)
    assert makespan(problem, where, order="longest path") == 11
    assert makespan(problem, where, order="arrival") == 12


def test_speed_and_type_decide_what_an_item_takes():
    devices = (DeviceModel("cpu", speed=2.0), DeviceModel("xla", "XLA"))
    graph = CostGraph.apart(
        [CostItem("a", {"CPU": 4.0, "XLA": 1.0}, 0), CostItem("b", {"CPU": 4.0}, 1)], []
    )
    problem = Problem(graph, ClusterModel(devices, network=NETWORK))
    assert problem.seconds == [[2.0, 1.0], [2.0, math.inf]]
    assert problem.feasible == ((0, 1), (0,))
    with pytest.raises(
        InvalidArgumentError, match=r"Cannot place b: none of the devices .*\(xla\)"
    ):
        Problem(graph, problem.cluster, [(0,), (1,)])


def test_memory_holds_state_and_tensors_until_they_are_read():
    graph = step([1, 1, 1], [("a", 100, "b"), ("b", 10, "c")], state=[("a", 1000)])
    problem = Problem(graph, machines(2))
    assert simulate(problem, (0, 0, 0)).memory == {"m0": 1110, "m1": 0}
    assert simulate(problem, (0, 1, 1)).memory == {"m0": 1100, "m1": 110}


def test_groups_stay_together_and_memory_comes_before_time():
    graph = step([1, 9, 1], [("a", 100, "b"), ("b", 100, "c")], ["ac"], [("a", 80)])
    assert graph.groups == ("a", "b")
    small = machines(2, memory=100)
    problem = Problem(step([4, 4], [], state=[("a", 80), ("b", 80)]), small)
    assert score(problem, (0, 0)) == (60, 8.0, 0)
    assert sorted(greedy(problem)) == [0, 1]
    assert score(problem, improve(problem, (0, 0))) == (0, 4.0, 0)


def test_independent_work_is_shared_and_a_slow_network_is_avoided():
    wide = step([4, 4, 4, 4], [])
    assert sorted(greedy(Problem(wide, machines(2)))) == [0, 0, 1, 1]
    chain = step([1, 1, 1], [("a", 1000, "b"), ("b", 1000, "c")])
    assert len(set(greedy(Problem(chain, machines(2))))) == 1


def test_a_cheap_source_goes_where_it_is_read():
    """Two variables, each with a long product: each machine gets one of both."""
    graph = step([0, 0, 9, 9], [("a", 500, "c"), ("b", 500, "d")])
    a, b, c, d = greedy(Problem(graph, machines(2)))
    assert a == c != b == d


def test_wrong_graphs_and_clusters_are_refused():
    with pytest.raises(ValueError, match="item b must come before the items that read b:0"):
        step([1, 1], [("b", 1, "a")])
    with pytest.raises(ValueError, match="different names"):
        ClusterModel((DeviceModel("x"), DeviceModel("x")))
    with pytest.raises(ValueError, match="at least one device"):
        ClusterModel(())
    with pytest.raises(ValueError, match="speed must be positive"):
        DeviceModel("x", speed=0.0)
    apart = ClusterModel((DeviceModel("x"), DeviceModel("y")))
    with pytest.raises(InvalidArgumentError, match="no link from x to y"):
        makespan(Problem(step([1, 1], [("a", 1, "b")]), apart), (0, 1))
