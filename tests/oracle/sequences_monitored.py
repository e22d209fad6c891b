"""Monitored sessions: which methods of hooks are called, in which order and with what, and what is
logged, in success, failure, stop and recovery.
"""

import logging
import re
import shutil
import tempfile
from contextlib import contextmanager

from tests.oracle.sequences import plain, sequence


class Trace:
    """Notes of what happened, in order; and a directory for checkpoints."""

    def __init__(self, tf, directory):
        self.tf = tf
        self.directory = directory
        self.lines = []

    def add(self, *words):
        text = " ".join(str(word) for word in words)
        text = text.replace(self.directory, "DIR").replace("<tf.Tensor", "<Tensor")
        text = re.sub(r" \(\d+\.\d+ sec\)", " (SECONDS)", text)
        text = re.sub(r"/sec: .*", "/sec: NUMBER", text)
        text = re.sub(r"<class '[\w.]*\.(\w+)'>", r"<class '\1'>", text)
        text = re.sub(r" at 0x[0-9a-f]+", "", text)
        self.lines.append(text)

    def attempt(self, label, function):
        """Note what a function returns or raises."""
        try:
            self.add(label, plain(function()))
        except Exception as error:
            self.add(label, "raised", describe(error))


def describe(error):
    message = getattr(error, "message", str(error))
    return f"{type(error).__name__}: {(message.splitlines() or [''])[0].strip()}"


class Lines(logging.Handler):
    """Puts log messages into a trace. Explanations after the first sentence are left out."""

    def __init__(self, trace):
        logging.Handler.__init__(self)
        self._trace = trace

    def emit(self, record):
        text = record.getMessage()
        # In TensorFlow it's chance whether a step is read before or after it is advanced.
        if "deprecat" not in text and "has not been increased" not in text:
            if text.startswith("An error was raised"):
                text = "An error was raised"
            self._trace.add("log", record.levelname, text.splitlines()[0])


@contextmanager
def tracing(tf, run):
    """A trace whose lines are noted at the end."""
    directory = tempfile.mkdtemp()
    trace = Trace(tf, directory)
    logger = tf.get_logger()
    handler = Lines(trace)
    level = logger.level
    logger.addHandler(handler)
    tf.logging.set_verbosity(tf.logging.INFO)
    try:
        yield trace
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        tf.summary.FileWriterCache.clear()
        shutil.rmtree(directory)
    run.note(trace.lines)


def spy(trace, label="spy", **plan):
    """A hook that notes its calls. plan: what to do at a call, by method: {number: function}."""

    class Spy(trace.tf.train.SessionRunHook):
        def __init__(self):
            self.count = {}

        def note(self, method, *words):
            trace.add(label, method, *words)
            number = self.count[method] = self.count.get(method, 0) + 1
            return plan.get(method, {}).get(number, lambda: None)()

        def begin(self):
            self.note("begin", trace.tf.get_default_graph().finalized)

        def after_create_session(self, session, coord):
            self.note("after_create_session", session.graph.finalized, coord.should_stop())

        def before_run(self, context):
            args = context.original_args
            fed = sorted(key.name for key in args.feed_dict or ())
            return self.note("before_run", args.fetches is not None, fed, context.stop_requested)

        def after_run(self, context, values):
            acted = self.note("after_run", plain(values.results))
            if acted == "stop":
                context.request_stop()

        def end(self, session):
            self.note("end")

    return Spy()


def counter(tf):
    """A global step, and what advances it."""
    step = tf.train.get_or_create_global_step()
    return step, tf.assign_add(step, 1, name="advance")


def raising(error):
    def function():
        raise error

    return function


def lost(tf):
    return tf.errors.AbortedError(None, None, "lost")


def loop(trace, session, fetches, limit=20):
    """Run until the session says that it's time to stop."""
    for _ in range(limit):
        if session.should_stop():
            trace.add("should stop")
            return
        trace.add("got", plain(session.run(fetches)))


