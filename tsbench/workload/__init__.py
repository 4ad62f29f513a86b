"""The simulated worlds: what their points and queries are. No I/O, no database."""
