"""`headrace run` behaves as `python` does: arguments, paths, exit status, tracebacks."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.faults.process import heed_interrupts


def run(*arguments, cwd=None, env=None, program="headrace"):
    command = (
        [sys.executable, "-m", "headrace", "run"] if program == "headrace" else [sys.executable]
    )
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=cwd,
        env=None if env is None else {**os.environ, **env},
        preexec_fn=heed_interrupts,
    )
    return done.returncode, done.stdout, done.stderr


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_a_script_sees_what_it_sees_under_python(tmp_path):
    write(tmp_path / "sub" / "beside.py", "where = __name__, __file__\n")
    write(
        tmp_path / "sub" / "script.py",
        """
        import os, pickle, sys, warnings
        import beside
        class Thing: pass
        print(__name__, __file__, __doc__, __package__, __spec__, sys.argv, os.getcwd())
        print(sys.path[0], beside.where, sys.modules["__main__"].Thing is Thing)
        print(pickle.loads(pickle.dumps(Thing())).__class__ is Thing)
        warnings.warn("shown", DeprecationWarning)
        sys.exit(3)
        """,
    )
    arguments = ["sub/script.py", "--flag", "-m", "--no-mend", "x"]
    assert run(*arguments, cwd=tmp_path) == run(*arguments, cwd=tmp_path, program="python")


def test_a_module_of_a_package(tmp_path):
    write(tmp_path / "pack" / "__init__.py", "")
    write(tmp_path / "pack" / "near.py", "value = 3\n")
    write(tmp_path / "pack" / "old.py", "import near\nprint near.value, 5 / 2\n")
    write(
        tmp_path / "pack" / "__main__.py",
        """
        import sys
        from .near import value
        from . import old
        print(value, __name__, __package__, sys.argv, sys.path[0])
        """,
    )
    status, out, err = run("-m", "pack", "--x", "1", cwd=tmp_path)
    main = str(tmp_path / "pack" / "__main__.py")
    assert (status, out) == (0, f"3 2\n3 __main__ pack {[main, '--x', '1']} {tmp_path}\n"), err
    assert run("-m", "pack.no_such", cwd=tmp_path) == (
        1,
        "",
        "headrace run: No module named pack.no_such\n",
    )


def test_what_cannot_be_run(tmp_path):
    status, out, err = run("no_such.py", cwd=tmp_path)
    message = "can't open file 'no_such.py': [Errno 2] No such file or directory"
    assert (status, out, err) == (2, "", f"headrace run: {message}\n")
    write(tmp_path / "bad.py", "x = 1\ny = = 2\n")
    status, out, err = run("bad.py", cwd=tmp_path)
    assert (status, out) == (1, "")
    assert err.splitlines()[0] == f'  File "{tmp_path}/bad.py", line 2' and "SyntaxError" in err
    status, out, err = run("--no-such-option")
    assert status == 2 and "No such option" in err
    assert "Run a TensorFlow 1 program, unmodified." in run("--help")[1]


PROGRAM = """
import threading
import tensorflow as tf

def build(x):
    return tf.matmul(x, tf.ones([3, 4]))

def work():
    build(tf.ones([2]))

thread = threading.Thread(target=work)
thread.start()
thread.join()
try:
    build(tf.ones([2, 2]))
except ValueError as error:
    raise RuntimeError("stopped") from error
"""


def test_frames_of_headrace_are_folded_away(tmp_path):
    write(tmp_path / "program.py", PROGRAM)
    status, _, err = run("program.py", cwd=tmp_path)
    assert status == 1
    frames = [line.strip() for line in err.splitlines() if line.lstrip().startswith("File ")]
    shown = [frame.replace(f"{tmp_path}/", "") for frame in frames]
    main = [frame for frame in shown if "threading.py" not in frame]
    assert main == [
        'File "program.py", line 9, in work',
        'File "program.py", line 6, in build',
        'File "program.py", line 15, in <module>',
        'File "program.py", line 6, in build',
        'File "program.py", line 17, in <module>',
    ]
    assert "RuntimeError: stopped" in err and "called from program.py:15" in err
    _, _, full = run("program.py", cwd=tmp_path, env={"HEADRACE_FULL_TRACEBACK": "1"})
    assert "_src" in full


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupts_end_the_process_as_they_end_python(tmp_path):
    write(
        tmp_path / "program.py",
        """
        import os, signal, time
        import tensorflow as tf
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
        """,
    )
    status, _, err = run("program.py", cwd=tmp_path)
    assert status == -signal.SIGINT and err.endswith("KeyboardInterrupt\n")
    assert "_src" not in err and "click" not in err


def test_flags_and_main(tmp_path):
    write(
        tmp_path / "program.py",
        """
        import sys
        import tensorflow as tf
        tf.app.flags.DEFINE_integer("steps", 3, "how many")
        FLAGS = tf.app.flags.FLAGS
        def main(argv):
            print(FLAGS.steps, argv[1:], argv[0])
            return 4
        if __name__ == "__main__":
            tf.app.run()
        """,
    )
    status, out, err = run("program.py", "--steps=5", "rest", cwd=tmp_path)
    assert (status, out) == (4, "5 ['rest'] program.py\n"), err


def test_spawned_processes_run_the_same_program(tmp_path):
    write(
        tmp_path / "program.py",
        """
        import multiprocessing
        def work(n):
            import tensorflow as tf
            return tf.mul(n, 2).op.type, n / 2
        if __name__ == "__main__":
            pool = multiprocessing.get_context("spawn").Pool(1)
            print pool.map(work, [5])
            pool.close(); pool.join()
        """,
    )
    status, out, err = run("program.py", cwd=tmp_path)
    assert (status, out) == (0, "[('Mul', 2)]\n"), err
