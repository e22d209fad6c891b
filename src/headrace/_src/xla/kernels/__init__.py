"""The kernels of device type XLA: what rules, anchors and ops compute, as functions of JAX."""
