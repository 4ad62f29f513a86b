"""Checks of a run: answers against gold, stored points against acknowledged ones."""
