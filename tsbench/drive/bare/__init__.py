"""A Locust that no `tsbench run` started: its options, its specification, its current test and the helper process."""
