"""`convert` and `plan`: one conversion in one call. `accumulate` is beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .axes import as_shape
from .caching import MAX_KEPT
from .compilation import call_in_graph, is_followed
from .constants import is_by_value, plain
from .converter import Converter
from .cuda.runtime import check_device
from .devices import CPU
from .errors import LayoutkitError
from .planning.task import make_task
from .plans import plan_of_spec
from .spec import ArraySpec, as_dtype

if TYPE_CHECKING:
    from .planning.plan import Plan

__all__ = ["convert", "plan"]

_CONSTANTS = 4  # scale, mean, std and clip


def convert(
    x: Any,
    /,
    pattern: str,
    *,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    clip: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    copy: bool | None = None,
    memory: str | None = None,
    threads: int | None = None,
    into: Mapping[str, int] | None = None,
    corner: Mapping[str, int] | None = None,
    fill: Any = None,
    channels: Sequence[int] | None = None,
    **sizes: int,
) -> Any:
    """Move an array to another layout, dtype and scale in one pass over memory.

    >>> import numpy as np
    >>> photos = np.zeros((8, 32, 32, 3), np.uint8)
    >>> convert(photos, "bhwc->bchw").shape                      # planes
    (8, 3, 32, 32)
    >>> convert(photos, "bhwc->bf").shape                        # flat, h slowest, c fastest
    (8, 3072)
    >>> y = convert(photos, "bhwc->bchw", dtype="float32", scale=1 / 255,
    ...             mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    >>> convert(y.reshape(8, -1), "b(chw)->bhwc", h=32, w=32).shape
    (8, 32, 32, 3)

    Parameters
    ----------
    x : array, of any library, or what holds one
        Any strides, read-only or not; it is never written to.
    pattern : str
        Layout of x, `->`, layout of the result: one letter an axis, or, as in
        "batch height width c -> batch c height width", one name with blanks between them.
        Parentheses fold axes, `...` are axes that stay, `1` is one of size 1 to drop or add.
    dtype : dtype, optional
        Of the result. Default: out's, else x's (float32 for an integer x with a formula).
    scale, mean, std : number, or for mean and std several
        The result is (x * scale - mean) / std, computed in float32 (float64 if x or dtype is). A
        list or array is one number a channel (axis `c`); `{"f": [...]}` is one for each index of
        another axis, `{"b": [...]}` one a sample.
    clip : (lo, hi), optional
        x is clipped to this window before the formula; one bound may be None. An integer x with
        clip alone keeps its dtype.
    casting : "same_kind", "safe", "unsafe" or "saturate"
        What dtype changes are allowed, in NumPy's words; "saturate" rounds half to even and
        clips to the range of an integer dtype.
    out : array, optional
        Where to write: of the result's shape and dtype, any strides, not sharing memory with x.
    device : "cpu", "cuda" or such as "cuda:1", or a torch.device, optional
        Where the result is to be. Default: where x is.
    copy : bool, optional
        None: x itself or a view of it where nothing has to move, else new memory. True: always
        new memory. False: an error where bytes would have to move.
    memory : str, optional
        The axes of the result in the order in which new memory holds them. Default: that of the
        result. `convert(x, "bhwc->bchw", memory="bhwc")` is what PyTorch calls channels_last.
    threads : int, optional
        How many this conversion may use. Default: `get_num_threads()`.
    into : dict of int by axis, optional
        Sizes of a result that is larger than x along these axes, as `{"h": 640, "w": 640}`.
    corner : dict of int by axis, optional
        Where x begins in it. Default: so that x is in the middle.
    fill : number, or one number a channel, optional
        What is around x, in the units of x: the formula is applied to it. Default: 0.
    channels : list of int, optional
        Channels of x (axis `c`) in the order of the result: (2, 1, 0) swaps red and blue, (0,)
        takes one, (0, 0, 0) repeats it. Constants are then one a channel of the result, and `fill`
        one a channel of x. Default: all as they are.
    **sizes : int
        Sizes of axes that x folds, such as `h=32` or `height=32`; one of a fold may be left out.

    Returns
    -------
    array
        `out`, or a contiguous array in the asked layout: x itself or a view of it where nothing
        has to move, which may depend on sizes (`bchw->bhwc` of one channel), so do not write into
        it without `copy=True`. New memory comes from a pool and returns to it when the array and
        all its views are gone.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        Before anything is written.
    """
    if type(x) is not np.ndarray and is_followed():
        return call_in_graph(
            x, pattern, out, sizes, dtype=dtype, scale=scale, mean=mean, std=std, clip=clip,
            casting=casting, device=device, copy=copy, memory=memory, threads=threads, into=into,
            corner=corner, fill=fill, channels=channels,
        )  # fmt: skip
    if device is not None:
        device = check_device(device)  # now: "cuda" is the current one, which may change
    try:
        converter = _kept(
            pattern, dtype, scale, mean, std, clip, casting, device, copy, memory, threads, into,
            corner, fill, channels, **sizes,
        )  # fmt: skip
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, such as a list of means, or an array
        converter = None
    if converter is None:
        converter = _plainly(
            pattern, dtype, scale, mean, std, clip, casting, device, copy, memory, threads, into,
            corner, fill, channels, **sizes,
        )  # fmt: skip
    return converter(x, out)


def _make(
    pattern: str, dtype: Any, scale: Any, mean: Any, std: Any, clip: Any, casting: str,
    device: str | None, copy: bool | None, memory: str | None, threads: int | None, into: Any,
    corner: Any, fill: Any, channels: Any, **sizes: int,
) -> Converter:  # fmt: skip
    return Converter(
        pattern, dtype=dtype, scale=scale, mean=mean, std=std, clip=clip, casting=casting,
        device=device, copy=copy, memory=memory, threads=threads, into=into, corner=corner,
        fill=fill, channels=channels, **sizes,
    )  # fmt: skip


# Typed, since True == 1 == 1.0: what was refused once is refused after a call that was right.
@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(pattern: str, dtype: Any, *others: Any, **sizes: Any) -> Converter:
    """The Converter of these arguments, so that a loop plans once.

    Raises TypeError for constants that are no keys, as for what does not hash.
    """
    if not all(map(is_by_value, others[:_CONSTANTS])):
        raise TypeError("an array is no key")
    return _make(pattern, dtype, *others, **sizes)


def _plainly(
    pattern: Any, dtype: Any, scale: Any, mean: Any, std: Any, clip: Any, *others: Any, **sizes: Any
) -> Converter:
    """The kept Converter of constants that are no keys, or a new one of what has no plain form."""
    named = {"scale": scale, "mean": mean, "std": std, "clip": clip}
    constants = [plain(*each) for each in named.items()]
    arguments = (pattern, dtype, *constants, *map(_plain, others))
    keys = all(map(is_by_value, constants)) and _is_hashable((arguments, *sizes.values()))
    return (_kept if keys else _make)(*arguments, **sizes)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """`into` and `corner`, and a list of `fill` or `channels`, as keys."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def plan(
    pattern: str,
    shape: Iterable[int],
    dtype: Any = "float32",
    *,
    to_dtype: Any = None,
    device: str | None = "cpu",
    **keywords: Any,
) -> Plan:
    """How `convert` would handle a contiguous array of `shape` and `dtype`.

    >>> found = plan("bhwc->bchw", (64, 224, 224, 3), "uint8", to_dtype="float32")
    >>> found.kernel, found.bytes_moved
    ('split', 48168960)

    `print` it to read how it will run, and why. Other keywords are those of `convert`; with
    `device="cuda"` no GPU has to be there.
    """
    task = make_task(pattern, dtype=to_dtype, device=device, **keywords)
    found = ArraySpec.of(task.pattern.left, as_shape(shape), as_dtype(dtype), CPU)
    return plan_of_spec(task, found)
