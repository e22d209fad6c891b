"""Headrace: machine learning on stateful dataflow graphs, with TensorFlow 1.15's interfaces.

import headrace as tf

x = tf.placeholder(tf.float32, [None])
with tf.Session() as session:
    print(session.run(x * 2 + 1, {x: [1, 2, 3]}))
"""

from typing import TYPE_CHECKING

from headrace._src import api
from headrace._src.api import __all__ as __all__
from headrace._src.api import _homes
from headrace._src.core.export import on_first_use
from headrace._src.core.versions_and_text import (
    COMPILER_VERSION,
    CXX11_ABI_FLAG,
    GIT_VERSION,
    MONOLITHIC_BUILD,
    VERSION,
)
from headrace._src.graph import definition, internal_definitions
from headrace._src.lowering import generated
from headrace._src.ops.base import builder

if TYPE_CHECKING:
    from headrace._src.api import *  # noqa: F403

# Those of TensorFlow, whose interfaces programs choose by them; ours is HEADRACE_VERSION.
__version__ = VERSION
__git_version__ = GIT_VERSION
__compiler_version__ = COMPILER_VERSION
__cxx11_abi_flag__ = CXX11_ABI_FLAG
__monolithic_build__ = MONOLITHIC_BUILD

# Ops are here from the start, by name; the modules that define them are imported when one is used.
definition.expect(_homes.OPS)
builder.expect(_homes.FUNCTIONS)
internal_definitions.expect(
    [
        "headrace._src.ops.base.internal",
        "headrace._src.ops.base.padded_rows",
        "headrace._src.ops.base.transfers",
        "headrace._src.ops.control.loops_and_branches",
        "headrace._src.ops.control.tensor_lists",
        "headrace._src.ops.math.division",
        "headrace._src.optimize.references",
    ]
)
generated.expect("headrace._src.compile.run.single_ops")


if not TYPE_CHECKING:
    __getattr__, __dir__ = on_first_use(__name__, api._HOMES)
