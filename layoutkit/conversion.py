"""`convert` and `plan`: one conversion in one call. `accumulate` is beside them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .axes import as_shape
from .caching import MAX_KEPT
from .compilation import is_followed
from .converter import Converter, call_in_graph, plan_of_spec
from .cuda.runtime import check_device
from .errors import LayoutkitError
from .planning.task import make_task
from .spec import ArraySpec, as_dtype

if TYPE_CHECKING:
    from .planning.plan import Plan

__all__ = ["convert", "plan"]


def convert(
    x: Any,
    pattern: str,
    /,
    *,
    dtype: Any = None,
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    casting: str = "same_kind",
    out: Any = None,
    device: str | None = None,
    copy: bool | None = None,
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
    x : array
        Any strides, read-only or not; it is never written to.
    pattern : str
        Layout of x, `->`, layout of the result: one letter an axis, parentheses fold axes.
    dtype : dtype, optional
        Of the result. Default: out's, else x's (float32 for an integer x with a formula).
    scale, mean, std : number, or for mean and std one number a channel (axis `c`)
        The result is (x * scale - mean) / std, computed in float32 (float64 if x or dtype is).
    casting : "same_kind", "safe", "unsafe" or "saturate"
        What dtype changes are allowed, in NumPy's words; "saturate" rounds half to even and
        clips to the range of an integer dtype.
    out : array, optional
        Where to write: of the result's shape and dtype, any strides, not sharing memory with x.
    device : "cpu", "cuda" or such as "cuda:1", optional
        Where the result is to be. Default: where x is.
    copy : bool, optional
        None: x itself or a view of it where nothing has to move, else new memory. True: always
        new memory. False: an error where bytes would have to move.
    **sizes : int
        Sizes of axes that x folds, such as `h=32`; one of a fold may be left out.

    Returns
    -------
    array
        `out`, or a contiguous array in the asked layout. New memory comes from a pool and
        returns to it when the array and all its views are gone.

    Raises
    ------
    PatternError, ShapeError, DtypeError, DeviceError, ArgumentError
        Before anything is written.
    """
    if type(x) is not np.ndarray and is_followed():
        return call_in_graph(
            x, pattern, out, sizes, dtype=dtype, scale=scale, mean=mean, std=std, casting=casting,
            device=device, copy=copy,
        )  # fmt: skip
    if device is not None:
        device = check_device(device)  # now: "cuda" is the current one, which may change
    try:
        converter = _kept(pattern, dtype, scale, mean, std, casting, device, copy, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable, such as a list of means
        converter = None
    if converter is None:
        converter = _plainly(pattern, dtype, scale, mean, std, casting, device, copy, **sizes)
    return converter(x, out)


def _make(
    pattern: str, dtype: Any, scale: Any, mean: Any, std: Any, casting: str,
    device: str | None, copy: bool | None, **sizes: int,
) -> Converter:  # fmt: skip
    return Converter(
        pattern, dtype=dtype, scale=scale, mean=mean, std=std, casting=casting,
        device=device, copy=copy, **sizes,
    )  # fmt: skip


# Typed, since True == 1 == 1.0: what was refused once is refused after a call that was right.
_kept = lru_cache(maxsize=MAX_KEPT, typed=True)(_make)


def _plainly(
    pattern: Any, dtype: Any, scale: Any, mean: Any, std: Any, *others: Any, **sizes: Any
) -> Converter:
    """The kept Converter of unhashable constants, or a new one of what has no plain form."""
    arguments = (pattern, dtype, *map(_plain, (scale, mean, std)), *others)
    make = _kept if _is_hashable((arguments, *sizes.values())) else _make
    return make(*arguments, **sizes)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1):
        return tuple(value)
    return value


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
    layout = str(task.pattern.left)
    return plan_of_spec(task, ArraySpec(layout, as_shape(shape), as_dtype(dtype)))
