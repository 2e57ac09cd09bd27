"""Which records there are.

open_index(source)      an Index: a sequence of Record, by number and by label

base.py          what every index can do
dispatch.py      which kind takes a source
table.py         csv and tsv files
directory.py     a folder, whose sub-folders are labels
parts.py         a folder of part files, whose lines are records
tensor.py        arrays, and the files that hold them
files.py         local files and those at any URL
"""

from .base import Groups, Index, grouped
from .dispatch import open_index
from .parts import PartsIndex

__all__ = ["Groups", "Index", "PartsIndex", "grouped", "open_index"]
