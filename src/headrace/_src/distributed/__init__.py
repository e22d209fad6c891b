"""The cluster: which tasks there are, what their processes say to each other, and the machines of
master and worker. Nothing here does I/O; the room `server` drives the machines.
"""
