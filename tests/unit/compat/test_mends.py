"""Modules that have gone or changed, in a process with the alias. Libraries that are not installed
here are stood in for by small modules with the interface that was removed.
"""

import subprocess
import sys
import textwrap


def run(text, folder, **options):
    script = folder / "program.py"
    script.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", *options.get("arguments", ()), str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env=options.get("env"),
    )
    return done


def test_python(tmp_path):
    done = run(
        """
        import base64, collections, fractions, inspect, itertools, json, os, random, string, sys
        import time, types, urllib, pickle
        import cPickle, ConfigParser, Queue, StringIO, cStringIO, commands, urllib2, urlparse, sets
        import UserDict, __builtin__, six
        from collections import Mapping, Iterable
        from six.moves import xrange, urllib as u, cPickle as p, queue, zip_longest
        from six.moves.urllib.request import urlretrieve
        from distutils.version import LooseVersion
        import imp
        assert isinstance({}, Mapping) and time.clock() >= 0 and fractions.gcd(4, 6) == 2
        assert inspect.getargspec(lambda a, *b, c=1, **d: 0)[:3] == (["a"], "b", "d")
        assert list(itertools.izip([1], [2])) == [(1, 2)] and string.letters[0] == "a"
        assert string.join(["a", "b"]) == "a b" and string.maketrans("a", "b") == {97: 98}
        assert json.loads("[1]", encoding="utf-8") == [1] and len(random.sample({1, 2}, 1)) == 1
        assert os.getcwdu() == os.getcwd() and os.errno.ENOENT == 2 and sys.maxint == sys.maxsize
        assert base64.encodestring(b"a") == b"YQ==\\n" and isinstance("a", types.StringTypes)
        assert urllib.quote("a b") == "a%20b" and urlparse.urlparse("http://a/b").path == "/b"
        assert Queue.Queue is queue.Queue and StringIO.StringIO("a").read() == "a"
        assert cStringIO.StringIO(b"a").read() == b"a" and cPickle is p is pickle
        assert sets.Set is set and __builtin__.len is len and commands.getoutput("echo 1") == "1"
        assert six.PY3 and list(six.iteritems({1: 2})) == [(1, 2)] and list(xrange(1)) == [0]
        class Meta(type): pass
        class A(six.with_metaclass(Meta, dict)): pass
        @six.add_metaclass(Meta)
        class B(object): pass
        assert type(A) is type(B) is Meta and A.__mro__[1] is dict
        assert LooseVersion("1.15.0") > LooseVersion("1.2") and imp.new_module("m").__name__ == "m"
        # A pickle that Python 2.7 wrote: numpy.array([1, 200], 'uint8'), and a file opened as text.
        old = (b"cnumpy.core.multiarray\\n_reconstruct\\np0\\n(cnumpy\\nndarray\\np1\\n(I0\\ntp2\\n"
               b"S'b'\\np3\\ntp4\\nRp5\\n(I1\\n(I2\\ntp6\\ncnumpy\\ndtype\\np7\\n(S'u1'\\np8\\nI0\\nI1\\n"
               b"tp9\\nRp10\\n(I3\\nS'|'\\np11\\nNNNI-1\\nI-1\\nI0\\ntp12\\nbI00\\n"
               b"S'\\\\x01\\\\xc8'\\np13\\ntp14\\nb.")
        assert pickle.loads(old).tolist() == [1, 200]
        with open("old.pkl", "wb") as f: f.write(old)
        with open("old.pkl") as f: assert pickle.load(f).tolist() == [1, 200]
        with open("new.pkl", "w") as f: pickle.dump([3], f)
        with open("new.pkl", "rb") as f: assert pickle.load(f) == [3]
        print("fine")
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fine\n"
    notices = [line for line in done.stderr.splitlines() if line.startswith("headrace: ")]
    assert sum("moved modules" in line for line in notices) == 1


def test_numpy_scipy_and_scikit_learn(tmp_path):
    done = run(
        """
        import numpy as np, scipy, scipy.misc, scipy.signal, scipy.integrate
        from scipy.misc import logsumexp, imresize
        from scipy.sparse.linalg.eigen.arpack import eigsh
        from scipy.ndimage.filters import gaussian_filter
        from sklearn.cross_validation import KFold, StratifiedKFold, train_test_split
        from sklearn.externals import joblib
        from sklearn.grid_search import GridSearchCV
        from sklearn.preprocessing import OneHotEncoder
        from numpy import float as f
        assert (np.int, np.object, f, np.Inf) == (int, object, float, np.inf)
        assert np.bool is np.bool_ and np.float_ is np.float64 and np.asscalar(np.array([2])) == 2
        assert np.product([2, 3]) == 6 and np.in1d([1], [1]).all() and np.sctypes["float"]
        assert np.trapz([1, 1]) == 1.0 and scipy.sqrt(4.0) == 2 and scipy.signal.hanning(3)[1] == 1
        assert scipy.integrate.simps([1, 1, 1]) == 2 and repr([np.float32(1.5)]) == "[1.5]"
        assert len(KFold(4, n_folds=2)) == 2 and len(StratifiedKFold([0, 0, 1, 1], 2)[0]) == 2
        assert OneHotEncoder(sparse=False).fit_transform([[0], [1]]).shape == (2, 2)
        assert np.lib.pad([1], 1, "constant").tolist() == [0, 1, 0]
        assert not hasattr(np, "no_such") and not hasattr(np.lib, "no_such")
        print("fine")
        """,
        tmp_path,
    )
    assert done.stdout == "fine\n", done.stderr
    assert "np.float has gone from NumPy" in done.stderr
    assert "scipy.sparse.linalg.eigen.arpack is scipy.sparse.linalg now" in done.stderr


FAKES = {
    "matplotlib/__init__.py": "def use(name, **rest): print('backend', name)\n",
    "matplotlib/pyplot.py": """
class Figure:
    def savefig(self, path): open(path, 'w').close()
open_figures = [1, 2]
def get_fignums(): return list(open_figures)
def figure(number): return Figure()
def close(which): open_figures.clear()
def show(block=None): raise RuntimeError('no display')
def pause(interval): raise RuntimeError('no display')
""",
    "networkx.py": """
class Graph:
    nodes = {1: {}}
    adj = {1: {}}
    def neighbors(self, n): return iter([2])
def from_numpy_array(a): return Graph()
def connected_components(g): return []
""",
    "yaml.py": """
class SafeLoader: pass
def load(stream, Loader): return stream, Loader.__name__
def load_all(stream, Loader): return [stream]
""",
    "gymnasium.py": """
__version__ = '1.0'
__path__ = []
registry = {'CartPole-v1': 1}
class Env:
    def __init__(self, mode): self.mode = mode
    unwrapped = action_space = 'inner'
    def reset(self, seed=None): return ('observation', seed), {}
    def step(self, action): return 'next', 1.0, False, True, {}
    def render(self): return self.mode
    def close(self): pass
def make(id, render_mode=None):
    if id not in registry: raise KeyError(id)
    return Env(render_mode)
""",
}


def test_libraries_that_stand_in(tmp_path):
    installed = tmp_path / "site-packages"
    for name, text in FAKES.items():
        path = installed / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = run(
        f"""
        import sys
        sys.path.insert(0, {str(installed)!r})
        import matplotlib
        matplotlib.use('TkAgg')
        import matplotlib.pyplot as plt
        plt.show(); plt.pause(1); plt.show()
        import networkx as nx, yaml, gym
        g = nx.from_numpy_matrix([[0]])
        assert g.node is g.nodes and list(g.neighbors_iter(1)) == [2] and nx.info
        assert list(nx.connected_component_subgraphs(g)) == []
        assert yaml.load('a') == ('a', 'SafeLoader') and yaml.load('a', Loader=int)[1] == 'int'
        env = gym.make('CartPole-v0')
        assert env.seed(3) == [3] and env.reset() == ('observation', 3)
        assert env.reset() == ('observation', None) and env.action_space == 'inner'
        assert env.step(0) == ('next', 1.0, True, {{'TimeLimit.truncated': True}})
        assert env.render() is None and env.render(mode='rgb_array') == 'rgb_array'
        """,
        tmp_path,
        env={"PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "backend Agg\nsaved figure-1.png\nsaved figure-2.png\n"
    assert (tmp_path / "figure-2.png").is_file()
    lines = [line.partition(": ")[2].partition(": ")[2] for line in done.stderr.splitlines()]
    assert lines == [
        "there is no display: figures are saved instead of shown",
        "networkx.from_numpy_matrix has gone or moved; it is supplied",
        "yaml.load needs a Loader now; it gets yaml.SafeLoader",
        "environments have the interface of gym before 0.26",
        "CartPole-v0 has gone; CartPole-v1 is used",
    ]


def test_downloads_and_images_that_fail(tmp_path):
    done = run(
        """
        import os, urllib, urllib2
        from urllib.request import urlretrieve
        from urllib.error import URLError
        import tensorflow as tf
        try:
            urlretrieve('http://127.0.0.1:9/a/text8.zip', 'data/text8.zip')
        except URLError as error:
            print(error)
        try:
            urllib.urlretrieve('http://127.0.0.1:9/b.tgz', 'b.tgz')
        except IOError as error:
            print(error)
        """,
        tmp_path,
    )
    first, second = done.stdout.splitlines()
    assert "text8.zip cannot be downloaded (" in first, done.stderr
    assert f"Put the file text8.zip into {tmp_path}/data and run the program again." in first
    assert "It expects text8.zip: the first 100,000,000 letters of Wikipedia" in first
    assert "It expects the contents of http://127.0.0.1:9/b.tgz" in second


def test_nothing_is_mended_on_request(tmp_path):
    text = "import tensorflow as tf\nprint(tf.mul(2, 3).op.type)\nimport cPickle\n"
    done = run(text, tmp_path, arguments=["--no-mend"])
    assert done.returncode == 1 and done.stdout == "Mul\n"
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'cPickle'\n")
    done = run("print 'a'\n", tmp_path, arguments=["--no-mend"])
    assert done.returncode == 1 and "Missing parentheses in call to 'print'" in done.stderr


def test_files_stay_as_they_are(tmp_path):
    (tmp_path / "beside.py").write_text("print 'beside', 7 / 2\n")
    text = "import beside, tensorflow\n"
    done = run(text, tmp_path)
    assert done.stdout == "beside 3\n", done.stderr
    assert (tmp_path / "beside.py").read_text() == "print 'beside', 7 / 2\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["beside.py", "program.py"]
    assert done.stderr == "headrace: beside.py: translated in memory (print statements)\n"
