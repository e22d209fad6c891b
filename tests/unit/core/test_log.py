"""tf.logging: levels, counts, and where lines go."""

import logging

import pytest

import headrace as tf
from tests.faults import process


@pytest.fixture
def lines(caplog):
    before = tf.get_logger().level
    tf.logging.set_verbosity(tf.logging.DEBUG)
    yield caplog
    tf.get_logger().setLevel(before)


def test_levels(lines):
    for say in ("debug", "info", "warn", "warning", "error", "fatal"):
        getattr(tf.logging, say)("%s %d", say, 7)
    tf.logging.log(tf.logging.INFO, "logged")
    tf.logging.vlog(tf.logging.WARN, "older")
    tf.logging.log_if(tf.logging.INFO, "yes", True)
    tf.logging.log_if(tf.logging.INFO, "no", False)
    tf.logging.TaskLevelStatusMessage("status")
    tf.logging.flush()
    assert [(r.levelname, r.getMessage()) for r in lines.records] == [
        ("DEBUG", "debug 7"),
        ("INFO", "info 7"),
        ("WARNING", "warn 7"),
        ("WARNING", "warning 7"),
        ("ERROR", "error 7"),
        ("CRITICAL", "fatal 7"),
        ("INFO", "logged"),
        ("WARNING", "older"),
        ("INFO", "yes"),
        ("ERROR", "status"),
    ]


def test_a_record_names_the_line_of_the_caller(lines):
    tf.logging.info("here")
    assert lines.records[0].filename == "test_log.py"


def test_verbosity(lines):
    tf.logging.set_verbosity("WARN")
    assert tf.logging.get_verbosity() == tf.logging.WARN == logging.WARNING
    tf.logging.info("unseen")
    assert not lines.records


def test_counts_are_by_line(lines):
    for i in range(7):
        tf.logging.log_every_n(tf.logging.INFO, "every %d", 3, i)
        tf.logging.log_first_n(tf.logging.INFO, "first %d", 2, i)
    said = [record.getMessage() for record in lines.records]
    assert said == ["every 0", "first 0", "first 1", "every 3", "every 6"]


SPEAKING = """
import sys, logging
sys.stderr = sys.stdout
import headrace as tf
tf.logging.info("unseen")
tf.logging.warn("seen")
tf.logging.set_verbosity(tf.logging.INFO)
tf.logging.info("seen too")
logging.basicConfig(stream=sys.stdout, format="[%(message)s]")
tf.logging.info("once, the program's way")
"""


def test_lines_go_to_stderr_until_the_program_has_its_own_way():
    said = process.run(SPEAKING).splitlines()
    assert said == ["WARNING:headrace:seen", "INFO:headrace:seen too", "[once, the program's way]"]


def test_a_message_that_cannot_be_formatted_ends_nothing():
    code = "import headrace as tf\ntf.logging.warn('%d', 'text')\nprint('still here')"
    assert process.run(code) == "still here"
