"""Event files, from which TensorBoard reads summaries. In: Events. Out: record files, written by a
background thread; and Events read back from such files.
"""

from headrace._src.summary import event_reader, writer
