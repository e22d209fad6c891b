"""What computes: aligned buffers and the native libraries that kernels may use.

Nothing here knows graphs or operations; modules take and return NumPy arrays.
"""
