"""The hooks: what they log, write, refuse, and when they stop."""

import math
import os

from tests.oracle.sequences import plain, sequence
from tests.oracle.sequences_monitored import counter, loop, raising, spy, tracing


def events(tf, directory):
    """What the event files of a directory hold: step, kind, and what is in it."""
    tf.summary.FileWriterCache.clear()
    found = []
    for name in sorted(os.listdir(directory)):
        if "tfevents" in name:
            for event in tf.train.summary_iterator(os.path.join(directory, name)):
                kind = event.WhichOneof("what")
                said = []
                if kind == "summary":
                    said = [value.tag for value in event.summary.value]
                if kind == "session_log":
                    said = [event.session_log.status]
                if kind == "tagged_run_metadata":
                    said = [event.tagged_run_metadata.tag]
                found.append([event.step, kind, said])
    return found


@sequence
def construction(tf, run):
    """Which arguments go together."""
    train = tf.train
    loss = tf.constant(1.0, name="loss")
    saver = train.Saver([tf.Variable(1.0)])
    calls = [
        lambda: train.SecondOrStepTimer(),
        lambda: train.SecondOrStepTimer(every_secs=1, every_steps=1),
        lambda: train.StopAtStepHook(),
        lambda: train.StopAtStepHook(num_steps=1, last_step=1),
        lambda: train.CheckpointSaverHook("dir"),
        lambda: train.CheckpointSaverHook("dir", save_secs=1, save_steps=1),
        lambda: train.CheckpointSaverHook("dir", 1, saver=saver, scaffold=train.Scaffold()),
        lambda: train.SummarySaverHook(1),
        lambda: train.SummarySaverHook(1, summary_op=loss, scaffold=train.Scaffold()),
        lambda: train.SummarySaverHook(summary_op=loss),
        lambda: train.StepCounterHook(1, 1),
        lambda: train.StepCounterHook(None),
        lambda: train.LoggingTensorHook([loss]),
        lambda: train.LoggingTensorHook([loss], every_n_iter=1, every_n_secs=1),
        lambda: train.LoggingTensorHook([loss], every_n_iter=0),
        lambda: train.LoggingTensorHook([loss], at_end=True),
        lambda: train.LoggingTensorHook([loss], every_n_iter=1, at_end=True),
        lambda: train.Scaffold(copy_from_scaffold=1),
        lambda: train.SessionManager(ready_for_local_init_op=loss),
    ]
    for call in calls:
        run.attempt(call)


@sequence
def without_a_global_step(tf, run):
    with tracing(tf, run) as trace:
        hooks = [
            tf.train.CheckpointSaverHook(trace.directory, save_steps=1),
            tf.train.StopAtStepHook(1),
            tf.train.StepCounterHook(),
            tf.train.SummarySaverHook(1, summary_op=tf.constant("")),
            tf.train.GlobalStepWaiterHook(1),
        ]
        for hook in hooks:
            trace.attempt(type(hook).__name__, hook.begin)


@sequence
def timers(tf, run):
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    run.note([timer.last_triggered_step(), timer.should_trigger_for_step(5)])
    run.note(list(timer.update_last_triggered_step(5)))
    run.note([timer.should_trigger_for_step(step) for step in (4, 5, 6, 7, 8, 9)])
    run.note([timer.update_last_triggered_step(9)[1], timer.last_triggered_step()])
    timer.reset()
    run.note([timer.last_triggered_step(), timer.should_trigger_for_step(9)])
    hourly = tf.train.SecondOrStepTimer(every_secs=3600)
    run.note(hourly.should_trigger_for_step(1))
    hourly.update_last_triggered_step(1)
    run.note(hourly.should_trigger_for_step(2))


