"""Every op, one definition each, in family files.

Importing the package makes tensors what they are to Python: how values become tensors, and what
operators do. A family is imported when an op of it is first asked for, by its public name, by its
type (`graph.definition.lookup`) or as a function of `b` (`ops.define`); where each op lives is in
the generated `api._homes`.
"""

from headrace.ops import conversions as conversions
from headrace.ops import operators as operators
