"""One file per simulated world."""
