"""Lazy selections of arrays, files and iterables, with fields as attributes.

sample.py        `Sample`: sources, layouts and fields
dataset.py       `Dataset`: a Sample whose first axis counts samples
stores.py        stores and sources: data that is selected, read and written
indexing.py      keys, composed into one selection without reading data
stream.py        stores without a length: infinite objects and iterables
minibatches.py   stores whose elements are mini-batches of another store
iterator.py      batches of a Dataset's fields in requested spaces
"""