@sequence
def logged_tensors(tf, run):
    step, advance = counter(tf)
    with tf.control_dependencies([advance]):
        value = tf.identity([0.5, 1e-7, 100.0], name="value")
        count = tf.identity(step.read_value(), name="count")
    with tracing(tf, run) as trace:
        hooks = [
            tf.train.LoggingTensorHook([value, "count", "count:0"], every_n_iter=2),
            tf.train.LoggingTensorHook({"v": value, "count": "count"}, every_n_iter=3, at_end=True),
            tf.train.LoggingTensorHook({"at the end": "count"}, at_end=True),
            tf.train.LoggingTensorHook(
                [step], every_n_iter=2, formatter=lambda values: f"formatted {len(values)}"
            ),
        ]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            for _ in range(5):
                trace.add(plain(session.run(count)))


@sequence
def what_is_there_to_log(tf, run):
    several = tf.split([1.0, 2.0], 2, name="several")
    run.note([several[0].name])
    for tensors in (["several"], ["missing"], [3.0]):
        hook = tf.train.LoggingTensorHook(tensors, every_n_iter=1)
        try:
            hook.begin()
        except (KeyError, ValueError) as error:
            run.note([type(error).__name__, str(error).split(" <")[0]])


@sequence
def not_a_number(tf, run):
    x = tf.placeholder(tf.float32, [])
    loss = tf.log(x, name="loss")
    with tracing(tf, run) as trace:
        for fail in (True, False):

            def train(fail=fail):
                hooks = [spy(trace), tf.train.NanTensorHook(loss, fail_on_nan_loss=fail)]
                with tf.train.MonitoredSession(hooks=hooks) as session:
                    for number in (1.0, math.inf, -1.0):
                        session.run([], {x: number})
                        trace.add("stop", session.should_stop())

            trace.attempt("training", train)


