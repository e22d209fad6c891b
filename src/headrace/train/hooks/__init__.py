"""Hooks for monitored sessions: save, stop, log, count, summarise, feed, profile."""

from headrace.train.hooks import counting as counting
from headrace.train.hooks import feeding as feeding
from headrace.train.hooks import logs as logs
from headrace.train.hooks import profiling as profiling
from headrace.train.hooks import saving as saving
from headrace.train.hooks import stopping as stopping
from headrace.train.hooks import summaries as summaries
