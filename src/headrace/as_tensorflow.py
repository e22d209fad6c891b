"""Let `tensorflow` mean Headrace in this process: for notebooks, pytest and programs that
`headrace run` does not start.

import headrace.as_tensorflow
import tensorflow as tf

What is mended, and `HEADRACE_MEND=0`, which turns that off, are in docs/running_tf1.md.
"""

from headrace._src.compat.activation import activate
from headrace._src.core.config import settings

activate(mend=settings().mend)
