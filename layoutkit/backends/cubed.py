"""The adapter of cubed arrays; the chunks along an axis have one size, except for the last."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..converter import Converter
from ..errors import ArgumentError
from ..memory import Array
from ..planning.chunked import Chunks
from .base import Adapter
from .chunked import BlockwiseJob, ChunkedAdapter

if TYPE_CHECKING:
    from ..planning.plan import PaddedSource


class Cubed(ChunkedAdapter):
    """The adapter of cubed arrays, whose results are lazy cubed arrays."""

    library = "cubed"
    store_call = 'cubed.to_zarr(convert(x, ...), "y.zarr")'

    def is_instance(self, x: Any) -> bool:
        """Return True if x is a cubed array."""
        return adapter_for(x) is not None

    def as_lazy(self, array: Array, like: Any) -> Any:
        """Return a NumPy array as a cubed array of one chunk, with the spec of `like`."""
        return _cubed().from_array(array, chunks=array.shape, spec=like.spec)

    def rechunk(self, x: Any, chunks: tuple[Chunks, ...]) -> Any:
        """Return x rechunked to `chunks`."""
        return _cubed().rechunk(x, tuple(max(sizes, default=1) for sizes in chunks))

    def converter_blocks(
        self, converters: tuple[Converter, ...], like: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Return an array of indices, as cubed has no arrays of objects, and the converters."""
        numbers = _cubed().from_array(np.arange(len(converters)), chunks=(1,), spec=like.spec)
        return numbers, {"converters": converters}

    def allowed_chunks(self, cuts: dict[str, Chunks]) -> dict[str, Chunks]:
        """Return chunks of the size of the largest along each axis; the last may be smaller."""
        result = {}
        for letter, sizes in cuts.items():
            step = max(max(sizes), 1)
            size = sum(sizes)
            chunks = tuple(min(step, size - start) for start in range(0, size, step))
            result[letter] = chunks or (0,)
        return result

    def compute_blockwise(
        self, job: BlockwiseJob, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]
    ) -> Any:
        """Return the lazy result of a job on arrays, each paired with the names of its axes."""
        blockwise = sys.modules["cubed.core.ops"].blockwise
        first_axes = pairs[0][1]
        return blockwise(
            job.function,
            job.axes,
            *(argument for pair in pairs for argument in pair),
            dtype=job.dtype,
            new_axes={axis: job.chunks[axis][0] for axis in job.axes if axis not in first_axes},
            adjust_chunks={axis: sizes for axis, sizes in job.chunks.items() if axis in first_axes},
            align_arrays=not job.chunks,
            **job.kwargs,
        )

    def count_tasks(self, result: Any, x: Any) -> int:
        """Return the number of tasks that the plan of `result` has in addition to x's."""
        before = x._plan.dag
        after = result._plan.dag
        added = [node for name, node in after.nodes(data=True) if name not in before]
        return sum(node["primitive_op"].num_tasks for node in added if "primitive_op" in node)

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """Return x with its axes permuted, lazily."""
        return _cubed().permute_dims(x, order)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Return the elements at `positions` along `axis`, lazily."""
        return _cubed().take(x, _cubed().asarray(positions, spec=x.spec), axis=axis)

    def padded(self, x: Any, padding: PaddedSource) -> NoReturn:
        """Raise ArgumentError: cubed.pad supports one constant value and few modes."""
        raise ArgumentError("pad_to= is not supported for cubed arrays; use cubed.pad first")


def array_namespace(x: Any) -> Any:
    """Return the module of the functions of cubed arrays."""
    return _cubed()


def _cubed() -> Any:
    return sys.modules["cubed"]


_ADAPTER = Cubed()


def adapter_for(x: Any) -> Adapter | None:
    """Return the adapter of a cubed array, or None for other objects."""
    cubed = sys.modules.get("cubed")
    return _ADAPTER if cubed is not None and isinstance(x, cubed.Array) else None
