"""The modules of TensorFlow's own source tree: `from headrace.python.ops import array_ops`.

Programs for TensorFlow 1 import `tensorflow.python.…` for functions that `tf` publishes under
another name, or not at all. Each module below this package is made when it is imported; its names
are Headrace's public objects (`headrace.python.framework.ops.Graph is tf.Graph`).

`_table`      what TensorFlow 1.15 has in which module, as recorded from it
`_homes`      where a name is that has no public name; `_functions` and `_deprecation` have
              those that are only here
`_modules`    the modules themselves: the finder of imports, and the names on first use
"""

from headrace.python._modules import install

__getattr__, __dir__ = install(__name__)
