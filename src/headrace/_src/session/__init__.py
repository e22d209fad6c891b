"""Sessions: turn fetches and feeds into steps, and run them."""

from headrace._src.session.session import InteractiveSession, Session

__all__ = ["InteractiveSession", "Session"]
