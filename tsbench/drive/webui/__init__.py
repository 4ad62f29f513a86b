"""tsbench in Locust's web UI: tabs, live figures, login."""
