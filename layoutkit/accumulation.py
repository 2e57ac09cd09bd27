"""The sum of gradients that arrive in different layouts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import numpy as np

from .arrays import Array, as_numpy
from .axes import Pattern, parse_layout, parse_pattern
from .buffers import empty_with_address
from .casts import cast_into
from .converter import MAX_KEPT, Converter
from .errors import ArgumentError, DtypeError, ShapeError
from .outputs import check_out, check_writable
from .spec import DType, as_dtype, can_cast, kind_of

__all__ = ["accumulate"]


def accumulate(
    parts: Iterable[tuple[Any, str]],
    layout: str,
    /,
    *,
    dtype: Any = None,
    out: Any = None,
    **sizes: int,
) -> Any:
    """Sum arrays of different layouts and dtypes into one layout.

    >>> import numpy as np
    >>> planes, pixels = np.ones((2, 3, 4, 5), np.float32), np.ones((2, 4, 5, 3), np.float32)
    >>> accumulate([(planes, "bchw"), (pixels, "bhwc")], "bhwc").shape
    (2, 4, 5, 3)

    Parameters
    ----------
    parts : iterable of (array, layout), one or more
        They are added from left to right.
    layout : str
        Of the sum.
    dtype : dtype, optional
        Of the sum. Default: out's, else what NumPy promotes the parts to.
    out : array, optional
        Where to write: of the sum's shape and dtype, not sharing memory with a part.
    **sizes : int
        Sizes of axes that parts fold.

    Returns
    -------
    array
        `out` or new memory, never a view of a part. Sums are computed in float64 if a part or
        the result is float64, else in float32; integers in 64 bits, wrapping as NumPy does.

    Raises
    ------
    PatternError, ShapeError, DtypeError, ArgumentError
        Before anything is written.
    """
    arrays, converters = _read(parts, layout, sizes)
    target = None if out is None else as_numpy(out, "out")
    result = _result_dtype(arrays, dtype, target)
    computed = _computed_dtype([array.dtype for array in arrays], result)
    shape = _common_shape(arrays, converters, layout)
    if target is not None:
        check_out(target, shape, f"the sum in {layout}")
        for number, array in enumerate(arrays):
            check_writable(array, target, f"part {number}")
    exact = [_converter(c.pattern, computed, sizes) for c in converters]
    total = _sum(arrays, exact, shape, computed)
    if target is None and computed == result:
        return total
    final = empty_with_address(shape, result)[0] if target is None else target
    cast_into(final, total)
    return final if out is None else out


def _read(
    parts: Iterable[tuple[Any, str]], layout: str, sizes: dict[str, int]
) -> tuple[list[Array], list[Converter]]:
    """The parts' arrays, and the Converter of each to the layout of the sum."""
    parse_layout(layout)
    arrays, converters, letters = [], [], set(sizes)
    if not isinstance(parts, Iterable):
        raise ArgumentError(f"parts is a {type(parts).__name__}; give (array, layout) pairs")
    for number, part in enumerate(parts):
        if not isinstance(part, tuple | list) or len(part) != 2:
            kind = type(part).__name__
            raise ArgumentError(
                f"part {number} is no (array, layout) pair but a {kind}; give pairs"
            )
        arrays.append(as_numpy(part[0], f"part {number}"))
        parse_layout(part[1])
        pattern = parse_pattern(f"{part[1]}->{layout}")
        converters.append(_converter(pattern.text, None, sizes))
        letters -= set(_useful(pattern, sizes))
    if not arrays:
        raise ArgumentError("accumulate needs at least one (array, layout) pair; got none")
    if letters:
        names = ", ".join(sorted(letters))
        raise ShapeError(f"a size is given for {names}, but no part has such an axis; leave it out")
    return arrays, converters


def _converter(pattern: str, dtype: DType | None, sizes: dict[str, int]) -> Converter:
    """The kept Converter of a part, so that a training loop plans its sums once."""
    return _kept(pattern, dtype, **_useful(parse_pattern(pattern), sizes))


@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(pattern: str, dtype: DType | None, **sizes: int) -> Converter:
    return Converter(pattern, dtype=dtype, casting="unsafe", **cast("dict[str, Any]", sizes))


def _useful(pattern: Pattern, sizes: dict[str, int]) -> dict[str, Any]:
    """The sizes of axes that this pattern has; another part may need the others."""
    sides = (pattern.left, pattern.right, pattern.source, pattern.target)
    letters = {letter for side in sides for letter in side.letters}
    return {letter: size for letter, size in sizes.items() if letter in letters}


def _result_dtype(arrays: list[Array], dtype: Any, out: Array | None) -> DType:
    asked = None if dtype is None else as_dtype(dtype)
    if out is not None:
        if asked is not None and as_dtype(out.dtype) != asked:
            raise DtypeError(
                f"out has dtype {out.dtype}, but dtype={asked} was asked; make them equal"
            )
        asked = out.dtype
    promoted = _promote([array.dtype for array in arrays])
    if asked is None:
        return promoted
    if kind_of(asked) not in "uifc" or not can_cast(promoted, asked, "same_kind"):
        raise DtypeError(
            f"the parts add up to {promoted}, which {asked} does not hold; ask for {promoted}"
        )
    return asked


def _promote(dtypes: list[DType]) -> DType:
    """NumPy's common dtype; bfloat16 with float16 is float32."""
    for dtype in dtypes:
        if kind_of(dtype) not in "uifc":
            raise DtypeError(f"a part has dtype {dtype}, which cannot be added; convert it first")
    try:
        return as_dtype(np.result_type(*dtypes))
    except TypeError:  # NumPy leaves pairs such as bfloat16 with float16 or an integer open
        return np.result_type(np.float32, *(d for d in dtypes if d.kind in "uifc"))


def _computed_dtype(dtypes: list[DType], result: DType) -> DType:
    """Where sums are exact enough: 64 bits for integers and float64, else float32."""
    kinds = {kind_of(dtype) for dtype in (*dtypes, result)}
    if kinds <= {"u", "i"}:
        return np.dtype(np.uint64 if kind_of(result) == "u" else np.int64)
    # NumPy's own dtypes of four bytes and more; shorter ones are added in float32.
    wide = [d for d in (*dtypes, result) if d.kind in "fc" and d.itemsize >= 4]
    return np.result_type(np.complex64 if "c" in kinds else np.float32, *wide)


def _common_shape(arrays: list[Array], converters: list[Converter], layout: str) -> tuple[int, ...]:
    """The shape of the sum, which every part must have in the layout of the sum."""
    shapes = [c.target_shape(a.shape) for a, c in zip(arrays, converters, strict=True)]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                f"part {number} has shape {shape} in layout {layout}, but part 0 has {shapes[0]}; "
                "gradients of one array have one shape"
            )
    return shapes[0]


def _sum(
    arrays: list[Array], converters: list[Converter], shape: tuple[int, ...], computed: DType
) -> Array:
    total: Array = empty_with_address(shape, computed)[0]
    converters[0](arrays[0], out=total)
    for array, converter in zip(arrays[1:], converters[1:], strict=True):
        with np.errstate(all="ignore"):
            np.add(total, converter(array), out=total)
    return total
