"""Scaffolds, session managers, supervisors, and the loops around them."""

import os

from tests.oracle.sequences import plain, sequence
from tests.oracle.sequences_hooks import events
from tests.oracle.sequences_monitored import counter, loop, lost, raising, tracing


def names(*items):
    return [getattr(item, "name", item) for item in items]


@sequence
def scaffolds(tf, run):
    local = tf.get_local_variable("local", initializer=2.0)
    weight = tf.get_variable("weight", initializer=1.0)
    x = tf.placeholder(tf.float32, [], name="x")
    tf.summary.scalar("weight", weight)
    with tracing(tf, run) as trace:
        calls = []
        scaffold = tf.train.Scaffold(
            init_op=tf.assign(weight, x, name="start"),
            init_feed_dict={x: 5.0},
            init_fn=lambda scaffold, session: calls.append([scaffold, session]),
        )
        trace.add(names(scaffold.ready_op, scaffold.saver, scaffold.summary_op))
        copy = tf.train.Scaffold(
            copy_from_scaffold=scaffold, local_init_op=local.initializer, init_feed_dict={x: 6.0}
        )
        trace.add(copy.finalize() is copy, tf.get_default_graph().finalized)
        pieces = (copy.init_op, copy.ready_op, copy.ready_for_local_init_op, copy.local_init_op)
        trace.add(names(*pieces, copy.summary_op))
        keys = tf.GraphKeys
        trace.add(
            [
                names(*tf.get_collection(key))
                for key in (keys.INIT_OP, keys.READY_OP, keys.LOCAL_INIT_OP, keys.SUMMARY_OP)
            ]
        )
        trace.add(
            len(tf.get_collection(keys.SAVERS)), sorted(f for f in copy.init_feed_dict.values())
        )
        creator = tf.train.ChiefSessionCreator(copy)
        session = creator.create_session()
        trace.add(plain(session.run([weight, local])), len(calls), calls[0][0] is copy)


@sequence
def several_defaults(tf, run):
    one, two = tf.no_op(name="one"), tf.no_op(name="two")
    with tracing(tf, run) as trace:
        get = tf.train.Scaffold.get_or_default
        trace.add(get("thing", "things", lambda: None), tf.get_collection("things"))
        trace.add(get("thing", "things", lambda: one).name, names(*tf.get_collection("things")))
        trace.add(get("thing", "things", lambda: two).name)
        tf.add_to_collection("things", two)
        try:
            get("thing", "things", lambda: one)
        except RuntimeError as error:  # TensorFlow's message isn't filled in
            trace.add("thing" in str(error))
        tf.get_variable("v", initializer=1.0)
        for _ in range(2):
            tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        trace.attempt("savers", lambda: tf.train.Scaffold().finalize())


@sequence
def models_that_are_not_initialised(tf, run):
    v = tf.get_variable("v", initializer=1.0)
    w = tf.get_variable("w", initializer=1.0)
    tf.get_local_variable("l", initializer=1.0)
    missing = tf.report_uninitialized_variables()
    missing_v = tf.report_uninitialized_variables([v])
    with tracing(tf, run) as trace:
        manager = tf.train.SessionManager(ready_op=missing)
        trace.attempt("no init", lambda: manager.prepare_session(""))
        trace.attempt("half", lambda: manager.prepare_session("", init_op=v.initializer))
        whole = tf.group(v.initializer, w.initializer, name="whole")
        trace.attempt("no local", lambda: manager.prepare_session("", init_op=whole))
        local = tf.local_variables_initializer()
        manager = tf.train.SessionManager(
            local_init_op=local, ready_op=missing, ready_for_local_init_op=missing_v
        )
        trace.attempt("local alone", lambda: manager.prepare_session(""))
        trace.attempt("other", lambda: manager.prepare_session("", init_op=w.initializer))
        session = manager.prepare_session("", init_op=whole)
        trace.add(plain(session.run(missing)))
        session = manager.prepare_session("", init_fn=lambda session: session.run(whole))
        trace.add(plain(session.run(missing)))
        always = tf.train.SessionManager()
        trace.add(isinstance(always.prepare_session("", init_op=whole), tf.Session))
        trace.attempt("both", lambda: always.prepare_session("", whole, 1, "dir", "file"))


