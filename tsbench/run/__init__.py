"""The steps of a run, for `tsbench run` and for bare Locust."""