@sequence
def stop_steps(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        for arguments in ({"num_steps": 2}, {"last_step": 2}, {"last_step": 0}):
            hook = tf.train.StopAtStepHook(**arguments)
            with tf.train.MonitoredSession(hooks=[hook]) as session:
                loop(trace, session, advance)


@sequence
def saved_checkpoints(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:

        class Listener(tf.train.CheckpointSaverListener):
            def __init__(self, name, last=None):
                self.name, self.last = name, last

            def begin(self):
                trace.add(self.name, "begin")

            def before_save(self, session, step):
                trace.add(self.name, "before_save", step)

            def after_save(self, session, step):
                trace.add(self.name, "after_save", step)
                return step == self.last

            def end(self, session, step):
                trace.add(self.name, "end", step)

        for last in (4, None):
            saving = tf.train.CheckpointSaverHook(
                trace.directory,
                save_steps=2,
                checkpoint_basename="saved",
                listeners=[Listener("a", last), Listener("b")],
            )
            hooks = [tf.train.StopAtStepHook(num_steps=5), saving]
            creator = tf.train.ChiefSessionCreator(checkpoint_dir=trace.directory)
            with tf.train.MonitoredSession(creator, hooks=hooks) as session:
                while not session.should_stop():
                    session.run(advance)
        trace.add(sorted(f for f in os.listdir(trace.directory) if f.endswith(("index", "pbtxt"))))
        trace.add(tf.train.latest_checkpoint(trace.directory))
        trace.add(events(tf, trace.directory))


@sequence
def savers_of_the_hook(tf, run):
    """Where a hook without a saver and a scaffold finds one."""
    counter(tf)
    with tracing(tf, run) as trace:
        hook = tf.train.CheckpointSaverHook(trace.directory, save_steps=2)
        hook.begin()
        trace.attempt("none", lambda: hook.after_create_session(run.session, None))
        run.session.run(tf.global_variables_initializer())
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        trace.attempt("two", lambda: hook.after_create_session(run.session, None))


@sequence
def saved_summaries(tf, run):
    step, advance = counter(tf)
    with tf.control_dependencies([advance]):
        tf.summary.scalar("half", tf.cast(step, tf.float32) / 2)
        tf.summary.scalar("whole", tf.cast(step, tf.float32))
    with tracing(tf, run) as trace:
        session = tf.train.MonitoredTrainingSession(
            checkpoint_dir=trace.directory,
            save_summaries_steps=2,
            save_checkpoint_steps=3,
            log_step_count_steps=3,
            hooks=[tf.train.StopAtStepHook(last_step=7)],
        )
        with session:
            loop(trace, session, advance)
        trace.add(events(tf, trace.directory))


@sequence
def summaries_of_an_operation(tf, run):
    _, advance = counter(tf)
    one, two = tf.summary.scalar("one", 1.0), tf.summary.scalar("two", 2.0)
    with tracing(tf, run) as trace:
        writer = tf.summary.FileWriter(trace.directory)
        hooks = [
            tf.train.SummarySaverHook(2, summary_writer=writer, summary_op=[one, two]),
            tf.train.SummarySaverHook(save_steps=2, summary_op=one),
            tf.train.StopAtStepHook(3),
        ]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            loop(trace, session, advance)
        writer.close()
        trace.add(events(tf, trace.directory))


@sequence
def a_step_that_stands_still(tf, run):
    step, _ = counter(tf)
    with tracing(tf, run):
        hooks = [tf.train.StepCounterHook(every_n_steps=1)]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            for _ in range(3):
                session.run(step)


@sequence
def final_operations(tf, run):
    x = tf.placeholder_with_default(1.0, [])
    step, advance = counter(tf)
    empty = tf.FIFOQueue(1, [tf.float32])
    closed = empty.close()
    item = empty.dequeue()
    with tracing(tf, run) as trace:
        final = tf.train.FinalOpsHook({"x": x, "step": step}, {x: 5.0})
        nothing = tf.train.FinalOpsHook(None)
        trace.add(final.final_ops_values)
        with tf.train.MonitoredSession(hooks=[final, nothing]) as session:
            session.run(advance)
        trace.add(plain(sorted(final.final_ops_values.items())), nothing.final_ops_values)

        def train():
            with tf.train.SingularMonitoredSession(hooks=[tf.train.FinalOpsHook(item)]) as session:
                session.run(closed)

        try:
            train()
        except tf.errors.OutOfRangeError:
            trace.lines[-1] = trace.lines[-1][:80]


@sequence
def a_waiting_worker(tf, run):
    step, advance = counter(tf)
    with tracing(tf, run) as trace:
        run.session.run(tf.global_variables_initializer())
        run.session.run(advance)
        for goal in (0, 1):
            hook = tf.train.GlobalStepWaiterHook(goal)
            hook.begin()
            context = tf.train.SessionRunContext(tf.train.SessionRunArgs(step), run.session)
            trace.add(hook.before_run(context), hook.before_run(context))


@sequence
def profiles(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        hooks = [
            tf.train.ProfilerHook(save_steps=2, output_dir=trace.directory, show_memory=True),
            tf.train.StopAtStepHook(last_step=5),
        ]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            loop(trace, session, advance)
        trace.add(sorted(f for f in os.listdir(trace.directory) if f.endswith("json")))
        trace.add(events(tf, trace.directory))


@sequence
def losses_while_saving(tf, run):
    """A loss in `end` is not recovered from; one in a listener is."""
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        gone = tf.errors.UnavailableError(None, None, "gone")

        class Listener(tf.train.CheckpointSaverListener):
            saves = 0

            def after_save(self, session, step):
                trace.add("saved", step)
                self.saves += 1
                if self.saves == 3:
                    raise gone

        saving = tf.train.CheckpointSaverHook(trace.directory, save_steps=1, listeners=[Listener()])
        hooks = [saving, tf.train.StopAtStepHook(4), spy(trace, end={1: raising(gone)})]
        creator = tf.train.ChiefSessionCreator(checkpoint_dir=trace.directory)

        def train():
            with tf.train.MonitoredSession(creator, hooks) as session:
                loop(trace, session, advance)

        trace.attempt("training", train)
