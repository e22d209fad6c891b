"""Images: files of pixels, and ops on pixels."""
