"""tf.metrics: metrics accumulated over many batches. `state` holds their variables; `means`,
`confusions` (true and false positives and negatives), `curves` (the same at many thresholds),
`classes` and `rankings` (of the k best) are the families; `streaming` has the names of
tf.contrib.metrics.
"""
