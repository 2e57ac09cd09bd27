"""Lazy selections of arrays, files and iterables, with fields as attributes.

sample.py         `Sample`: sources, layouts and fields
dataset.py        `Dataset`: a Sample whose first axis counts samples
stores.py         stores: data that is selected, read and written
array_sources.py  arrays, array-likes and files, which stores select from
values.py         values that are written: cast and broadcast
indexing.py       keys, composed into one selection without reading data
stream.py         stores without a length: infinite objects and iterables
minibatches.py    stores whose elements are mini-batches of another store
iterator.py       batches of a Dataset's fields in requested spaces
"""
