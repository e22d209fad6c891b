"""tf.flags and tf.app.run, in separate processes, since flags belong to a process."""

import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def run(tmp_path):
    def run(text, *arguments):
        program = tmp_path / "program.py"
        program.write_text("import headrace as tf\n" + textwrap.dedent(text))
        return subprocess.run(
            [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=240
        )

    return run


PROGRAM = """
    flags = tf.app.flags
    flags.DEFINE_string("log_dir", "/tmp/mine", "Where to write.")  # absl has one too
    flags.DEFINE_integer("steps", default_value=3, docstring="How many.")
    tf.flags.DEFINE_boolean("fast", False, "Whether to hurry.")
    FLAGS = tf.app.flags.FLAGS

    def main(arguments):
        print(arguments[1:], FLAGS.log_dir, FLAGS.steps, FLAGS.fast)
        return 3

    if __name__ == "__main__":
        tf.app.run()
"""


def test_run_parses_calls_main_and_exits_with_its_value(run):
    done = run(PROGRAM, "--steps", "4", "--fast", "rest", "--unknown=1")
    assert done.stdout == "['rest', '--unknown=1'] /tmp/mine 4 True\n"
    assert done.returncode == 3


def test_mistakes_and_help_are_told_to_the_user(run):
    done = run(PROGRAM, "--steps=x")
    assert done.returncode == 1
    assert done.stderr.startswith("FATAL Flags parsing error: flag --steps=x: invalid literal")
    shown = run(PROGRAM, "--help").stdout
    assert "--steps: How many." in shown and "--log_dir: Where to write." in shown


def test_flags_are_parsed_when_they_are_read_first(run):
    done = run(
        """
        tf.flags.DEFINE_float("rate", 0.1, "")
        FLAGS = tf.flags.FLAGS
        print("rate" in FLAGS, FLAGS.is_parsed(), FLAGS.rate, FLAGS.is_parsed())
        FLAGS.rate = 2.0
        print(FLAGS.rate, FLAGS["rate"].value, isinstance(FLAGS, tf.flags.FlagValues))
        try:
            FLAGS.other
        except AttributeError as error:
            print(error)
        try:
            FLAGS.other = 1
        except tf.flags.UnrecognizedFlagError as error:
            print(error)
        """,
        "--rate=0.5",
    )
    assert done.stdout.splitlines() == [
        "True False 0.5 True",
        "2.0 2.0 True",
        "other",
        "Unknown command line flag 'other'",
    ], done.stderr


def test_flags_are_parsed_as_before_tensorflow_1_5(run):
    done = run(
        """
        tf.flags.DEFINE_float("rate", 0.1, "")
        FLAGS = tf.flags.FLAGS
        FLAGS._parse_flags()
        print(FLAGS.is_parsed(), FLAGS.rate)
        FLAGS._parse_flags(["--rate=2"])
        print(FLAGS.rate)
        """,
        "--other=1",
        "--rate=0.5",
    )
    assert done.stdout.splitlines() == ["True 0.5", "2.0"], done.stderr
