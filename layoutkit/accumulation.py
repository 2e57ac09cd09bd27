"""`accumulate` and `Accumulator`: sums of arrays, such as gradients, in different layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from . import _compile
from ._compile import is_compiling
from ._utils import fork, late
from ._utils.cache import MAX_KEPT, PROGRAM_SIZE_ESTIMATE, Cache, cache_put
from ._utils.validation import describe_type
from .converter import Converter
from .errors import ArgumentError, DtypeError, LayoutkitError, PatternError, ShapeError
from .layout.parsing import ARROW, parse_layout
from .layout.pattern import Pattern, Permutation, axis_name, parse_pattern
from .memory import Array, as_numpy, check_out, check_writable, layout_key
from .planning.keywords import check_sizes
from .spec import DType, as_dtype, as_result_dtype, can_cast, dtype_kind

if TYPE_CHECKING:
    from .cpu.accumulate import Run
    from .cuda.accumulate import DeviceSums
    from .planning.accumulate import SumRequest


def accumulate(
    parts: Iterable[tuple[Any, str]],
    layout: str,
    /,
    *,
    dtype: Any = None,
    out: Any = None,
    **sizes: int,
) -> Any:
    """Return the sum, in one layout, of arrays in different layouts and dtypes.

    >>> import numpy as np
    >>> planes, pixels = np.ones((2, 3, 4, 5), np.float32), np.ones((2, 4, 5, 3), np.float32)
    >>> accumulate([(planes, "bchw"), (pixels, "bhwc")], "bhwc").shape
    (2, 4, 5, 3)

    Parameters
    ----------
    parts : iterable of (array, layout), one or more
        The terms, added from left to right.
    layout : str
        The layout of the sum.
    dtype : dtype, optional
        The dtype of the sum. Default: the dtype of `out`, else NumPy's promotion of the parts'.
    out : array, optional
        An array of the sum's shape and dtype to write to. It must not share memory with a part.
    **sizes : int
        Sizes of folded axes of parts.

    Returns
    -------
    array
        `out` or new memory, never a view of a part. Sums are computed in float64 if a part or the
        result is float64 or a part has integers of at least 32 bits, else in float32; sums of
        integers only in 64 bits, with NumPy's wraparound.

    Raises
    ------
    PatternError, ShapeError, DtypeError, ArgumentError
        An argument is invalid. Nothing has been written then.
    """
    pairs = list(_check_pairs(parts))
    layouts = tuple(part_layout for _, part_layout in pairs)
    if is_compiling():
        arrays = [array for array, _ in pairs]
        return _compile.graph.insert_accumulate(arrays, out, layouts, layout, dtype, sizes)
    result_dtype = None if dtype is None else as_result_dtype(dtype)
    try:
        accumulator = _cached(layouts, layout, result_dtype, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable: invalid sizes or layouts, for which Accumulator raises
        accumulator = Accumulator(layouts, layout, dtype=result_dtype, **sizes)
    return accumulator([array for array, _ in pairs], out)


# Fast paths, by the id of the class of the first part. They may return NotImplemented.
FAST_PATHS: dict[int, Callable[[Accumulator, Sequence[Any], Any], Any]] = {}


class Accumulator:
    """A sum of arrays in fixed layouts, planned once and called for batch after batch.

    Accepts the layouts of the parts, and the other arguments of `accumulate`.

    >>> import numpy as np
    >>> add = Accumulator(("bchw", "bhwc"), "bhwc")
    >>> add([np.ones((2, 3, 4, 5)), np.ones((2, 4, 5, 3))]).shape
    (2, 4, 5, 3)
    """

    def __init__(
        self, layouts: tuple[str, ...], layout: str, *, dtype: Any = None, **sizes: int
    ) -> None:
        if not layouts:
            raise ArgumentError("accumulate needs at least one (array, layout) pair; got none")
        self._layout = layout
        self._dtype = None if dtype is None else as_result_dtype(dtype)
        self._patterns = [_pattern(part, layout, sizes) for part in layouts]
        self._sizes = [_find_sizes(pattern, sizes) for pattern in self._patterns]
        _check_sizes(self._patterns, sizes)
        # The arguments except the parts, in types that operators of torch accept.
        self.graph_args = (
            list(layouts),
            layout,
            "" if self._dtype is None else str(self._dtype),
            list(sizes),
            list(sizes.values()),
        )
        self._sums: Cache[Run] = Cache()
        self.threads: int | None = None  # None: get_num_threads()
        self.cuda_programs: DeviceSums | None = None  # set by `layoutkit.backends.dispatch`

    @classmethod
    def from_graph_args(
        cls,
        layouts: Sequence[str],
        layout: str,
        dtype: str,
        names: Sequence[str],
        sizes: Sequence[int],
    ) -> Self:
        """Return the Accumulator of `graph_args`; sizes may be symbols."""
        axis_sizes: dict[str, Any] = dict(zip(names, sizes, strict=True))
        return cls(tuple(layouts), layout, dtype=dtype or None, **axis_sizes)

    def __call__(self, arrays: Sequence[Any], out: Any = None) -> Any:
        """Return the sum of arrays, one for each layout; see `accumulate`."""
        if len(arrays) != len(self._patterns):
            count = len(self._patterns)
            raise ShapeError(f"{len(arrays)} arrays for {count} layouts; give one for each")
        if not all(isinstance(array, np.ndarray) for array in (*arrays, *_as_tuple(out))):
            if is_compiling():
                return _compile.graph.insert_op(self, list(arrays), out)
            fast = FAST_PATHS.get(id(type(arrays[0])))
            if fast is not None and (result := fast(self, arrays, out)) is not NotImplemented:
                return result
            return late.load("dispatch").dispatch_sum(self, arrays, out)
        parts = [
            array if type(array) is np.ndarray else as_numpy(array, f"part {i}")
            for i, array in enumerate(arrays)
        ]
        target = None if out is None else as_numpy(out, "out")
        key = layout_key(*parts, target)
        run = self._sums.get(key) or self._prepare(key, parts, target)
        if target is not None:
            for i, part in enumerate(parts):
                check_writable(part, target, f"part {i}")
        total = run(parts, target)
        return total if out is None else out

    def _prepare(self, key: Any, parts: Sequence[Array], out: Array | None) -> Run:
        """Plan the sum for arrays like these and cache the program; raise if they do not fit."""
        # Imported with the first sum, so that `import layoutkit` is fast.
        with fork.init_lock:
            from .cpu.accumulate import make_sum

            run = make_sum(self.plan(parts, out), self.threads)
            return cache_put(self._sums, key, run, PROGRAM_SIZE_ESTIMATE * len(parts))

    def plan(self, parts: Sequence[Any], out: Any) -> SumRequest:
        """Return the request for the sum of parts with these strides; raise if they do not fit."""
        with fork.init_lock:
            from .planning.accumulate import SumRequest, sum_dtype

        dtypes = tuple(part.dtype for part in parts)
        moves, result = self.infer_result([part.shape for part in parts], dtypes, out)
        if out is not None:
            check_out(out, moves[0].target_shape, f"the sum in {self._layout}")
        strides = tuple(part.strides for part in parts)
        to = None if out is None else out.strides
        return SumRequest(moves, dtypes, strides, sum_dtype(dtypes, result), result, to)

    def infer_result(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[DType], out: Array | None = None
    ) -> tuple[tuple[Permutation, ...], DType]:
        """Return the permutations of all parts and the sum's dtype; raise if parts do not fit."""
        moves = tuple(
            pattern.resolve(shape, sizes)
            for pattern, shape, sizes in zip(self._patterns, shapes, self._sizes, strict=True)
        )
        result = _infer_dtype(dtypes, self._dtype, out)
        _check_shapes(moves, self._layout)
        return moves, result

    def converters(self) -> list[Converter]:
        """Return the Converter of each part to the sum's layout; `backward` gives its gradient."""
        pairs: Any = zip(self._patterns, self._sizes, strict=True)
        return [Converter(pattern.text, casting="unsafe", **sizes) for pattern, sizes in pairs]


