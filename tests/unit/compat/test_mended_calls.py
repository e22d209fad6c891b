"""Files of Python 3 that NumPy 2 and other libraries broke."""

import io
import textwrap

import numpy as np
import pytest

from headrace._src.compat import notices, sources, tree


def run(text, **names):
    notices._said.clear()
    names = dict(tree.helpers(), **names)
    exec(sources.compiled(textwrap.dedent(text).encode(), "program.py"), names)
    return names


def test_scalars_do_not_widen_arrays(capsys):
    names = run(
        """
        import numpy as np
        a = np.ones([2, 2], np.float32)
        two = np.float64(2)
        kept = a / np.sqrt(4), two * a, a - np.prod([2, 3]), a + np.array(1.0), a ** two
        wide = a * np.ones([2]), np.ones(2, int) * np.float64(2), np.ones(2, np.int32) * np.int64(9)
        half = np.ones(2, np.float16) * np.sqrt(2.)
        text = "%s-%s" % (1, 2) + "x" * 3
        """
    )
    assert [v.dtype for v in names["kept"]] == [np.float32] * 5
    assert names["kept"][0].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert names["kept"][2].tolist() == [[-5, -5], [-5, -5]]
    assert [v.dtype.kind for v in names["wide"]] == ["f", "f", "i"]
    assert names["wide"][0].dtype == np.float64 and names["half"].dtype == np.float16
    assert names["text"] == "1-2xxx"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("a float32 array and a float64 scalar give float32, as in NumPy 1")


def test_numpy_functions(tmp_path, capsys):
    path = str(tmp_path / "o.npy")
    names = run(
        f"""
        import numpy as np
        ragged = np.array([[1], [1, 2]]), np.asarray([[1], [2]], dtype=np.int32)
        np.save({path!r}, ragged[0], allow_pickle=True)
        back = np.load({path!r})
        shaped = np.reshape([1, 2], newshape=(2, 1))
        raw = np.fromstring(b'\\x01\\x02', dtype=np.uint8), np.fromstring('1 2', sep=' ')
        same = np.array([1], copy=False)
        counts = np.histogram([1, 2], bins=2, normed=True)[0]
        """
    )
    assert names["ragged"][0].dtype == object and names["ragged"][1].dtype == np.int32
    assert names["back"].tolist() == [[1], [1, 2]] and names["shaped"].shape == (2, 1)
    assert names["raw"][0].tolist() == [1, 2] and names["raw"][1].tolist() == [1.0, 2.0]
    assert names["raw"][0].flags.writeable and names["counts"].tolist() == [1.0, 1.0]
    kinds = [line.split(": ", 2)[2] for line in capsys.readouterr().err.splitlines()]
    assert len(kinds) == 4 and "np.load unpickles objects" in kinds[1]


def test_methods_that_have_gone(capsys):
    names = run(
        """
        import numpy as np
        a = np.arange(4, dtype=np.uint8)
        a.itemset(0, 7); a.itemset((1,), 8)
        raw, spread = a.tostring(), a.ptp()
        pairs = [list(d.iteritems()), d.has_key('a')]
        own = o.tostring()
        """,
        d={"a": 1},
        o=type("Own", (), {"tostring": lambda self: "own"})(),
    )
    assert names["a"].tolist() == [7, 8, 2, 3] and names["spread"] == 6
    assert (names["raw"], names["pairs"]) == (b"\x07\x08\x02\x03", [[("a", 1)], True])
    assert names["own"] == "own"
    assert "ndarray.tostring has gone; tobytes is called" in capsys.readouterr().err
    with pytest.raises(AttributeError, match="'int' object has no attribute 'iteritems'"):
        run("x = (3).iteritems()")


def test_a_stream_is_read_again():
    stream = io.BytesIO()
    np.save(stream, np.array([{1: 2}], object), allow_pickle=True)
    stream.seek(0)
    assert run("import numpy as np\nx = np.load(s)", s=stream)["x"].tolist() == [{1: 2}]


def test_tracebacks_name_the_line():
    names = run("import numpy as np\n\n\ndef f(a):\n    return a / np.sqrt(None)\n")
    with pytest.raises((TypeError, AttributeError)) as caught:
        names["f"](1)
    assert caught.traceback[1].lineno == 4
