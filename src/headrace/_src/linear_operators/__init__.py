"""Linear operators: batches of matrices with a structure, which their methods use. Matrices are
made only where a method needs them.

`linear_operator` has the base class, the other files one kind of matrix each. `rules` says which
operator is the product, quotient, adjoint, inverse or Cholesky factor of others, `function_calls`
what tf.linalg's functions do with operators; importing any operator imports both.
"""

from headrace._src.linear_operators import function_calls, rules

__all__ = ["function_calls", "rules"]
