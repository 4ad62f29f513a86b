"""Local server processes: start, ready, stop, kill, cold, size."""
