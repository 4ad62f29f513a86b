"""The files of a run: their layout, formats and columns. Everything after a run reads only these."""
