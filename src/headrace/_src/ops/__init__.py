"""Every op, one definition each, in family files.

Importing the package registers how Python values convert to tensors and what tensors' operators do.
A family is imported when one of its ops is first requested: by its public name, by its type
(`graph.definition.lookup`) or as a function of `b` (`ops.base.define`). The generated `api._homes`
says which module defines each op.
"""

from headrace._src.ops.base import conversion_registry, operators
