"""Where batches come from: records, their order, and loops that continue where they stopped.

    Sample, Dataset what the data is: lazy windows on arrays and files, fields as attributes
    open_index      which records there are: files in folders and containers, arrays
    sampler         in which order: a pure function of kind, seed, epoch and position
    sampled_batcher records got, processed and put together, batch after batch
    ArrayProvider   batches of arrays by name, as any other Provider of them
    CSVProvider     those of rows of numbers in text
    MNISTProvider   those of pictures in idx files
    ImageRecordProvider   those of pictures in RecordIO files, changed at random

permutation.py     keyed random numbers and permutations, the same on every machine
epochs.py          epochs, one loop at a time, and states to continue from
records.py         what a record is
recordio.py        RecordIO files, written and read
formats.py         which suffix is which format, and who reads it
frames.py          tables and columns of pandas and polars, as arrays
protocolerrors.py  DataErrors that are also what a Python protocol waits for
samples/           Sample and Dataset, and what they read and write
indexes/           one file for each kind of source
samplers/          one file for each family of orders
batches/           from records to batches, on threads
reading/           the bytes of files and URLs
providers/         batches of arrays by name

Names are loaded when the first of their module is named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._utils import fork

if TYPE_CHECKING:
    from .dataset.dataset import Dataset
    from .dataset.sample import Sample
    from .loader.batch import Batch
    from .loader.batcher import Batcher
    from .loader.loader import sampled_batcher
    from .providers.array import ArrayProvider
    from .providers.csv import CSVProvider
    from .providers.image_record import ImageRecordProvider
    from .providers.mnist import MNISTProvider
    from .providers.protocol import Provider
    from .records import Record
    from .samplers import Sampler, sampler
    from .sources import Index, open_index

__all__ = [
    "ArrayProvider",
    "Batch",
    "Batcher",
    "CSVProvider",
    "Dataset",
    "ImageRecordProvider",
    "Index",
    "MNISTProvider",
    "Provider",
    "Record",
    "Sample",
    "Sampler",
    "open_index",
    "sampled_batcher",
    "sampler",
]

_LAZY = {
    "providers.array": ("ArrayProvider",),
    "providers.csv": ("CSVProvider",),
    "providers.image_record": ("ImageRecordProvider",),
    "providers.mnist": ("MNISTProvider",),
    "loader.batch": ("Batch",),
    "loader.batcher": ("Batcher",),
    "loader.loader": ("sampled_batcher",),
    "dataset.dataset": ("Dataset",),
    "providers.protocol": ("Provider",),
    "sources": ("Index", "open_index"),
    "records": ("Record",),
    "dataset.sample": ("Sample",),
    "samplers": ("Sampler", "sampler"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            with fork.making:
                globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
