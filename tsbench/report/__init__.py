"""Reports from run directories: frames, metrics, plots, HTML. Depends neither on targets nor on Locust."""
