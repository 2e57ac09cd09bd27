"""Batches of arrays by name.

protocol.py        what a provider is, and what all of them do with names and slices
base.py            order, tails, parts, loops and states, which all of them have alike
ahead.py           batches made before somebody asks
keywords.py        the keywords of MXNet's iterators, and those that nobody has
arrayprovider.py   a provider of arrays, each of which is in fields.py
csvprovider.py     one of rows of numbers in text
mnistprovider.py   one of pictures and labels in idx files
imagerecordprovider.py   one of pictures in RecordIO files: its rows are in picturerows.py, threads
                   in decoded.py, and mean pictures in means.py
"""
