"""Devices, their memory and state, and the native libraries that kernels may use.

Nothing here knows about graphs or operations; modules take and return NumPy arrays.
"""
