"""Checks of a run: answers against gold answers, stored points against acknowledged ones."""
