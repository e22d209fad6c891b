"""tf.test.mock, which is Python's. It is a separate module, since loading it takes longer than the
rest of tf.test.
"""

from unittest import mock

from headrace._src.core.export import export_value

__all__ = ["mock"]

export_value(__name__, "mock", "test.mock")
