"""Operations that run as soon as they are built. `graph` builds them, `tensor` holds their results,
and `python_functions` is where programs use them: in the functions of tf.py_function.
"""
