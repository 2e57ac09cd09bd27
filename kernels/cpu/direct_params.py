"""The layout of the block of the kernel "direct" (direct.py), and of the array objects it reads."""

TYPE, ALIGNMENT, CODE, PARAMETERS, FIRST, END, X, OUT = range(8)
WORDS = 8
DTYPE, RANK, LOW, HIGH, START, AXES = range(6)

TYPE_WORD = 1  # of a Python object; the reference count is before it
HEADER = object.__basicsize__  # bytes of a Python object before the fields of an array