@sequence
def stops_at_a_step(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        hooks = [spy(trace, "a"), tf.train.StopAtStepHook(last_step=3), spy(trace, "b")]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            trace.add("graph", session.graph is tf.get_default_graph(), session.graph.finalized)
            loop(trace, session, advance)
            trace.attempt("one more", lambda: session.run(advance))
        trace.add("finalized", tf.get_default_graph().finalized)
        trace.add("closed", session.should_stop(), session.graph)
        trace.attempt("close", session.close)


@sequence
def a_hook_stops(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        hooks = [spy(trace, "a", after_run={2: lambda: "stop"}), spy(trace, "b")]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            loop(trace, session, advance)


@sequence
def errors_in_the_block(tf, run):
    _, advance = counter(tf)
    ends = [
        tf.errors.OutOfRangeError(None, None, "over"),
        StopIteration(),
        ValueError("wrong"),
        tf.errors.AbortedError(None, None, "lost outside"),
        KeyboardInterrupt(),
    ]
    with tracing(tf, run) as trace:
        for error in ends:
            try:
                with tf.train.MonitoredSession(hooks=[spy(trace)]) as session:
                    session.run(advance)
                    raise error
            except BaseException as raised:
                trace.add("outside", type(raised).__name__)
            trace.add("finalized", tf.get_default_graph().finalized)


@sequence
def errors_in_hooks(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        for method in ("begin", "after_create_session", "before_run", "after_run", "end"):
            plan = {method: {1: raising(ValueError("in " + method))}}
            hooks = [spy(trace, "a"), spy(trace, "b", **plan), spy(trace, "c")]

            def train(hooks=hooks):
                with tf.train.MonitoredSession(hooks=hooks) as session:
                    session.run(advance)

            trace.attempt("training", train)


@sequence
def recovers_from_losses_in_runs(tf, run):
    _, advance = counter(tf)
    unavailable = tf.errors.UnavailableError(None, None, "gone")
    with tracing(tf, run) as trace:
        losing = spy(
            trace,
            "losing",
            before_run={3: raising(lost(tf))},
            after_run={4: raising(unavailable)},
        )
        session = tf.train.MonitoredTrainingSession(
            checkpoint_dir=trace.directory,
            save_checkpoint_steps=2,
            save_summaries_steps=None,
            log_step_count_steps=None,
            hooks=[losing, tf.train.StopAtStepHook(last_step=6), spy(trace)],
        )
        with session:
            loop(trace, session, advance)


@sequence
def recovers_without_checkpoints(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        losing = spy(trace, "losing", before_run={3: raising(lost(tf))})
        hooks = [losing, tf.train.StopAtStepHook(num_steps=3)]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            loop(trace, session, advance)


@sequence
def recovers_while_a_session_is_made(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        losing = spy(trace, after_create_session={1: raising(lost(tf)), 2: raising(lost(tf))})
        with tf.train.MonitoredSession(hooks=[losing]) as session:
            trace.add(session.run(advance))


@sequence
def a_singular_session_raises_losses(tf, run):
    _, advance = counter(tf)
    with tracing(tf, run) as trace:
        losing = spy(trace, before_run={2: raising(lost(tf))})

        def train():
            with tf.train.SingularMonitoredSession(hooks=[losing]) as session:
                trace.add("raw", isinstance(session.raw_session(), tf.Session))
                loop(trace, session, advance)

        trace.attempt("training", train)


@sequence
def threads_that_fail(tf, run):
    """Closing the session raises the error of a failed thread."""
    _, advance = counter(tf)
    causes = [
        ValueError("in a thread"),
        tf.errors.OutOfRangeError(None, None, "over"),
        tf.errors.AbortedError(None, None, "lost in a thread"),
    ]
    with tracing(tf, run) as trace:
        for error in causes:
            for kind in (tf.train.MonitoredSession, tf.train.SingularMonitoredSession):

                class Failing(tf.train.SessionRunHook):
                    cause, times = error, 0

                    def after_create_session(self, session, coord):
                        self.coord = coord

                    def after_run(self, context, values):
                        self.times += 1
                        if self.times == 2:
                            with self.coord.stop_on_exception():
                                raise self.cause

                def train(kind=kind, Failing=Failing):
                    with kind(hooks=[spy(trace), Failing()]) as session:
                        loop(trace, session, advance, 4)

                trace.attempt("training", train)


@sequence
def queue_runners_to_the_end_of_input(tf, run):
    queue = tf.train.input_producer([5, 6, 7], num_epochs=1, shuffle=False)
    item = queue.dequeue()
    with tracing(tf, run) as trace, tf.train.MonitoredSession(hooks=[spy(trace)]) as session:
        loop(trace, session, item)


@sequence
def queue_runners_that_fail(tf, run):
    queue = tf.FIFOQueue(10, [tf.int64], name="numbers")
    step, _ = counter(tf)
    checked = tf.check_numerics(tf.constant(float("nan")), "bad input")
    with tf.control_dependencies([checked]):
        enqueue = queue.enqueue([tf.identity(step)])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [enqueue]))
    item = queue.dequeue()

    def train():
        with tf.train.MonitoredSession() as session:
            session.run(item)

    try:
        train()
    except tf.errors.OpError as error:
        run.note(type(error).__name__)


@sequence
def step_functions(tf, run):
    step, advance = counter(tf)

    class Model:
        def step(self, step_context):
            return step_context.run_with_hooks(advance)

    def whole(step_context):
        before = step_context.session.run(step)
        return [before, step_context.run_with_hooks(advance)]

    def stopping(step_context):
        step_context.request_stop()

    with tracing(tf, run) as trace, tf.train.MonitoredSession(hooks=[spy(trace)]) as session:
        trace.attempt("function", lambda: session.run_step_fn(whole))
        trace.attempt("method", lambda: session.run_step_fn(Model().step))
        trace.attempt("arguments", lambda: session.run_step_fn(lambda other: None))
        trace.attempt("none", lambda: session.run_step_fn(lambda: None))
        session.run_step_fn(stopping)
        trace.add("not reached")


@sequence
def step_functions_after_losses(tf, run):
    _, advance = counter(tf)
    errors = [lost(tf)]

    def losing(step_context):
        if errors:
            raise errors.pop()
        return step_context.run_with_hooks(advance)

    with tracing(tf, run) as trace, tf.train.MonitoredSession(hooks=[spy(trace)]) as session:
        trace.add(session.run_step_fn(losing))


@sequence
def hooks_that_fetch_and_feed(tf, run):
    x = tf.placeholder_with_default(1.0, [], name="x")
    y = tf.placeholder_with_default(2.0, [], name="y")
    both = tf.add(x, y)

    def feeding(value):
        return lambda: tf.train.SessionRunArgs(both, feed_dict={x: value})

    with tracing(tf, run) as trace:
        feeder = spy(trace, "a", before_run={1: feeding(10.0), 3: feeding(20.0)})
        other = spy(trace, "b", before_run={2: feeding(30.0), 3: feeding(40.0)})
        hooks = [feeder, other]
        with tf.train.MonitoredSession(hooks=hooks) as session:
            trace.add(plain(session.run({"sum": both, "parts": [x, y]}, {y: 5.0})))
            trace.attempt("hook and user", lambda: session.run(both, {x: 5.0}) and None)
            trace.attempt("two hooks", lambda: session.run(both) and None)
        given = tf.train.FeedFnHook(lambda: {x: 7.0})
        with tf.train.MonitoredSession(hooks=[given]) as session:
            trace.add(plain(session.run((both, x))))


@sequence
def options_of_hooks(tf, run):
    _, advance = counter(tf)

    class Tracing(tf.train.SessionRunHook):
        def before_run(self, context):
            level = tf.RunOptions.FULL_TRACE
            return tf.train.SessionRunArgs(None, options=tf.RunOptions(trace_level=level))

    with tracing(tf, run) as trace:

        class Looking(tf.train.SessionRunHook):
            def after_run(self, context, values):
                options = values.options
                trace.add(options.trace_level, options.timeout_in_ms)
                trace.add(len(values.run_metadata.step_stats.dev_stats) > 0)

        with tf.train.MonitoredSession(hooks=[Looking()]) as session:
            session.run(advance)
            session.run(advance, options=tf.RunOptions(timeout_in_ms=5000))
        with tf.train.MonitoredSession(hooks=[Tracing(), Looking()]) as session:
            session.run(advance, options=tf.RunOptions(timeout_in_ms=5000))
            metadata = tf.RunMetadata()
            session.run(advance, run_metadata=metadata)
            trace.add(len(metadata.step_stats.dev_stats) > 0)
