"""Python 2 sources: statements as text, and what they do when they are run."""

import ast
import textwrap

import pytest

from headrace._src.compat import notices, sources, tree
from headrace._src.compat.python2 import translate

PAIRS = {
    "print": "print()",
    "print 1, 2": "print(1, 2)",
    "print 'a',": "print('a', end=\" \")",
    "print('a')": "print('a')",
    "print ('%d') % 3": "print(('%d') % 3)",
    "print >>f, 'x', 1": "print( 'x', 1, file=f)",
    "print >>f": "print(file=f)",
    "if x: print 1; print 2": "if x: print(1); print(2)",
    "f = lambda: 0; print f": "f = lambda: 0; print(f)",
    "print 'a' # why": "print('a') # why",
    "print = 3": "print = 3",
    "exec code": "exec( code)",
    "exec code in ns": "exec( code , ns)",
    "exec(code)": "exec(code)",
    "raise E, 'm'": "raise E('m')",
    "raise E, 'm', tb": "raise E('m').with_traceback( tb)",
    "raise E('a', 'b')": "raise E('a', 'b')",
    "except (A, B), e: pass": "except (A, B) as e: pass",
    "x = `a` + 0777 + 10L": "x = repr(a) + 0o777 + 10",
    "if a <> b: pass": "if a != b: pass",
    "x = ur'\\d' + u'x'": "x = r'\\d' + u'x'",
    "f(async=True); x.async = 1": "f(async_=True); x.async_ = 1",
    "async def f(): pass": "async def f(): pass",
    "s = 'print 1 <> 0777'": "s = 'print 1 <> 0777'",
    "x = 0x1FL, 0, 00, 0.5, 1e3": "x = 0x1F, 0, 00, 0.5, 1e3",
}


@pytest.mark.parametrize("before", PAIRS)
def test_statement(before):
    assert translate(before).text == PAIRS[before]


def test_lines_stay_where_they_are():
    text = 'print "a %s" % \\\n   x\nprint >>f, (1,\n  2)\nraise E, (1,\n  2)\n'
    found = translate(text)
    ast.parse(found.text)
    assert found.text.count("\n") == text.count("\n")
    assert found.kinds == {"print statements", "raise statements"} and found.is_python2
    assert not translate("async = 1").is_python2


def run(text):
    notices._said.clear()
    names = dict(tree.helpers(), __name__="program")
    exec(
        sources.compiled(textwrap.dedent(text).replace("<tab>", "\t").encode(), "program.py"), names
    )
    return names


def test_program(capsys):
    names = run(
        """
        import sys
        def f(a, (b, c), d=0777):
        <tab>if b:
                        return `a` + str(c), d
        g = lambda (x, y): x + y
        try:
            raise ValueError, 'bad %d' % 3
        except (ValueError, KeyError), e:
            print >>sys.stderr, 'caught', e
        d = {'k': 1}
        half, minus, real = 7 / 2, -7 / 2, 7 / 2.
        n = 10; n /= 4
        held = {'n': 9}; held['n'] /= 2
        lists = map(None, [1, 2]), filter(None, [0, 1]), zip([1], [2]), range(2) + [5], d.items()
        order = sorted([1, 3, 2], cmp=lambda a, b: cmp(b, a)); order.sort(lambda a, b: cmp(a, b))
        texts = 'ab'.decode('utf-8'), u'\\xe9'.encode('utf-8'), 'a'.encode('hex'), unichr(97)
        it = iter([4]); first = it.next()
        has = d.has_key('k'), [k for k in d.iterkeys()], isinstance(u'', basestring), long(3)
        total = reduce(lambda a, b: a + b, xrange(4)), round(2.5), intern('x')
        exec 'made = 5'
        print 'end',
        """
    )
    assert names["f"](1, (2, 3)) == ("13", 0o777) and names["g"]((1, 2)) == 3
    assert (names["half"], names["minus"], names["real"]) == (3, -4, 3.5)
    assert (names["n"], names["held"], names["made"], names["first"]) == (2, {"n": 4}, 5, 4)
    assert names["lists"] == ([1, 2], [1], [(1, 2)], [0, 1, 5], [("k", 1)])
    assert names["order"] == [1, 2, 3] and names["texts"] == ("ab", "é", "61", "a")
    assert names["has"] == (True, ["k"], True, 3) and names["total"] == (6, 3.0, "x")
    out, err = capsys.readouterr()
    assert out == "end " and "caught bad 3" in err
    assert err.startswith("headrace: program.py: translated in memory (")


def test_division_is_true_where_the_file_says_so():
    assert run("from __future__ import division\nprint 'x'\nh = 7 / 2")["h"] == 3.5
    assert run("h = len([x for x in xrange(7)]) / 2")["h"] == 3
    both = "import sys\nif sys.version_info[0] < 3: range = xrange\nh = 7 / 2"
    assert run(both)["h"] == 3.5
    assert run("h = 7 / 2")["h"] == 3.5


def test_names_that_a_file_defines_are_its_own():
    names = run("def reduce(a): return a\nunicode = 3\nx = reduce(unicode), [xrange(2)]")
    assert names["x"] == (3, [range(2)])


def test_neither_python_2_nor_3():
    with pytest.raises(SyntaxError, match="invalid syntax") as caught:
        sources.compiled(b"x = 1\ny = = 2\n", "bad.py")
    assert caught.value.lineno == 2


def test_encodings():
    assert sources.text_of("x = 'é'".encode("latin-1")) == "x = 'é'"
    assert sources.text_of(b"# coding: latin-1\nx = '\xe9'") == "# coding: latin-1\nx = 'é'"
    assert sources.text_of("\ufeffx = 'é'\r\n".encode()) == "x = 'é'\n"


def test_files_opened_as_in_python_2(tmp_path):
    path = tmp_path / "file"
    names = run(
        f"""
        with open({str(path)!r}, 'wb') as f: f.write('text')
        with open({str(path)!r}, 'rU') as f: print f.read()
        with file({str(path)!r}, 'wb') as f: f.write(b'\\xff')
        with open({str(path)!r}) as f: back = f.read()
        """
    )
    assert names["back"].encode("utf-8", "surrogateescape") == b"\xff"
