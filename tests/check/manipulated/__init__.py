"""Stored data that was changed by hand, so that the truth is known: is each change found, and is its place named?

`make manipulations` carries out all of them and prints a table; the tests carry out a few of each kind.
"""