def _as_tuple(out: Any) -> tuple[Any, ...]:
    return () if out is None else (out,)


@lru_cache(maxsize=MAX_KEPT, typed=True)
def _cached(
    layouts: tuple[str, ...], layout: str, dtype: DType | None, **sizes: int
) -> Accumulator:
    """Return a cached Accumulator, so that a training loop plans its sums once."""
    return Accumulator(layouts, layout, dtype=dtype, **sizes)


def _check_pairs(parts: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    try:
        indexed = enumerate(parts)
    except TypeError:  # an array without axes, for example, has an __iter__ that raises
        kind = describe_type(parts)
        raise ArgumentError(f"parts is {kind}; give (array, layout) pairs") from None
    for i, part in indexed:
        if not isinstance(part, tuple | list) or len(part) != 2:
            kind = describe_type(part)
            raise ArgumentError(f'part {i} is {kind}; give (array, layout), as in (x, "bhwc")')
        if isinstance(part[0], str) and hasattr(part[1], "shape"):
            raise ArgumentError(f'part {i} is ("{part[0]}", array); give (array, "{part[0]}")')
        yield part[0], part[1]


def _pattern(part: str, layout: str, sizes: Mapping[str, int]) -> Pattern:
    """Return the pattern of a part to the sum; raise for the layout alone if it is invalid."""
    for text in (layout, part):
        if not isinstance(text, str) or ARROW in text:
            parse_layout(text)
    try:
        return parse_pattern(f"{part}{ARROW}{layout}", sizes)
    except PatternError:
        parse_layout(layout)
        parse_layout(part)
        raise


def _find_sizes(pattern: Pattern, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of axes that this pattern has; another part may need the rest."""
    names = _list_axis_names(pattern)
    return {name: size for name, size in sizes.items() if axis_name(name) in names}


def _check_sizes(patterns: Sequence[Pattern], sizes: Mapping[str, int]) -> None:
    """Raise ShapeError for a size of an axis that no pattern has."""
    names = [name for pattern in patterns for name in _list_axis_names(pattern)]
    check_sizes("accumulate", patterns[0], sizes, [*dict.fromkeys(names)])


def _list_axis_names(pattern: Pattern) -> list[str]:
    sides = (pattern.left, pattern.right, pattern.source, pattern.target)
    return [name for side in sides for group in side.named for name in group]


def _infer_dtype(dtypes: Sequence[DType], requested: DType | None, out: Array | None) -> DType:
    if out is not None:
        if requested is not None and as_dtype(out.dtype) != requested:
            raise DtypeError(f"out has dtype {out.dtype}, but dtype={requested}; make them equal")
        requested = out.dtype
    promoted = promote(dtypes)
    if requested is None:
        return promoted
    if dtype_kind(requested) not in "uifc" or not can_cast(promoted, requested, "same_kind"):
        raise DtypeError(
            f"the parts add up to {promoted}, which {requested} does not hold; use {promoted}"
        )
    return requested


def promote(dtypes: Sequence[DType]) -> DType:
    """Return NumPy's common dtype, or float32 for bfloat16 with float16."""
    for dtype in dtypes:
        if dtype_kind(dtype) not in "uifc":
            raise DtypeError(f"a part has dtype {dtype}, which cannot be added; convert it first")
    try:
        return as_dtype(np.result_type(*dtypes))
    except TypeError:  # NumPy does not promote pairs such as bfloat16 with float16 or an integer
        return np.result_type(np.float32, *(d for d in dtypes if d.kind in "uifc"))


def _check_shapes(moves: Sequence[Permutation], layout: str) -> None:
    """Raise ShapeError unless all parts have one shape in the layout of the sum."""
    shapes = [move.target_shape for move in moves]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                f"part {i} has shape {shape} in layout {layout}, but part 0 has {shapes[0]}; "
                "gradients of one array have one shape"
            )
