"""SQLite in process."""
