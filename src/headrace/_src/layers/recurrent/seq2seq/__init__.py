"""tf.contrib.seq2seq: decoders that run step by step, with attention and beam search."""
