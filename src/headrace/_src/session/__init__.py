"""Sessions: from fetches and feeds to a step."""

from headrace._src.session.session import InteractiveSession, Session

__all__ = ["InteractiveSession", "Session"]
