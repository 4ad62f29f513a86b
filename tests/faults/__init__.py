"""Faults made from outside while a real command runs: is the cause named, is anything left, can the set be resumed?

`make faults` carries out all of them and Ctrl-C at 100 random moments, and prints a table; the tests carry out twelve
faults and five interrupts.
"""
