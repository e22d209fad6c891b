"""Machine code in this process and on disk, and the roofs of this machine."""
