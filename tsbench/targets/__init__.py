"""One module per database: its schemas and its session."""
