"""Event files, in which TensorBoard looks for summaries. In: Events. Out: files of records, written
by a thread of their own; and Events back from such files.
"""

from headrace.summary import reader as reader
from headrace.summary import writer as writer
