"""headrace.horovod in a process that no launcher has started: it is the only rank."""

import numpy as np
import pytest

import headrace as tf
import headrace.horovod as hvd
from headrace._src.core import config
from headrace._src.horovod import functions


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def alone():
    hvd.init()
    hvd.init()  # the second call does nothing
    yield
    hvd.shutdown()
    hvd.shutdown()


def test_numbers(alone):
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    assert hvd.bytes_moved() == {"shared": 0, "sent": 0, "control": 0}
    assert not hvd.mpi_threads_supported()
    assert not hvd.nccl_built()


def test_before_init():
    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match="Horovod has not been initialized"):
        hvd.rank()
    reduced = hvd.allreduce(tf.ones([2]))
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="init"):
        session.run(reduced)


def test_functions(alone):
    x = tf.constant([1.0, 2.0])
    slices = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([0, 4]), tf.constant([5, 3]))
    found = hvd.allreduce(slices)
    with tf.Session() as session:
        made = session.run(
            [
                hvd.allreduce(x),
                hvd.allreduce(x, average=False, compression=hvd.Compression.fp16),
                hvd.allreduce(tf.constant([3]), op=hvd.Sum, compression=hvd.Compression.fp16),
                hvd.allgather(x),
                hvd.broadcast(x, 0, name="mine"),
                found.values,
                found.indices,
            ]
        )
    np.testing.assert_array_equal(made[0], [1, 2])
    np.testing.assert_array_equal(made[1], [1, 2])
    assert made[1].dtype == np.float32
    assert made[2].tolist() == [3]
    np.testing.assert_array_equal(made[3], [1, 2])
    np.testing.assert_array_equal(made[4], [1, 2])
    assert made[5].shape == (2, 3)
    assert made[6].tolist() == [0, 4]


def test_names_and_types_are_horovods(alone):
    x = tf.constant([1.0], name="a/b")
    assert hvd.allreduce(x).op.name == "HorovodAllreduce_a_b_0"
    assert hvd.allreduce(x).op.type == "HorovodAllreduce"
    assert hvd.allgather(x).op.type == "HorovodAllgather"
    assert hvd.allgather(tf.ones([2, 3])).shape.as_list() == [None, 3]
    assert hvd.broadcast(x, 0).op.get_attr("root_rank") == 0


def test_wrong_arguments(alone):
    x = tf.ones([1])
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(x, average=True, op=hvd.Sum)
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.allreduce(x, op=hvd.Adasum)
    with pytest.raises(ValueError, match=r"hvd\.Average or hvd\.Sum"):
        hvd.allreduce(x, op=17)
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        hvd.DistributedOptimizer(tf.train.AdamOptimizer(), backward_passes_per_step=2)
    with pytest.raises(ValueError, match=r"not a tf\.train\.Optimizer"):
        hvd.DistributedOptimizer("adam")
    with pytest.raises(ValueError, match="scalar"):
        hvd.allgather(tf.constant(1.0))
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="1 rank"):
        session.run(hvd.broadcast(x, 1))


def test_init_with_other_ranks_needs_a_meeting_place(monkeypatch):
    monkeypatch.setattr(
        "headrace._src.horovod.process.settings",
        lambda: config.read({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}),
    )
    with pytest.raises(tf.errors.FailedPreconditionError, match="nothing says where they meet"):
        hvd.init()
    with pytest.raises(NotImplementedError, match="list of all ranks"):
        hvd.init([0])


def test_gradients(alone):
    """With one rank, all collectives are identities."""
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    for made in (
        hvd.allreduce(x),
        hvd.allgather(x),
        hvd.broadcast(x, 0),
        functions.allreduce_all([x], hvd.Sum, hvd.Compression.none, "", "", "g")[0],
    ):
        (slope,) = tf.gradients(made * made, x)
        with tf.Session() as session:
            np.testing.assert_array_equal(session.run(slope), [[2, 4], [6, 8]])


def test_optimizer_and_hook(alone):
    v = tf.get_variable("v", initializer=2.0)
    optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.5, 0.9))
    train = optimizer.minimize(v * v)
    assert optimizer.get_name() == "DistributedMomentumOptimizer"
    assert optimizer.get_slot_names() == ["momentum"]
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        session.run(train)
        assert session.run(v) == 0.0


def test_elastic_state(alone):
    v = tf.get_variable("v", initializer=1.0)
    resets = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        state = hvd.elastic.TensorFlowState([v], session, batch=0, note=["a"])
        state.register_reset_callbacks([lambda: resets.append(1)])
        state.commit()
        v.load(5.0, session)
        state.batch = 7
        state.note.append("b")
        state.restore()
        assert (session.run(v), state.batch, state.note) == (1.0, 0, ["a"])
        state.on_reset()
        assert resets == [1]
        state.note = object()
        with pytest.raises(TypeError, match="JSON"):
            state.sync()
    with pytest.raises(ValueError, match="needs a session"):
        state_without = hvd.elastic.TensorFlowState([v])
        state_without.save()


def test_elastic_run_returns(alone):
    @hvd.elastic.run
    def train(state, factor):
        return state.batch * factor

    assert train(hvd.elastic.State(batch=3), 2) == 6