@sequence
def recovered_sessions(tf, run):
    v = tf.get_variable("v", initializer=1.0)
    tf.get_variable("w", initializer=1.0)
    local = tf.get_local_variable("l", initializer=3.0)
    missing = tf.report_uninitialized_variables()
    init = tf.global_variables_initializer()
    saver, half = tf.train.Saver(), tf.train.Saver([v])
    with tracing(tf, run) as trace:
        directory = trace.directory
        bare = tf.train.SessionManager(ready_op=missing)
        manager = tf.train.SessionManager(local_init_op=local.initializer, ready_op=missing)
        session, found = manager.recover_session("", saver, directory)
        trace.add("nothing there", found)
        session = manager.prepare_session("", init, saver, directory)
        session.run(v.assign(7.0))
        path = saver.save(session, os.path.join(directory, "model"), global_step=3)
        session, found = manager.recover_session("", saver, directory)
        trace.add("found", found, plain(session.run([v, local])))
        session, found = manager.recover_session("", saver, checkpoint_filename_with_path=path)
        trace.add("by name", found, plain(session.run(v)))
        trace.add("no saver", manager.recover_session("", None, directory)[1])
        trace.add("without local", bare.recover_session("", saver, directory)[1])
        careful = tf.train.SessionManager(
            local_init_op=local.initializer, ready_op=missing, ready_for_local_init_op=missing
        )
        trace.add("too careful", careful.recover_session("", saver, directory)[1])
        trace.add("half", manager.recover_session("", half, directory)[1])
        session = manager.prepare_session("", init, saver, directory)
        trace.add("prepared", plain(session.run(v)), len(saver.last_checkpoints))


@sequence
def waiting(tf, run):
    v = tf.get_variable("v", initializer=1.0)
    local = tf.get_local_variable("l", initializer=3.0)
    missing = tf.report_uninitialized_variables([v])
    saver = tf.train.Saver()
    with tracing(tf, run) as trace:
        hasty = tf.train.SessionManager(ready_op=missing, recovery_wait_secs=1)
        trace.attempt("deadline", lambda: hasty.wait_for_session("", max_wait_secs=0))
        ready = tf.train.SessionManager(local_init_op=local.initializer)
        trace.add(plain(ready.wait_for_session("").run(local)))
        patient = tf.train.SessionManager(recovery_wait_secs=0.01)
        _, found = patient.recover_session(
            "", saver, trace.directory, wait_for_checkpoint=True, max_wait_secs=0.02
        )
        trace.add("no checkpoint", found)
        creator = tf.train.WorkerSessionCreator(max_wait_secs=0)
        trace.attempt("worker", creator.create_session)


@sequence
def supervised(tf, run):
    step, advance = counter(tf)
    tf.get_local_variable("local", initializer=2.0)
    with tf.control_dependencies([advance]):
        summary = tf.summary.scalar("one", 1.0)
    with tracing(tf, run) as trace:
        supervisor = tf.train.Supervisor(
            logdir=trace.directory, save_model_secs=0, save_summaries_secs=0, init_fn=trace.add
        )
        supervisor._init_fn = lambda session: trace.add("init_fn")
        trace.add(tf.get_default_graph().finalized, supervisor.is_chief, supervisor.save_path)
        pieces = (supervisor.init_op, supervisor.ready_op, supervisor.ready_for_local_init_op)
        trace.add(names(*pieces, supervisor.summary_op, supervisor.global_step))
        trace.add(supervisor.saver is not None, supervisor.summary_writer is not None)
        trace.add(supervisor.save_model_secs, supervisor.save_summaries_secs)
        for first in (True, False):
            with supervisor.managed_session() as session:
                while not supervisor.should_stop():
                    trace.add("got", plain(session.run(advance)))
                    if session.run(step) % 3 == 0:
                        supervisor.summary_computed(session, session.run(summary))
                        supervisor.saver.save(session, supervisor.save_path, global_step=step)
                        supervisor.request_stop()
            trace.add("stopped", supervisor.should_stop(), supervisor.coord.joined)
            if first:  # TensorFlow's second file may have the name of the first one
                trace.add(events(tf, trace.directory))
        trace.add(sorted(f for f in os.listdir(trace.directory) if f.endswith(("index", "pbtxt"))))


@sequence
def supervisors_services(tf, run):
    """With long intervals, each thread does its work once."""
    counter(tf)
    with tracing(tf, run) as trace:
        supervisor = tf.train.Supervisor(logdir=trace.directory, summary_op=None)
        session = supervisor.prepare_or_wait_for_session(start_standard_services=False)
        trace.add(len(supervisor.start_standard_services(session)))
        done = []
        supervisor.loop(3600, done.append, args=[1])
        for _ in range(1000):
            told = [line for line in trace.lines if "/sec" in line]
            if done and told and tf.train.latest_checkpoint(trace.directory):
                break
            supervisor.coord.wait_for_stop(0.01)
        supervisor.stop()
        trace.add(done, tf.train.latest_checkpoint(trace.directory))
        trace.lines.sort()
        supervisor = tf.train.Supervisor(logdir=None)
        session = supervisor.prepare_or_wait_for_session()
        trace.attempt("writer", lambda: supervisor.summary_computed(session, b""))
        supervisor.stop()


