"""Event files, from which TensorBoard reads summaries. In: Events. Out: record files, written by a
background thread; and Events read back from such files.
"""
