"""The system itself, room by room; what users import is beside this package."""
