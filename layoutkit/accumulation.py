"""The sum of gradients that arrive in different layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ._compile import in_graph, is_followed, sum_in_graph
from ._utils import fork
from ._utils.cache import MAX_KEPT, PROGRAM_BYTES, Cache, remember
from .converter import Converter
from .errors import ArgumentError, DtypeError, LayoutkitError, PatternError, ShapeError
from .layout.parsing import ARROW, parse_layout
from .layout.pattern import Move, Pattern, axis_name, parse_pattern
from .memory import Array, as_numpy, check_writable, layout_key
from .planning.options import check_out
from .spec import DType, as_dtype, can_cast, kind_of

if TYPE_CHECKING:
    from .cpu.accumulate import Run
    from .cuda.accumulate import DeviceSums
    from .planning.accumulate import SumRequest

__all__ = ["Accumulator", "accumulate"]


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
    pairs = list(_pairs(parts))
    layouts = tuple(of for _, of in pairs)
    if is_followed():
        return sum_in_graph([array for array, _ in pairs], out, layouts, layout, dtype, sizes)
    wanted = None if dtype is None else as_dtype(dtype)
    try:
        accumulator = _kept(layouts, layout, wanted, **sizes)
    except LayoutkitError:
        raise
    except TypeError:  # unhashable: sizes or layouts that are none, which it will say
        accumulator = Accumulator(layouts, layout, dtype=wanted, **sizes)
    return accumulator([array for array, _ in pairs], out)


# Quicker ways of parts of which the first is exactly of one class, by its id; or NotImplemented.
shortcuts: dict[int, Callable[[Accumulator, Sequence[Any], Any], Any]] = {}


class Accumulator:
    """A sum of arrays in given layouts, planned once and called for batch after batch.

    Takes the layouts of the parts and what `accumulate` takes; the same rules hold.

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
        self._dtype = None if dtype is None else as_dtype(dtype)
        self._patterns = [_pattern(part, layout) for part in layouts]
        self._sizes = [_useful(pattern, sizes) for pattern in self._patterns]
        _check_used(sizes, self._sizes)
        # The arguments but for the parts, as an operator of another library can hold them.
        self.words = (
            list(layouts), layout, "" if self._dtype is None else str(self._dtype),
            list(sizes), list(sizes.values()),
        )  # fmt: skip
        self._sums: Cache[Run] = Cache()
        self.threads: int | None = None  # as many as there are
        self.on_gpus: DeviceSums | None = None  # for `layoutkit.backends.dispatch` to keep

    def __call__(self, arrays: Sequence[Any], out: Any = None) -> Any:
        """Sum arrays, one for each layout, from left to right; see `accumulate`."""
        if len(arrays) != len(self._patterns):
            count = len(self._patterns)
            raise ShapeError(f"{len(arrays)} arrays for {count} layouts; give one for each")
        if not all(isinstance(array, np.ndarray) for array in (*arrays, *_given(out))):
            if is_followed():
                return in_graph(self, list(arrays), out)
            short = shortcuts.get(id(type(arrays[0])))
            if short is not None and (found := short(self, arrays, out)) is not NotImplemented:
                return found
            return _adapters().sum_foreign(self, arrays, out)
        parts = [
            array if type(array) is np.ndarray else as_numpy(array, f"part {number}")
            for number, array in enumerate(arrays)
        ]
        target = None if out is None else as_numpy(out, "out")
        key = layout_key(*parts, target)
        run = self._sums.get(key) or self._keep(key, parts, target)
        if target is not None:
            for number, part in enumerate(parts):
                check_writable(part, target, f"part {number}")
        total = run(parts, target)
        return total if out is None else out

    def _keep(self, key: Any, parts: Sequence[Array], out: Array | None) -> Run:
        """Plan for arrays like these and keep what sums them; raises where they are none."""
        # Imported with the first sum, so that `import layoutkit` stays light.
        with fork.making:
            from .cpu.accumulate import prepared

            run = prepared(self.plan(parts, out), self.threads)
            return remember(self._sums, key, run, PROGRAM_BYTES * len(parts))

    def plan(self, parts: Sequence[Any], out: Any) -> SumRequest:
        """How parts that lie so are summed, on any device; raises where they are not."""
        with fork.making:
            from .planning.accumulate import SumRequest, computed_dtype

        dtypes = tuple(part.dtype for part in parts)
        moves, result = self.resolve([part.shape for part in parts], dtypes, out)
        if out is not None:
            check_out(out, moves[0].target_shape, f"the sum in {self._layout}")
        strides = tuple(part.strides for part in parts)
        to = None if out is None else out.strides
        return SumRequest(moves, dtypes, strides, computed_dtype(dtypes, result), result, to)

    def resolve(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[DType], out: Array | None = None
    ) -> tuple[tuple[Move, ...], DType]:
        """Where the elements of every part go, and the dtype of the sum; raises for no sum."""
        moves = tuple(
            pattern.resolve(shape, sizes)
            for pattern, shape, sizes in zip(self._patterns, shapes, self._sizes, strict=True)
        )
        result = _result_dtype(dtypes, self._dtype, out)
        _check_shapes(moves, self._layout)
        return moves, result

    def converters(self) -> list[Converter]:
        """The Converter of each part to the layout of the sum: the way of its gradient back."""
        pairs: Any = zip(self._patterns, self._sizes, strict=True)
        return [Converter(pattern.text, casting="unsafe", **sizes) for pattern, sizes in pairs]


