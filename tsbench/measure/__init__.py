"""Measurement: pacing, histograms, the recorder, the cause of the limit (client or database), and gates."""
