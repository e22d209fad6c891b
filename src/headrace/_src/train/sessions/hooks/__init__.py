"""Hooks for monitored sessions: save, stop, log, count, summarise, feed, profile."""
