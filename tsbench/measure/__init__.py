"""Pacing, histograms, the recorder, and whether the load generator was the limit, and the gates."""
