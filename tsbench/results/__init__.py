"""Files of a run: layout, formats and columns. All steps after a run read only these."""
