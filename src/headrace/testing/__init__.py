"""tf.test: test cases that compare arrays and run graphs, and gradients against differences."""
