"""Frames and tensors between two processes: sockets, shared memory, keys, heartbeats.

`frame` is the form of a message, `connect` opens connections, `loop` serves many of them in one
thread, `channel` uses one without a thread. The room knows no graph and no steps.
"""
