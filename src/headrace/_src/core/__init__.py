"""The lowest room: element types, shapes, device names, errors, source lines, configuration.

It imports no other Headrace package.
"""
