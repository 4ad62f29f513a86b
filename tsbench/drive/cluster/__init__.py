"""Several load processes: master and workers, their clocks and files."""
