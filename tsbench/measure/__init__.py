"""Pacing, histograms, the recorder, and the verdicts on the load generator and the gates."""