@fork.once
def _adapters() -> ModuleType:
    from .backends import dispatch  # late: they know sums, and most arrays are NumPy's

    return dispatch


def _given(out: Any) -> tuple[Any, ...]:
    return () if out is None else (out,)


@lru_cache(maxsize=MAX_KEPT, typed=True)
def _kept(layouts: tuple[str, ...], layout: str, dtype: DType | None, **sizes: int) -> Accumulator:
    """The accumulator of these arguments, so that a training loop plans its sums once."""
    return Accumulator(layouts, layout, dtype=dtype, **sizes)


def _pairs(parts: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    try:
        listed = enumerate(parts)
    except TypeError:  # an array without axes, for one, has an __iter__ that raises
        kind = type(parts).__name__
        raise ArgumentError(f"parts is a {kind}; give (array, layout) pairs") from None
    for number, part in listed:
        if not isinstance(part, tuple | list) or len(part) != 2:
            kind = type(part).__name__
            raise ArgumentError(
                f"part {number} is no (array, layout) pair but a {kind}; give pairs"
            )
        yield part[0], part[1]


def _pattern(part: str, layout: str) -> Pattern:
    """The way of a part into the sum; errors are about one layout where it is wrong alone."""
    for each in (layout, part):
        if not isinstance(each, str) or ARROW in each:
            parse_layout(each)
    try:
        return parse_pattern(f"{part}{ARROW}{layout}")
    except PatternError:
        parse_layout(layout)
        parse_layout(part)
        raise


def _useful(pattern: Pattern, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of axes that this pattern has; another part may need the others."""
    sides = (pattern.left, pattern.right, pattern.source, pattern.target)
    names = {name for side in sides for group in side.named for name in group}
    return {name: size for name, size in sizes.items() if axis_name(name) in names}


def _check_used(sizes: Mapping[str, int], used: Sequence[Mapping[str, int]]) -> None:
    unused = set(sizes).difference(*used)
    if unused:
        names = ", ".join(sorted(unused))
        raise ShapeError(f"a size is given for {names}, but no part has such an axis; leave it out")


def _result_dtype(dtypes: Sequence[DType], asked: DType | None, out: Array | None) -> DType:
    if out is not None:
        if asked is not None and as_dtype(out.dtype) != asked:
            raise DtypeError(
                f"out has dtype {out.dtype}, but dtype={asked} was asked; make them equal"
            )
        asked = out.dtype
    promoted = _promote(dtypes)
    if asked is None:
        return promoted
    if kind_of(asked) not in "uifc" or not can_cast(promoted, asked, "same_kind"):
        raise DtypeError(
            f"the parts add up to {promoted}, which {asked} does not hold; ask for {promoted}"
        )
    return asked


def _promote(dtypes: Sequence[DType]) -> DType:
    """NumPy's common dtype; bfloat16 with float16 is float32."""
    for dtype in dtypes:
        if kind_of(dtype) not in "uifc":
            raise DtypeError(f"a part has dtype {dtype}, which cannot be added; convert it first")
    try:
        return as_dtype(np.result_type(*dtypes))
    except TypeError:  # NumPy leaves pairs such as bfloat16 with float16 or an integer open
        return np.result_type(np.float32, *(d for d in dtypes if d.kind in "uifc"))


def _check_shapes(moves: Sequence[Move], layout: str) -> None:
    """Raise unless all parts have one shape in the layout of the sum."""
    shapes = [move.target_shape for move in moves]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ShapeError(
                f"part {number} has shape {shape} in layout {layout}, but part 0 has {shapes[0]}; "
                "gradients of one array have one shape"
            )
