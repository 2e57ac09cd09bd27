"""The adapter of dask arrays."""

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
    from ..planning.plan import PaddedSource


class Dask(ChunkedAdapter):
    """The adapter of dask arrays, whose results are dask arrays."""

    library = "dask"
    compute_sizes_call = "compute_chunk_sizes()"
    store_call = "da.store(convert(x, ...), out)"

    @property
    def warning(self) -> Any:  # type: ignore[override]
        """The class of dask's performance warnings."""
        return _dask().PerformanceWarning

    def is_instance(self, x: Any) -> bool:
        """Return True if x is a dask array."""
        return adapter_for(x) is not None

    def as_lazy(self, array: Array, like: Any) -> Any:
        """Return a NumPy array as a dask array."""
        return _dask().from_array(array)

    def rechunk(self, x: Any, chunks: tuple[Chunks, ...]) -> Any:
        """Return x rechunked to `chunks`."""
        return x.rechunk(chunks)

    def converter_blocks(
        self, converters: tuple[Converter, ...], like: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Return a dask array with one Converter per chunk, so that a task loads only its own."""
        name = f"ways-{_token(*map(repr, converters))}"
        return _dask().from_array(np.array(converters), chunks=1, name=name, asarray=False), {}

    def compute_blockwise(
        self, job: BlockwiseJob, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]
    ) -> Any:
        """Return a blockwise array whose name contains a hash of the job and its arrays."""
        da = _dask()
        (x, first_axes) = pairs[0]
        token = _token(*job.identity, *(array.name for array, _ in pairs))
        return da.blockwise(
            job.function,
            job.axes,
            *(argument for pair in pairs for argument in pair),
            name=f"{job.name}-{token}",
            new_axes={axis: job.chunks[axis][0] for axis in job.axes if axis not in first_axes},
            adjust_chunks={axis: sizes for axis, sizes in job.chunks.items() if axis in first_axes},
            dtype=job.dtype,
            meta=da.utils.meta_from_array(x._meta, len(job.axes), job.dtype),
            align_arrays=not job.chunks,
            **job.kwargs,
        )

    def count_tasks(self, result: Any, x: Any) -> int:
        """Return the number of tasks in the layers that `result` has and x does not have."""
        layers = result.dask.layers
        return sum(len(layers[name]) for name in layers.keys() - x.dask.layers)

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """Return the lazy array x with its axes permuted."""
        return x.transpose(order)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Return the lazy array of the samples at `positions`."""
        return _dask().take(x, positions, axis=axis)

    def padded(self, x: Any, padding: PaddedSource) -> Any:
        """Return x unfolded and padded, in one chunk along each padded axis."""
        da = _dask()
        regions = zip(padding.window, padding.full, strict=True)
        widths = [(region.start, size - region.stop) for region, size in regions]
        chunks = {axis: -1 for axis, width in enumerate(widths) if width != (0, 0)}
        x = x.reshape(padding.sizes)
        mask = da.pad(da.ones(x.shape, dtype=bool, chunks=x.chunks), widths, constant_values=False)
        padded = da.where(mask, da.pad(x, widths), padding.fill.astype(x.dtype))
        return padded.rechunk(chunks)


def _token(*texts: str) -> str:
    return str(sys.modules["dask.base"].tokenize(*texts))


def array_namespace(x: Any) -> Any:
    """Return the module of the functions of dask arrays."""
    return _dask()


def _dask() -> Any:
    return sys.modules["dask.array"]


_ADAPTER = Dask()


def adapter_for(x: Any) -> Adapter | None:
    """Return the adapter of a dask array, or None for other objects."""
    da = sys.modules.get("dask.array")
    return _ADAPTER if da is not None and isinstance(x, da.Array) else None
