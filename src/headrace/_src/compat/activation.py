"""Turn on what programs for TensorFlow 1 need. In: whether to mend. Out: the finders of imports,
here and in processes that this one starts.

Child processes are reached by PYTHONPATH: `for_children/sitecustomize.py` is imported when any
Python starts, costs nothing there, and calls `activate` on the first import that needs it.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace._src.compat import mirror
from headrace._src.core import config

__all__ = ["activate", "imports_tensorflow"]

_FOR_CHILDREN = str(Path(__file__).with_name("for_children"))


def activate(mend: bool = True) -> None:
    """Let `tensorflow` mean Headrace in this process and in those that it starts.

    mend: also mend what changed outside TensorFlow: NumPy, SciPy, Python 2 sources and others.
    """
    values = {"HEADRACE_SOFT_PLACEMENT": "1", "HEADRACE_MEND": "1" if mend else "0"}
    config.set_variables(values, _FOR_CHILDREN)
    mirror.install()
    if mend:
        from headrace._src.compat import mends, sources

        mends.install()
        sources.install()


def imports_tensorflow(text: str) -> bool:
    """Return whether the text of a script imports TensorFlow, or Horovod for it."""
    return bool(re.search(r"^[ \t]*(?:import|from)[ \t]+(?:tensorflow|horovod)\b", text, re.M))
