"""Arrays of dask: see `blocks.py`."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..converter import Converter
from ..memory import Array
from ..planning.chunked import Chunks
from .base import Adapter
from .chunked import BlockwiseJob, ChunkedAdapter

if TYPE_CHECKING:
    from ..planning.plan import Larger


class Dask(ChunkedAdapter):
    """Lazy in, lazy out."""

    library = "dask"
    compute_sizes_call = "compute_chunk_sizes()"
    store_call = "da.store(convert(x, ...), out)"

    @property
    def warning(self) -> Any:  # type: ignore[override]
        """What dask calls work that could be saved."""
        return _dask().PerformanceWarning

    def is_instance(self, x: Any) -> bool:
        """Whether it is an array of dask."""
        return adapter_for(x) is not None

    def as_lazy(self, array: Array, like: Any) -> Any:
        """An array of NumPy as one of dask."""
        return _dask().from_array(array)

    def rechunk(self, x: Any, chunks: tuple[Chunks, ...]) -> Any:
        """The same array in these chunks."""
        return x.rechunk(chunks)

    def converter_blocks(
        self, ways: tuple[Converter, ...], like: Any
    ) -> tuple[Any, dict[str, Any]]:
        """An array of objects, so that a task has its own way and not all of them."""
        name = f"ways-{_token(*map(repr, ways))}"
        return _dask().from_array(np.array(ways), chunks=1, name=name, asarray=False), {}

    def compute_blockwise(
        self, job: BlockwiseJob, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]
    ) -> Any:
        """A blockwise layer, of a name that says what it is."""
        da, (x, left) = _dask(), pairs[0]
        token = _token(*job.said, *(array.name for array, _ in pairs))
        return da.blockwise(
            job.function, job.axes, *(each for pair in pairs for each in pair),
            name=f"{job.name}-{token}",
            new_axes={axis: job.chunks[axis][0] for axis in job.axes if axis not in left},
            adjust_chunks={axis: sizes for axis, sizes in job.chunks.items() if axis in left},
            dtype=job.dtype, meta=da.utils.meta_from_array(x._meta, len(job.axes), job.dtype),
            align_arrays=not job.chunks, **job.words,
        )  # fmt: skip

    def count_tasks(self, result: Any, x: Any) -> int:
        """Those of layers that x has not."""
        layers = result.dask.layers
        return sum(len(layers[name]) for name in layers.keys() - x.dask.layers)

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        return x.transpose(order)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Samples at positions, lazily."""
        return _dask().take(x, positions, axis=axis)

    def padded(self, x: Any, found: Larger) -> Any:
        """A larger x, with all folds taken apart, in whole chunks along the axes that grow."""
        da, sides = _dask(), zip(found.window, found.full, strict=True)
        widths = [(inside.start, size - inside.stop) for inside, size in sides]
        grown = {at: -1 for at, width in enumerate(widths) if width != (0, 0)}
        x = x.reshape(found.sizes)
        there = da.pad(da.ones(x.shape, dtype=bool, chunks=x.chunks), widths, constant_values=False)
        padded = da.where(there, da.pad(x, widths), found.fill.astype(x.dtype))
        return padded.rechunk(grown)


def _token(*words: str) -> str:
    return str(sys.modules["dask.base"].tokenize(*words))


def _dask() -> Any:
    return sys.modules["dask.array"]


_ADAPTER = Dask()


def adapter_for(x: Any) -> Adapter | None:
    """The adapter of an array; None for what is none."""
    da = sys.modules.get("dask.array")
    return _ADAPTER if da is not None and isinstance(x, da.Array) else None
