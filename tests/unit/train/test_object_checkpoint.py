"""Object-based checkpoints: TensorFlow 1.15.5's are restored, ours have its bytes, and mismatches
are reported.
"""

import threading
from pathlib import Path

import numpy as np
import pytest

import headrace as tf
from headrace._src.core import proto
from tests.fixtures.checkpoints import objects

RECORDED = str(Path(__file__).parents[2] / "fixtures" / "checkpoints" / "objects")
KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


@pytest.fixture(autouse=True)
def session(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def initialized(session, **arguments):
    made = tf.train.Checkpoint(**arguments)
    session.run(tf.global_variables_initializer())
    return made


def description(prefix):
    return proto.TrackableObjectGraph.FromString(tf.train.load_variable(prefix, KEY))


def test_what_tensorflow_has_saved_is_restored(session):
    saved, train, variables = objects.build(tf, start=0.0)
    saved.restore(RECORDED).assert_consumed().run_restore_ops()
    kernel, bias, _, steps = session.run(variables)
    assert steps == 2 and np.allclose(kernel, 0.8, atol=0.01) and np.allclose(bias, -0.2, atol=0.01)
    session.run(train)  # with restored slots
    assert session.run(variables[3]) == 3


def test_the_restored_training_goes_on_as_if_it_had_not_stopped(session):
    saved, train, variables = objects.build(tf)
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        session.run(train)
    straight = session.run(variables)
    saved.restore(RECORDED).run_restore_ops(session)
    session.run(train)
    for found, expected in zip(session.run(variables), straight, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_description_is_tensorflows(session):
    saved, train, _ = objects.build(tf)
    session.run(tf.global_variables_initializer())
    session.run(train)
    assert saved.write("ours") == "ours"
    assert description("ours") == description(RECORDED)
    assert tf.train.list_variables("ours") == tf.train.list_variables(RECORDED)


def test_saves_are_counted_and_named_in_the_state_file(session):
    saved = initialized(session, v=tf.Variable([1.0, 2.0]))
    assert [saved.save("new/ck"), saved.save("new/ck", session)] == ["new/ck-1", "new/ck-2"]
    assert tf.train.latest_checkpoint("new") == "new/ck-2"
    assert session.run(saved.save_counter) == 2
    count = len(tf.get_default_graph().get_operations())
    saved.save("new/ck")
    assert len(tf.get_default_graph().get_operations()) == count
    other = tf.train.Checkpoint(v=tf.Variable([0.0, 0.0]))
    other.restore("new/ck-3").run_restore_ops()
    assert session.run([other.save_counter, other.v])[1].tolist() == [1.0, 2.0]
    assert other.save("new/ck") == "new/ck-4"


def test_variables_may_be_made_after_restore(session):
    initialized(session, v=tf.Variable(3.0)).write("ck")
    late = tf.train.Checkpoint()
    status = late.restore("ck")
    late.v = tf.Variable(0.0, name="another_name")
    status.assert_consumed().run_restore_ops()
    assert session.run(late.v) == 3.0


def test_names_are_escaped_and_containers_followed(session):
    saved = initialized(session, **{"a/b": tf.Variable(1.0), ".x": tf.Variable(2.0)})
    saved.listed = [tf.Variable(3.0), 5, {"k": tf.Variable(4.0)}]
    saved.number = 7
    session.run(tf.global_variables_initializer())
    keys = [name for name, _ in tf.train.list_variables(saved.write("ck"))]
    assert [key.partition("/.ATTRIBUTES")[0] for key in keys] == [
        *("..x", KEY, "a.Sb", "listed/0", "listed/2/k"),
    ]


def test_mismatches_are_told(session):
    initialized(session, v=tf.Variable(1.0), step=tf.Variable(2)).write("ck")
    other = tf.train.Checkpoint(v=tf.Variable(0.0), new=tf.Variable(5.0, name="new"))
    status = other.restore("ck")
    for check in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(AssertionError, match=r"Some Python objects were not bound .*'new:0'"):
            check()
    assert status.assert_nontrivial_match() is status.expect_partial()
    status.initialize_or_restore()
    assert session.run([other.v, other.new]) == [1.0, 5.0]


def test_what_is_for_nobody_is_told(session):
    saved = initialized(session, v=tf.Variable(1.0), step=tf.Variable(2))
    saved.save("ck")
    fewer = tf.train.Checkpoint(v=tf.Variable(0.0)).restore("ck-1")
    fewer.assert_existing_objects_matched()
    with pytest.raises(AssertionError, match=r"Unresolved object in checkpoint \(root\)\.step: "):
        fewer.assert_consumed()
    stranger = tf.train.Checkpoint(w=tf.Variable(0.0)).restore("ck-1")
    with pytest.raises(AssertionError, match="Nothing except the root object matched"):
        stranger.assert_nontrivial_match()


def test_no_checkpoint(session):
    made = tf.train.Checkpoint(v=tf.Variable(1.0))
    status = made.restore(None)
    for call in (status.assert_consumed, status.run_restore_ops):
        with pytest.raises(AssertionError, match="No checkpoint specified"):
            call()
    status.initialize_or_restore()
    assert session.run([made.v, made.save_counter]) == [1.0, 0]
    with pytest.raises(tf.errors.NotFoundError, match="Failed to find any matching files for no"):
        made.restore("none")


def test_checkpoints_by_names_and_by_objects_are_read_by_both(session):
    v = tf.get_variable("A", initializer=[1.0, 2.0])
    session.run(v.initializer)
    tf.train.Saver([v]).save(session, "./named")
    other = tf.train.Checkpoint(q=v)
    session.run(v.assign([0.0, 0.0]))
    other.restore("./named").assert_consumed().run_restore_ops()
    assert session.run(v).tolist() == [1.0, 2.0]
    tf.train.Checkpoint(deep=other).write("objects")
    session.run(v.assign([0.0, 0.0]))
    tf.train.Saver([v]).restore(session, "objects")
    assert session.run(v).tolist() == [1.0, 2.0]


def test_only_what_holds_variables_can_be_saved():
    with pytest.raises(ValueError, match=r"was expecting a trackable object .* got 5"):
        tf.train.Checkpoint(a=5)


def test_a_session_is_needed():
    failed = []

    def save():
        with tf.Graph().as_default():
            try:
                tf.train.Checkpoint(v=tf.Variable(1.0)).save("x")
            except ValueError as error:
                failed.append(str(error))

    thread = threading.Thread(target=save)  # which has no default session
    thread.start()
    thread.join()
    assert "the values of variables are in a session" in failed[0]


def test_a_manager_keeps_the_last_ones(session):
    made = initialized(session, v=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(made, "mg", max_to_keep=2)
    assert (manager.latest_checkpoint, manager.checkpoints) == (None, [])
    assert [manager.save() for _ in range(3)][-1] == "mg/ckpt-3"
    assert manager.save(checkpoint_number=100) == "mg/ckpt-100"
    assert manager.save(tf.constant(7)) == manager.latest_checkpoint == "mg/ckpt-7"
    assert tf.train.get_checkpoint_state("mg").model_checkpoint_path == "mg/ckpt-7"
    left = {name.partition(".")[0] for name in tf.gfile.ListDirectory("mg")}
    assert left == {"checkpoint", "ckpt-7", "ckpt-100"}
    again = tf.train.CheckpointManager(made, "mg", max_to_keep=None, checkpoint_name="x")
    assert again.checkpoints == ["mg/ckpt-100", "mg/ckpt-7"]
    assert again.save() == "mg/x-6" and len(again.checkpoints) == 3
    with pytest.raises(ValueError, match="Expected a positive integer or `None`"):
        tf.train.CheckpointManager(made, "mg", max_to_keep=0)


def test_a_manager_leaves_the_checkpoints_of_others_alone(tmp_path):
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
    with tf.Session() as session, session.as_default():
        session.run(tf.global_variables_initializer())
        other = checkpoint.save(str(tmp_path / "other"), session=session)
        manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
        assert manager.latest_checkpoint == other
        assert manager.checkpoints == []
        for _ in range(2):
            last = manager.save()
        assert manager.checkpoints == [last]
        assert tf.train.CheckpointManager(checkpoint, tmp_path, 2).checkpoints == [last]
    assert sorted(p.name for p in tmp_path.glob("*.index")) == ["ckpt-3.index", "other-1.index"]


class Notes(tf.train.experimental.PythonState):
    def __init__(self, text):
        self.text = text

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        self.text = string_value


def test_the_state_of_python_objects_is_restored_at_once(session, tmp_path):
    notes = Notes("first")
    made = initialized(session, v=tf.Variable(1.0), notes=notes)
    path = made.save(tmp_path / "c", session=session)
    assert ("notes/.ATTRIBUTES/py_state", []) in tf.train.list_variables(path)
    notes.text = "second"
    made.save(tmp_path / "c", session=session)
    status = made.restore(path)
    assert notes.text == b"first"
    status.assert_consumed().run_restore_ops(session)
    made.restore(tf.train.latest_checkpoint(tmp_path)).initialize_or_restore(session)
    assert notes.text == b"second"
