"""`collate`: many samples into one batch in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .caching import MAX_KEPT
from .collator import Collator
from .compilation import batch_call_in_graph, is_followed
from .constants import is_by_value, plain
from .cuda.runtime import check_device
from .errors import LayoutkitError

__all__ = ["collate"]


def collate(
    samples: Any,
    pattern: str,
    /,
    *,
    rows: Any = None,
    corner: Mapping[str, Any] | None = None,
    flip: str | Mapping[str, Any] | None = None,
    fill: Any = None,
    channels: Sequence[int] | None = None,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    **sizes: int,
) -> Any:
    """Make one batch of many samples in one pass: cut, flip, stack, convert.

    >>> import numpy as np
    >>> photos = [np.zeros((40, 50, 3), np.uint8), np.zeros((30, 33, 3), np.uint8)]
    >>> collate(photos, "hwc->bchw", h=24, w=32).shape                # the middle of each
    (2, 3, 24, 32)
    >>> batch = collate(photos, "hwc->bchw", h=24, w=32, corner={"h": [0, 6], "w": 1},
    ...                 flip={"w": [True, False]}, dtype="float32", scale=1 / 255)
    >>> images = np.zeros((100, 32, 32, 3), np.uint8)
    >>> collate(images, "bhwc->bchw", rows=[5, 99, 7]).shape          # samples of one array
    (3, 3, 32, 32)

    Parameters
    ----------
    samples : sequence of arrays, or one array
        Arrays of one rank and dtype, of any strides, where the left side of the pattern has no
        axis `b` (in names, `batch`); where it has, one array. They are never written to.
    pattern : str
        Layout of a sample, or of all; `->`; layout of the batch, which has `b` anywhere.
    rows : list or array of int, optional
        Positions along `b` of one array, from its end where negative; repeats are allowed. All by
        default.
    corner : dict by axis, optional
        Where windows begin in their samples: an int, or one for each sample. It may be negative or
        reach beyond the sample where there is a `fill`. In the middle by default.
    flip : str or dict by axis, optional
        Axes along which windows are reversed after they were cut: `"w"`, for all samples, or
        `{"w": [True, False, ...]}`.
    fill : number, or one number a channel of a sample, optional
        What is outside of a sample, in its units: the formula is applied to it. By default a
        window that reaches outside is an error.
    channels : list of int, optional
        Channels of a sample in the order of the batch: `(2, 1, 0)` swaps red and blue, `(0, 0, 0)`
        repeats grey. The formula's constants are one for each channel of the batch.
    dtype, scale, mean, std, clip, casting, out, device
        As `convert` takes them.
    **sizes : int
        The size of windows along axes of samples, such as `h=224`, or sizes of axes that samples
        fold. Along other axes all samples have one size, which is the window's.

    Returns
    -------
    array
        `out`, or a new contiguous array of the kind of the first sample: to the bit what `convert`
        gives of the stacked windows. Nothing outside of samples is read, and no sample is held
        after the call.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        Before anything is written.
    """
    if is_followed():
        return batch_call_in_graph(
            samples, pattern, (rows, corner, flip, out), sizes, fill=fill, channels=channels,
            dtype=dtype, scale=scale, mean=mean, std=std, clip=clip, casting=casting, device=device,
        )  # fmt: skip
    if device is not None:
        device = check_device(device)  # now: "cuda" is the current one, which may change
    named = {"scale": scale, "mean": mean, "std": std, "clip": clip}
    constants = [plain(name, value) for name, value in named.items()]
    arguments = (pattern, _plain(fill), _plain(channels), dtype, *constants, casting, device)
    try:
        collator = _kept(*arguments, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, or what has no plain form
        collator = _make(arguments, sizes)
    return collator(samples, rows=rows, corner=corner, flip=flip, out=out)


def _make(arguments: tuple[Any, ...], sizes: Mapping[str, int]) -> Collator:
    pattern, fill, channels, dtype, scale, mean, std, clip, casting, device = arguments
    return Collator(
        pattern, fill=fill, channels=channels, dtype=dtype, scale=scale, mean=mean, std=std,
        clip=clip, casting=casting, device=device, **sizes,
    )  # fmt: skip


# Typed, since True == 1 == 1.0: what was refused once is refused after a call that was right.
@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(pattern: str, *others: Any, **sizes: int) -> Collator:
    """The Collator of these arguments, so that a loop plans once."""
    if not all(map(is_by_value, others)):
        raise TypeError("an array is no key")
    return _make((pattern, *others), sizes)


def _plain(value: Any) -> Any:
    """A list or an array of numbers as a key."""
    listed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(value) if listed else value
