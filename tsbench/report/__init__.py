"""Reads run directories: frames, metrics, plots, html. Knows no target and no locust."""
