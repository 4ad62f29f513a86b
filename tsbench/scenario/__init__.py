"""TOML -> RunSpec: the specification of a run, its matrix, and its validation."""
