"""Modules that have gone. In: the name of a module. Out: in `MOVED`, the module that has its
names now; in `MADE`, the function that makes a module with them.
"""

from __future__ import annotations

import sys

__all__ = ["MADE", "MOVED"]

_HERE = "headrace._src.compat.mends"

MOVED = {
    # Python 2
    "BaseHTTPServer": "http.server",
    "ConfigParser": "configparser",
    "Cookie": "http.cookies",
    "HTMLParser": "html.parser",
    "Queue": "queue",
    "SimpleHTTPServer": "http.server",
    "SocketServer": "socketserver",
    "Tkinter": "tkinter",
    "__builtin__": "builtins",
    "cPickle": "pickle",
    "commands": "subprocess",
    "cookielib": "http.cookiejar",
    "copy_reg": "copyreg",
    "dummy_thread": "_thread",
    "dummy_threading": "threading",
    "exceptions": "builtins",
    "htmlentitydefs": "html.entities",
    "httplib": "http.client",
    "md5": "hashlib",
    "repr": "reprlib",
    "robotparser": "urllib.robotparser",
    "sha": "hashlib",
    "thread": "_thread",
    "tkFileDialog": "tkinter.filedialog",
    "tkMessageBox": "tkinter.messagebox",
    "ttk": "tkinter.ttk",
    "urlparse": "urllib.parse",
    "xmlrpclib": "xmlrpc.client",
    # NumPy and SciPy
    "numpy.core.umath_tests": "numpy.linalg",
    "numpy.testing.decorators": "numpy.testing",
    "scipy.sparse.linalg.eigen.arpack": "scipy.sparse.linalg",
    "scipy.sparse.linalg.eigen.arpack.arpack": "scipy.sparse.linalg",
    "scipy.ndimage.filters": "scipy.ndimage",
    "scipy.ndimage.fourier": "scipy.ndimage",
    "scipy.ndimage.interpolation": "scipy.ndimage",
    "scipy.ndimage.measurements": "scipy.ndimage",
    "scipy.ndimage.morphology": "scipy.ndimage",
    "scipy.signal.signaltools": "scipy.signal",
    "scipy.signal.filter_design": "scipy.signal",
    "scipy.stats.stats": "scipy.stats",
    "scipy.linalg.basic": "scipy.linalg",
    "scipy.sparse.csr": "scipy.sparse",
    "scipy.sparse.csgraph.traversal": "scipy.sparse.csgraph",
    # scikit-learn
    "sklearn.datasets.base": "sklearn.datasets",
    "sklearn.datasets.samples_generator": "sklearn.datasets",
    "sklearn.decomposition.pca": "sklearn.decomposition",
    "sklearn.ensemble.forest": "sklearn.ensemble",
    "sklearn.externals.joblib": "joblib",
    "sklearn.externals.six": "six",
    "sklearn.grid_search": "sklearn.model_selection",
    "sklearn.learning_curve": "sklearn.model_selection",
    "sklearn.linear_model.logistic": "sklearn.linear_model",
    "sklearn.metrics.classification": "sklearn.metrics",
    "sklearn.metrics.ranking": "sklearn.metrics",
    "sklearn.metrics.scorer": "sklearn.metrics",
    "sklearn.neighbors.unsupervised": "sklearn.neighbors",
    "sklearn.preprocessing.data": "sklearn.preprocessing",
    "sklearn.preprocessing.imputation": "sklearn.preprocessing",
    "sklearn.preprocessing.label": "sklearn.preprocessing",
    "sklearn.svm.classes": "sklearn.svm",
    "sklearn.tree.tree": "sklearn.tree",
    "sklearn.utils.testing": "sklearn.utils._testing",
    # Others
    "pandas.tools.plotting": "pandas.plotting",
}

MADE = {
    "StringIO": f"{_HERE}.standard_library:string_io",
    "UserDict": f"{_HERE}.standard_library:user_dict",
    "anydbm": f"{_HERE}.standard_library:any_dbm",
    "cStringIO": f"{_HERE}.standard_library:string_io",
    "gym": f"{_HERE}.gyms:make_gym",
    "scipy.misc": f"{_HERE}.scipy_1:make_misc",
    "scipy.misc.pilutil": f"{_HERE}.scipy_1:make_misc",
    "sets": f"{_HERE}.standard_library:sets",
    "six": f"{_HERE}.six:make",
    "six.moves": f"{_HERE}.six:make_moves",
    "six.moves.cPickle": f"{_HERE}.six:pickles",
    "six.moves.configparser": f"{_HERE}.six:configurations",
    "six.moves.queue": f"{_HERE}.six:queues",
    "six.moves.urllib": f"{_HERE}.six:urls",
    "six.moves.urllib.error": f"{_HERE}.six:url_errors",
    "six.moves.urllib.parse": f"{_HERE}.six:url_parts",
    "six.moves.urllib.request": f"{_HERE}.six:url_requests",
    "sklearn.cross_validation": f"{_HERE}.libraries:cross_validation",
    "urllib2": f"{_HERE}.standard_library:urllib2",
}
if sys.version_info >= (3, 12):
    MADE |= {
        "distutils": f"{_HERE}.standard_library:distutils",
        "distutils.dir_util": f"{_HERE}.standard_library:distutils",
        "distutils.spawn": f"{_HERE}.standard_library:distutils",
        "distutils.util": f"{_HERE}.standard_library:distutils",
        "distutils.version": f"{_HERE}.standard_library:distutils",
        "imp": f"{_HERE}.standard_library:imp",
    }
