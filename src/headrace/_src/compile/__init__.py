"""The compiler: static regions of a step become native code."""
