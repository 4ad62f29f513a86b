"""Pacing, histograms, the recorder, and the checks of answers, writes and limits."""
