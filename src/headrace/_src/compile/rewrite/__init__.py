"""Rewrites of a flow that only compiled code wants."""
