"""What the data is: lazy windows on arrays, files and iterables, with fields as attributes.

sample.py          Samples and, in dataset.py, Datasets; their fields are in fields.py
parts.py           what a Sample is made of, with opening.py and layouts.py
stores.py          data that is selected, read and written; minibatches.py cuts it in batches
unbounded.py       data without a length, and elements.py what it consists of
selections.py      keys, read by keys.py, folded into one; nothing is read for it
sources.py         where elements are: arrays, what is like them, and in files.py files
values.py          what is written, and what is equal
iterator.py        batches of a Dataset's fields in the spaces that are asked for
"""
