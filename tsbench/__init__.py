"""Load-tests time-series databases: checked answers, honest latencies, accounted writes."""

__version__ = "0.1.0"
