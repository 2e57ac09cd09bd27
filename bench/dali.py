"""NVIDIA DALI's crop_mirror_normalize on the CPU, which runs without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import layoutkit

from ..memory import Array
from .rows import MEAN, SCALE, STD

if TYPE_CHECKING:
    from .collating import Work

__all__ = ["collated"]

Turn = dict[str, Any]


def collated(work: Work, expected: Array) -> Callable[[Turn], Any] | None:
    """What makes the batch of a turn; None where DALI is not installed, or has no way to.

    `expected` is the batch of the first turn, which DALI's is compared with.
    """
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError:
        return None
    known = {"float32": types.FLOAT, "uint8": types.UINT8}.get(str(expected.dtype))
    if known is None or work.to not in ("bchw", "bhwc") or work.more or not work.window:
        return None
    count, now = len(work.samples), dict[str, list[Any]]()
    normal = {"mean": [m / SCALE for m in MEAN], "std": [s / SCALE for s in STD]}

    def said(name: str) -> Callable[[], list[Any]]:
        return lambda: now[name]

    def pipeline() -> Any:
        pictures = fn.external_source(lambda: work.samples, batch=True, layout="HWC", no_copy=True)
        x, y, flip = (fn.external_source(said(name), batch=True) for name in "xyw")
        return fn.crop_mirror_normalize(
            pictures, crop=tuple(work.window.values()), crop_pos_x=x, crop_pos_y=y, mirror=flip,
            dtype=known, output_layout=work.to[1:].upper(), **(normal if work.keywords else {}),
        )  # fmt: skip

    made = pipeline_def(
        batch_size=count, num_threads=layoutkit.get_num_threads(), device_id=None,
        prefetch_queue_depth=1, exec_async=False, exec_pipelined=False,
    )(pipeline)()  # fmt: skip
    made.build()

    def run(turn: Turn) -> Any:
        for name, axis, at in ("y", "h", 0), ("x", "w", 1):
            room = [sample.shape[at] - work.window[axis] for sample in work.samples]
            places = turn["corner"][axis] / np.maximum(room, 1)
            now[name] = list(places.astype(np.float32))
        now["w"] = list(turn["flip"]["w"].astype(np.int32))
        return made.run()

    (batch,) = run(work.turns[0])
    np.testing.assert_allclose(batch.as_array().astype("f8"), expected.astype("f8"), atol=1e-5)
    return run
