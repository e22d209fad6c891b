"""Operations that run as they are made. `graph` makes them, `tensor` is what they give, and
`python_functions` is where programs meet them: in the functions of tf.py_function.
"""

from headrace.eager import python_functions as python_functions
