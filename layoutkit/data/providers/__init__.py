"""Batches of arrays by name.

protocol.py        what a provider is, and what all of them do with names and slices
arrays.py          a provider of arrays
"""
