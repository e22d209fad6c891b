"""Sequences of steps that run under TensorFlow 1.15.5 and under Headrace alike: what each step
gives, values or errors. This file and the sequences must stay valid Python 3.7.

A sequence is a function of `tf` and `run`: `run(fetches, feed_dict)` runs a step and notes what
came of it; `attempt(function)` notes what a Python function raises. scripts/record_sequences runs
them under TensorFlow.
"""

import re

SEQUENCES = {}


def sequence(function):
    """Register a sequence."""
    key = function.__module__.rpartition(".")[2].replace("sequences_", "") + "." + function.__name__
    assert key not in SEQUENCES, key
    SEQUENCES[key] = function
    return function


class Recorder:
    """Runs the steps of one sequence in a session, and keeps what came of them as plain data."""

    def __init__(self, tf, session):
        self._tf = tf
        self._session = session
        self.notes = []

    def __call__(self, fetches, feed_dict=None, **options):
        try:
            self.notes.append(plain(self._session.run(fetches, feed_dict, **options)))
        except self._tf.errors.OpError as error:
            self.notes.append([type(error).__name__, message(error)])

    def attempt(self, function):
        """Note what `function` raises, by its type and message, or 'fine'."""
        try:
            function()
        except (ValueError, TypeError, self._tf.errors.OpError) as error:
            self.notes.append([type(error).__name__, str(error).splitlines()[0]])
        else:
            self.notes.append("fine")

    def note(self, value):
        """Note a value that building gave."""
        self.notes.append(plain(value))

    @property
    def session(self):
        return self._session


def message(error):
    """What happened, without the node that TensorFlow names and the number of a private queue."""
    text = re.sub(r"\s*\[\[\{?node.*", "", error.message, flags=re.S).strip()
    return re.sub(r"(?<=['\s])_\d+_", "_0_", text)


def plain(value):
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode("latin1")
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return value


def run_sequence(tf, function, config=None):
    """The notes of one sequence."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=config) as session:
        recorder = Recorder(tf, session)
        function(tf, recorder)
        return recorder.notes
