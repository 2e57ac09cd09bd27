"""Batches of arrays by name.

protocol.py        what a provider is, and what all of them do with names and slices
arrayprovider.py   a provider of arrays, each of which is in fields.py
"""

from ...renamed import renamed

renamed(__name__, "arrays", "arrayprovider")
