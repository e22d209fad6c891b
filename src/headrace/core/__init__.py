"""The lowest room: element types, shapes, device names, errors, source lines, configuration.

Imports nothing else of Headrace.
"""
