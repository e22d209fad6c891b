"""tf.metrics: metrics accumulated over many batches. `state` holds their variables; `means`,
`confusions` (true and false positives and negatives), `curves` (the same at many thresholds),
`classes` and `rankings` (of the k best) are the families; `streaming` has the names of
tf.contrib.metrics.
"""

from headrace.layers.metrics import classes as classes
from headrace.layers.metrics import confusions as confusions
from headrace.layers.metrics import curves as curves
from headrace.layers.metrics import means as means
from headrace.layers.metrics import rankings as rankings
from headrace.layers.metrics import streaming as streaming
