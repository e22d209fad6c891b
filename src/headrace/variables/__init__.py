"""Variables: the user's view of state, and how it's named, shared, initialised and partitioned."""

from headrace.variables import collections as collections
from headrace.variables import functional_loops as functional_loops
from headrace.variables import initializers as initializers
from headrace.variables import lookup as lookup
from headrace.variables import partition as partition
from headrace.variables import ref_variable as ref_variable
from headrace.variables import resource_variable as resource_variable
from headrace.variables import scope as scope
from headrace.variables import template as template
from headrace.variables import updates as updates
