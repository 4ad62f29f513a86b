"""Scenario files: parsing TOML to RunSpecs, the matrix, and validation."""
