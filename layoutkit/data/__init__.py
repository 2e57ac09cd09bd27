"""Data loading: sources of records, samplers, and loops that resume from a saved state.

    Sample, Dataset     lazy views of arrays and files, with fields as attributes
    open_index          open a source: the records of folders, containers, tables and arrays
    mix                 several sources in one, in shares by weight
    sampler             an order of records: a pure function of kind, seed, epoch and position
    sampled_batcher     read, process and collate records into batches
    RamCache            memory for the records of a Batcher, shared by processes
    ArrayProvider       batches of named arrays in memory
    CSVProvider         batches of rows of numbers in text files
    MNISTProvider       batches of images in idx files
    ImageRecordProvider   batches of randomly augmented images in RecordIO files

errors.py       DataErrors that are also IndexErrors, AttributeErrors or TypeErrors
formats.py      file suffixes and their readers, and tables as arrays
labels.py       labels of records: columns, missing labels, classes, targets
iteration.py    resumable iteration over epochs
ragged.py       Ragged: arrays that differ in length
records.py      Record
recordio.py     write and read RecordIO files
dataset/        Sample and Dataset, and the stores they read from
io/             read the bytes of records and arrays in files, local or at URLs
loader/         from records to batches, on threads
providers/      batches of named arrays
samplers/       one module for each family of orders
sources/        one module for each kind of source

Each public name is imported on first use, with its module.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._utils import fork
from .._utils.spelling import make_attribute_error

if TYPE_CHECKING:
    from .dataset.dataset import Dataset
    from .dataset.sample import Sample
    from .io.ram_cache import RamCache
    from .loader.batch import Batch, LoaderStats
    from .loader.batcher import Batcher
    from .loader.loader import sampled_batcher
    from .providers.array import ArrayProvider
    from .providers.csv import CSVProvider
    from .providers.image_record import ImageRecordProvider
    from .providers.mnist import MNISTProvider
    from .providers.protocol import Provider
    from .ragged import Ragged
    from .records import Record
    from .samplers import Sampler, sampler
    from .sources import Index, mix, open_index

__all__ = [
    "ArrayProvider",
    "Batch",
    "Batcher",
    "CSVProvider",
    "Dataset",
    "ImageRecordProvider",
    "Index",
    "LoaderStats",
    "MNISTProvider",
    "Provider",
    "Ragged",
    "RamCache",
    "Record",
    "Sample",
    "Sampler",
    "mix",
    "open_index",
    "sampled_batcher",
    "sampler",
]

_LAZY = {
    "providers.array": ("ArrayProvider",),
    "providers.csv": ("CSVProvider",),
    "providers.image_record": ("ImageRecordProvider",),
    "providers.mnist": ("MNISTProvider",),
    "loader.batch": ("Batch", "LoaderStats"),
    "loader.batcher": ("Batcher",),
    "loader.loader": ("sampled_batcher",),
    "dataset.dataset": ("Dataset",),
    "providers.protocol": ("Provider",),
    "sources": ("Index", "mix", "open_index"),
    "ragged": ("Ragged",),
    "io.ram_cache": ("RamCache",),
    "records": ("Record",),
    "dataset.sample": ("Sample",),
    "samplers": ("Sampler", "sampler"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            with fork.init_lock:
                globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return globals()[name]
    raise make_attribute_error(f"module {__name__!r}", name, "layoutkit.data")


def __dir__() -> list[str]:
    return sorted(__all__)
