"""Servers of a cluster: the drivers that connect the machines of master and worker with the
transport, the pipeline and the runtime.
"""
