"""Encoded writes: the queue of a load process, and the encoder process that fills it."""
