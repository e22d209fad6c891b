"""Recurrent networks: cells (one step of time), and functions that run a cell over a sequence."""
