"""tf.test: test cases that compare arrays and run graphs, and a check of gradients by
differences.
"""
