"""Groups and their feasible devices, and a choice among them."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as tf
from headrace._src.core.device_names import matches
from headrace._src.core.errors import InvalidArgumentError
from headrace._src.devices.device import local_devices
from headrace._src.optimize.prune import prune
from headrace._src.place.constraints import Placement, place
from headrace._src.place.groups import Groups

CPUS = local_devices({"CPU": 3})


def numbers(devices):
    return [CPUS.index(device) for device in devices]


def build():
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
    v.assign_add([1.0, 1.0], name="up", read_value=False)
    tf.no_op("free")


def test_groups_are_listed_in_order_with_what_is_feasible():
    with tf.Graph().as_default() as graph:
        build()
        placement = Placement(graph, CPUS)
        placement.extend()
        groups = {group.name: group for group in placement.list_groups()}
    assert list(groups) == ["v/Initializer/zeros", "Const", "free"]
    first = groups["v/Initializer/zeros"]
    assert {"v", "v/Assign", "up"} < {op.name for op in first.operations}
    assert numbers(first.feasible) == [1]
    assert numbers(groups["free"].feasible) == [0, 1, 2]


def test_a_single_device_has_groups_too():
    with tf.Graph().as_default() as graph:
        a = tf.no_op("a")
        with tf.colocate_with(a):
            tf.no_op("b")
        placement = Placement(graph, CPUS[:1])
        placement.extend()
        [group] = placement.list_groups()
    assert [op.name for op in group.operations] == ["a", "b"]
    assert group.feasible == CPUS[:1]


def test_a_choice_is_followed_and_the_rest_is_placed_by_the_rule():
    seen = []

    def choose(groups):
        seen.append([group.name for group in groups])
        return {"free": CPUS[2]}

    with tf.Graph().as_default() as graph:
        build()
        placement = Placement(graph, CPUS, choose=choose)
        placement.extend()
        assert placement.device("free") == CPUS[2].name
        assert placement.device("up") == placement.device("Const") == CPUS[1].name
        placement.extend()
        assert len(seen) == 1
        tf.no_op("new")
        placement.extend()
        assert seen[1] == [*seen[0], "new"]
        placement.reconsider()
        assert len(seen) == 3


@pytest.mark.parametrize("chosen", [{"v/Initializer/zeros": CPUS[0]}, {"none": CPUS[0]}])
def test_a_choice_outside_of_what_is_feasible_is_refused(chosen):
    with tf.Graph().as_default() as graph:
        build()
        placement = Placement(graph, CPUS, choose=lambda groups: chosen)
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match=r"can't be placed on .*CPU:0"):
                placement.extend()


def test_state_that_is_in_use_is_not_offered():
    moves = {"step": 0}
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [2], use_resource=True, initializer=tf.zeros_initializer())
        name = "v/Initializer/zeros"

        def choose(groups):
            found = {group.name: group for group in groups}
            return {name: found[name].feasible[-moves["step"]]}

        placement = Placement(graph, CPUS, choose=choose)
        placement.extend()
        assert placement.device("v") == CPUS[0].name
        moves["step"] = 1
        placement.reconsider()
        assert placement.device("v") == CPUS[2].name
        placement.pin(place(prune([], [v.initializer], []), CPUS, placement=placement))
        moves["step"] = 0
        placement.reconsider()
        assert placement.device("v") == CPUS[2].name
        assert numbers(placement.list_groups()[0].feasible) == [2]


REQUESTS = ["", "/cpu:0", "/cpu:1", "/cpu:2", "/cpu:*", "/job:localhost", "/gpu:0", "/cpu:5"]

steps = st.lists(
    st.tuples(
        st.sampled_from(["op", "constant", "shape", "variable", "update", "extend"]),
        st.sampled_from(REQUESTS),
        st.integers(0, 5),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


class _Growing:
    """A random graph, built step by step."""

    def __init__(self):
        self.tensors = [tf.placeholder(tf.float32, [2], name="start")]
        self.variables = []

    def add(self, kind, request, number, colocated):
        """Add operations of a kind; return whether there is something new."""
        other = self.tensors[number % len(self.tensors)]
        with tf.colocate_with(other if colocated else None, ignore_existing=True):
            if kind == "op":
                made = tf.negative(other)
            elif kind == "constant":
                made = tf.constant([1.0, 2.0])
            elif kind == "shape":
                made = tf.cast(tf.raw_ops.Shape(input=other), tf.float32)
            elif kind == "variable":
                made = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="")
                self.variables.append(made)
            elif self.variables:
                handle = self.variables[number % len(self.variables)]
                made = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            else:
                return
        made.op._device = request  # not _set_device, after which all is placed again
        if kind != "variable":
            self.tensors.append(made)


def holds(graph, placement, soft):
    """Check the constraints of every operation."""
    device = {op.name: placement.device(op.name) for op in graph.get_operations()}
    for op in graph.get_operations():
        for t in op.inputs:
            if t.dtype == tf.resource:
                assert device[op.name] == device[t.op.name]
        for group in op.colocation_groups():
            assert device[op.name] == device[group.decode().removeprefix("loc:@")]
        takes_handle = any(t.dtype == tf.resource for t in op.inputs)
        if not soft and not takes_handle:
            assert matches(op.device, device[op.name])
    for group in placement.list_groups():
        assert {device[op.name] for op in group.operations} <= {d.name for d in group.feasible}
        assert len({device[op.name] for op in group.operations}) == 1
    return device


@settings(max_examples=150, deadline=None)
@given(steps, st.booleans(), st.randoms(use_true_random=False))
def test_constraints_hold_whatever_is_chosen(plan, soft, random):
    def choose(groups):
        some = [group for group in groups if random.random() < 0.7]
        return {group.name: random.choice(group.feasible) for group in some}

    with tf.Graph().as_default() as graph:
        growing = _Growing()
        rules = Placement(graph, CPUS, soft)
        chosen = Placement(graph, CPUS, soft, choose)
        pinned = {}
        for kind, request, number, colocated in [*plan, ("extend", "", 0, False)]:
            if kind != "extend":
                growing.add(kind, request, number, colocated)
                continue
            try:
                rules.extend()
            except InvalidArgumentError as error:
                assert "Cannot" in str(error)
                with pytest.raises(InvalidArgumentError):
                    chosen.extend()
                return
            try:
                chosen.extend()
            except InvalidArgumentError as error:  # state can't be moved to where it must be
                assert "keep" in str(error)
                return
            holds(graph, rules, soft)
            device = holds(graph, chosen, soft)
            assert all(device[name] == place for name, place in pinned.items())
            reads = [op for op in graph.get_operations() if op.type == "ReadVariableOp"]
            chosen.pin(place(prune([], reads, []), CPUS, soft, chosen))
            pinned = {op.name: device[op.name] for op in reads}


@settings(max_examples=50, deadline=None)
@given(steps)
def test_growth_in_parts_places_as_growth_at_once(plan):
    with tf.Graph().as_default() as graph:
        growing = _Growing()
        growing_placement = Placement(graph, CPUS, soft=True)
        for kind, request, number, colocated in plan:
            if kind == "extend":
                with suppress(InvalidArgumentError):
                    growing_placement.extend()
            else:
                growing.add(kind, request, number, colocated)
        at_once = Placement(graph, CPUS, soft=True)
        try:
            at_once.extend()
        except InvalidArgumentError:
            with pytest.raises(InvalidArgumentError):
                growing_placement.extend()
            return
        growing_placement.extend()
        for op in graph.get_operations():
            assert growing_placement.device(op.name) == at_once.device(op.name)


def test_another_thread_may_pin_operations_meanwhile():
    with tf.Graph().as_default() as graph:
        op = tf.constant(1.0, name="a").op
        placement = Placement(graph, CPUS)
        placement._pinned["a"] = CPUS[1], op

        class Meanwhile(dict):
            def get(self, name):
                placement._pinned[f"{name} of another step"] = CPUS[0], op

        groups = Groups()
        groups.of = Meanwhile()
        placement.hold(groups)
        assert len(placement._pinned) == 2
