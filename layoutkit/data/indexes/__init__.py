"""Which records there are.

open_index(source)      an Index: a sequence of Record, by number and by label

base.py          what every index can do
dispatch.py      which kind takes a source
table.py         csv and tsv files
directory.py     a folder, whose sub-folders are labels
partfiles.py     a folder of part files, whose lines are records
tensor.py        arrays, and the files that hold them
ranged.py        containers: records that are ranges of bytes in files
recordfile.py    RecordIO files
listfiles.py     .idx and .lst, which lie beside them
tarfiles.py      tar archives in WebDataset's layout
parquet.py       Parquet files
tfrecord.py      TFRecord files
shards.py        several files by one name
numberlabels.py  labels that are numbers
labelcolumns.py  labels of any kind
"""

from .base import Groups, Index, grouped
from .dispatch import open_index
from .partfiles import PartsIndex

__all__ = ["Groups", "Index", "PartsIndex", "grouped", "open_index"]

