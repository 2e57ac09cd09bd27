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

from .. import forks

if TYPE_CHECKING:
    from .batches.batch import Batch
    from .batches.batcher import Batcher
    from .batches.sampled import sampled_batcher
    from .indexes import Index, open_index
    from .providers.arrayprovider import ArrayProvider
    from .providers.csvprovider import CSVProvider
    from .providers.imagerecordprovider import ImageRecordProvider
    from .providers.mnistprovider import MNISTProvider
    from .providers.protocol import Provider
    from .records import Record
    from .samplers import Sampler, sampler
    from .samples.dataset import Dataset
    from .samples.sample import Sample

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
    "providers.arrayprovider": ("ArrayProvider",),
    "providers.csvprovider": ("CSVProvider",),
    "providers.imagerecordprovider": ("ImageRecordProvider",),
    "providers.mnistprovider": ("MNISTProvider",),
    "batches.batch": ("Batch",),
    "batches.batcher": ("Batcher",),
    "batches.sampled": ("sampled_batcher",),
    "samples.dataset": ("Dataset",),
    "providers.protocol": ("Provider",),
    "indexes": ("Index", "open_index"),
    "records": ("Record",),
    "samples.sample": ("Sample",),
    "samplers": ("Sampler", "sampler"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            with forks.making:
                globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
