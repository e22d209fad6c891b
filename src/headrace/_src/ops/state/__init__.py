"""Ops on state that outlives a step: variables, optimizers, queues, tables, accumulators."""
