"""Where batches come from: records, their order, and loops that continue where they stopped.

    Sample, Dataset what the data is: lazy windows on arrays and files, fields as attributes
    open_index      which records there are: csv and tsv files, folders, part files, arrays
    sampler         in which order: a pure function of kind, seed, epoch and position
    sampled_batcher records got, processed and put together, batch after batch
    ArrayProvider   batches of arrays by name, as any other Provider of them

permutation.py     keyed random numbers and permutations, the same on every machine
loops.py           epochs, one loop at a time, and states to continue from
records.py         what a record is
indexes/           one file for each kind of source
samplers/          one file for each family of orders
sample.py          Samples and, in dataset.py, Datasets; their fields are in fields.py
parts.py           what a Sample is made of, with opening.py and layouts.py
stores.py          data that is selected, read and written; blocks.py are mini-batches of it
unbounded.py       data without a length, and elements.py what it consists of
selections.py      keys, read by keys.py, folded into one; nothing is read for it
sources.py         where elements are: arrays, what is like them, and in files.py files
values.py          what is written, and what is equal
iterator.py        batches of a Dataset's fields in the spaces that are asked for
batcher.py         a Batcher; its arguments are checked in settings.py, and passes.py is an epoch
drafts.py          a batch under way, in chunks.py, drawn by the threads in workers.py; what
                   belongs together is judged in judging.py
feeds.py           one source of a Batcher; what is handed out is in batch.py
reading.py         bytes of files and, with remote.py, of URLs; cache.py keeps whole remote files
providers.py       what a provider is; arrayprovider.py is one of arrays
viewing.py         Views of one batch after the other

Names are loaded when the first of their module is named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrayprovider import ArrayProvider
    from .batch import Batch
    from .batcher import Batcher, sampled_batcher
    from .dataset import Dataset
    from .indexes import Index, open_index
    from .providers import Provider
    from .records import Record
    from .sample import Sample
    from .samplers import Sampler, sampler

__all__ = [
    "ArrayProvider",
    "Batch",
    "Batcher",
    "Dataset",
    "Index",
    "Provider",
    "Record",
    "Sample",
    "Sampler",
    "open_index",
    "sampled_batcher",
    "sampler",
]

_LAZY = {
    "arrayprovider": ("ArrayProvider",),
    "batch": ("Batch",),
    "batcher": ("Batcher", "sampled_batcher"),
    "dataset": ("Dataset",),
    "providers": ("Provider",),
    "indexes": ("Index", "open_index"),
    "records": ("Record",),
    "sample": ("Sample",),
    "samplers": ("Sampler", "sampler"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