@sequence
def errors_under_supervision(tf, run):
    _, advance = counter(tf)
    over = tf.errors.OutOfRangeError(None, None, "over")
    with tracing(tf, run) as trace:
        supervisor = tf.train.Supervisor(logdir=None)
        for error in (over, ValueError("wrong"), lost(tf)):

            def train(error=error):
                with supervisor.managed_session() as session:
                    trace.add(plain(session.run(advance)))
                    raise error

            trace.attempt("training", train)

        def train_beside():
            with supervisor.managed_session():
                supervisor.loop(None, raising(ValueError("in a thread")))
                supervisor.wait_for_stop()

        trace.attempt("thread", train_beside)


@sequence
def supervisors_that_are_not_chief(tf, run):
    tf.get_variable("placed", initializer=1.0, use_resource=False)
    with tracing(tf, run) as trace:
        trace.attempt("no device", lambda: tf.train.Supervisor(is_chief=False))
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        tf.get_variable("placed", initializer=1.0, use_resource=False)
        with tracing(tf, run) as trace:
            supervisor = tf.train.Supervisor(
                is_chief=False, logdir=trace.directory, recovery_wait_secs=1
            )
            trace.add(supervisor.save_path, supervisor.summary_writer, supervisor.save_model_secs)
            services = lambda: supervisor.start_standard_services(None)  # noqa: E731
            trace.attempt("services", services)
            wait = lambda: supervisor.prepare_or_wait_for_session(max_wait_secs=0)  # noqa: E731
            trace.attempt("wait", wait)


@sequence
def a_basic_loop(tf, run):
    step, advance = counter(tf)
    with tracing(tf, run) as trace:
        supervisor = tf.train.Supervisor(logdir=None)
        errors = [lost(tf)]

        def train(session, last, label):
            trace.add(label, plain(session.run(advance)))
            if session.run(step) == 2 and errors:
                raise errors.pop()
            if session.run(step) == last:
                supervisor.request_stop()

        tf.train.basic_train_loop(supervisor, train, args=(3,), kwargs={"label": "step"})


@sequence
def new_checkpoints(tf, run):
    v = tf.get_variable("v", initializer=1.0)
    saver = tf.train.Saver()
    run.session.run(v.initializer)
    with tracing(tf, run) as trace:
        prefix = os.path.join(trace.directory, "model")
        none = tf.train.checkpoints_iterator(trace.directory, timeout=0)
        trace.add(list(none))
        saver.save(run.session, prefix, global_step=1)
        answers = [False, True]
        found = tf.train.checkpoints_iterator(
            trace.directory, timeout=0, timeout_fn=lambda: answers.pop(0)
        )
        trace.add(next(found))
        saver.save(run.session, prefix, global_step=2)
        trace.add(next(found), next(found, "over"), answers)


@sequence
def the_graph_of_a_training_session(tf, run):
    """Hooks and scaffold add the operations that they add in TensorFlow."""
    step, _ = counter(tf)
    tf.get_local_variable("local", initializer=2.0, use_resource=False)
    tf.summary.scalar("step", tf.cast(step, tf.float32))
    with tracing(tf, run) as trace:
        hooks = [tf.train.StopAtStepHook(1), tf.train.LoggingTensorHook([step], every_n_iter=1)]
        directory = trace.directory
        with tf.train.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session:
            for op in session.graph.get_operations():
                trace.add(op.type, op.name, [i.name for i in op.inputs])
            kept = {"init_op", "ready_op", "ready_for_local_init_op", "local_init_op"}
            for key in sorted(kept | {"summary_op", "global_step_read_op_cache"}):
                trace.add(key, names(*session.graph.get_collection(key)))


@sequence
def training_sessions(tf, run):
    """Which hooks a MonitoredTrainingSession has."""
    _, advance = counter(tf)
    options = [
        {},
        {"checkpoint_dir": True},
        {"checkpoint_dir": True, "save_checkpoint_secs": None},
        {"checkpoint_dir": True, "save_checkpoint_steps": 5},
        {"checkpoint_dir": True, "save_checkpoint_steps": 0, "save_summaries_steps": None},
        {"checkpoint_dir": True, "save_summaries_secs": 5, "log_step_count_steps": 0},
        {"summary_dir": True},
        {"summary_dir": True, "save_summaries_steps": 0, "save_summaries_secs": 0},
    ]
    with tracing(tf, run) as trace:
        mine, chiefs = tf.train.StopAtStepHook(1), tf.train.StopAtStepHook(2)
        for given in options:
            paths = {k: trace.directory if v is True else v for k, v in given.items()}
            with tf.train.MonitoredTrainingSession(
                hooks=[mine], chief_only_hooks=[chiefs], **paths
            ) as session:
                trace.add(sorted(given), [type(hook).__name__ for hook in session._hooks])
                loop(trace, session, advance)
        trace.attempt(
            "two",
            lambda: tf.train.MonitoredTrainingSession(
                checkpoint_dir=trace.directory, save_checkpoint_steps=1, save_checkpoint_secs=1
            ),
        )
