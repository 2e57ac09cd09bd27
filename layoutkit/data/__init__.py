"""Where batches come from: records, their order, and loops that continue where they stopped.

    open_index      which records there are: csv and tsv files, folders, part files, arrays
    sampler         in which order: a pure function of kind, seed, epoch and position

permutation.py     keyed random numbers and permutations, the same on every machine
loops.py           epochs, one loop at a time, and states to continue from
records.py         what a record is
indexes/           one file for each kind of source
samplers/          one file for each family of orders

Names are loaded when the first of their module is named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arrayprovider import ArrayProvider
    from .batch import Batch
    from .batcher import Batcher, sampled_batcher
    from .indexes import Index, open_index
    from .providers import Provider
    from .records import Record
    from .samplers import Sampler, sampler

__all__ = [
    "ArrayProvider",
    "Batch",
    "Batcher",
    "Index",
    "Provider",
    "Record",
    "Sampler",
    "open_index",
    "sampled_batcher",
    "sampler",
]

_LAZY = {
    "arrayprovider": ("ArrayProvider",),
    "batch": ("Batch",),
    "batcher": ("Batcher", "sampled_batcher"),
    "providers": ("Provider",),
    "indexes": ("Index", "open_index"),
    "records": ("Record",),
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
