"""Arrays of cubed: see `blocks.py`. Chunks of these are all of one size, but for the last."""

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
    from ..planning.plan import Larger


class Cubed(ChunkedAdapter):
    """Lazy in, lazy out."""

    library = "cubed"
    store_call = 'cubed.to_zarr(convert(x, ...), "y.zarr")'

    def is_instance(self, x: Any) -> bool:
        """Whether it is an array of cubed."""
        return adapter_for(x) is not None

    def as_lazy(self, array: Array, like: Any) -> Any:
        """An array of NumPy in one chunk, by the same spec as another."""
        return _cubed().from_array(array, chunks=array.shape, spec=like.spec)

    def rechunk(self, x: Any, chunks: tuple[Chunks, ...]) -> Any:
        """The same array in these chunks."""
        return _cubed().rechunk(x, tuple(max(sizes, default=1) for sizes in chunks))

    def converter_blocks(
        self, ways: tuple[Converter, ...], like: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Their numbers, as there are no arrays of objects."""
        numbers = _cubed().from_array(np.arange(len(ways)), chunks=(1,), spec=like.spec)
        return numbers, {"ways": ways}

    def allowed_chunks(self, cuts: dict[str, Chunks]) -> dict[str, Chunks]:
        """Each as large as the largest."""
        found = {}
        for letter, sizes in cuts.items():
            step, size = max(max(sizes), 1), sum(sizes)
            found[letter] = tuple(min(step, size - at) for at in range(0, size, step)) or (0,)
        return found

    def compute_blockwise(
        self, job: BlockwiseJob, pairs: Sequence[tuple[Any, tuple[Hashable, ...]]]
    ) -> Any:
        """A blockwise operation."""
        blockwise = sys.modules["cubed.core.ops"].blockwise
        left = pairs[0][1]
        return blockwise(
            job.function, job.axes, *(each for pair in pairs for each in pair), dtype=job.dtype,
            new_axes={axis: job.chunks[axis][0] for axis in job.axes if axis not in left},
            adjust_chunks={axis: sizes for axis, sizes in job.chunks.items() if axis in left},
            align_arrays=not job.chunks, **job.words,
        )  # fmt: skip

    def count_tasks(self, result: Any, x: Any) -> int:
        """Those of the plan that the plan of x has not."""
        before, after = x._plan.dag, result._plan.dag
        added = [node for name, node in after.nodes(data=True) if name not in before]
        return sum(node["primitive_op"].num_tasks for node in added if "primitive_op" in node)

    def permute(self, x: Any, order: tuple[int, ...]) -> Any:
        """The view of a result whose axes are in another order."""
        return _cubed().permute_dims(x, order)

    def take(self, x: Any, axis: int, positions: Array) -> Any:
        """Samples at positions, lazily."""
        return _cubed().take(x, _cubed().asarray(positions, spec=x.spec), axis=axis)

    def padded(self, x: Any, found: Larger) -> NoReturn:
        """Raise: cubed fills what it pads with one value only, in few ways."""
        raise ArgumentError("into= is not known of cubed arrays; use cubed.pad before")


def _cubed() -> Any:
    return sys.modules["cubed"]


_ADAPTER = Cubed()


def adapter_for(x: Any) -> Adapter | None:
    """The adapter of an array; None for what is none."""
    cubed = sys.modules.get("cubed")
    return _ADAPTER if cubed is not None and isinstance(x, cubed.Array) else None
