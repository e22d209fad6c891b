"""Optimizers, schedules, averages, loss scaling and gradient accumulation."""
