"""Helpers without dependencies on the rest of the package, except its errors.

cache         bounded caches of plans and programs
errors        conversion of exceptions: of other libraries, without names of files
files         atomic file writes
fork          the lock around late imports and compilation, and its handling in forked children
indexing      indices and slices, negative ones from the end
late          modules of higher layers, loaded on first use
pickling      pickles without the values of cached properties
random        keyed random numbers and permutations, equal on every machine
registry      tables by name that other packages extend
spelling      the known name that a misspelled one is meant to be
system        functions that not all operating systems have, and what replaces them
tree          operations on nested tuples
validation    validation of arguments, and type names for error messages
warnings      warnings that name a line of the caller's program
"""
