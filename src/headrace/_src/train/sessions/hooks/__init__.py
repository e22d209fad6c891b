"""Hooks for monitored sessions: save, stop, log, count, summarise, feed, profile."""

from headrace._src.train.sessions.hooks import (
    counting,
    feeding,
    logs,
    profiling,
    saving,
    stopping,
    summary_hooks,
)
