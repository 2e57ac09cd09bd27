"""What an array is before a byte of it moves: axes, shape, dtype, device; and the casting rule.

Knows dtypes but no arrays, and NumPy only: the dtypes of ml_dtypes (bfloat16, float8) are
recognised by the module that they come from, which is imported only for a name, such as
"bfloat16", that NumPy alone does not know.

Names of devices: "cpu", and the GPUs of CUDA as "cuda" and "cuda:1".

Names are text and need no GPU, so that a plan or an ArraySpec can be made anywhere. Whether there
is such a device, and what does things on it, is for `layoutkit.cuda.runtime` to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from .errors import ArgumentError, DeviceError, DtypeError
from .layout.parsing import Layout, parse_layout
from .layout.pattern import as_shape, check_rank

CPU = "cpu"

_CUDA = re.compile(r"cuda(?::(\d{1,4}))?", re.ASCII)
_current: Callable[[], int] | None = None  # asks for the current GPU, where one is in use


def canonical(device: Any) -> str:
    """The one name of a device: "cpu" or "cuda:<ordinal>"; None is the CPU.

    A `torch.device` is what it says in words. "cuda" is the current device of CuPy where it is in
    use already, else the first one. Pure otherwise: whether there is such a device is not asked.

    >>> canonical("cuda:1"), canonical("cuda"), canonical(None)
    ('cuda:1', 'cuda:0', 'cpu')

    Raises DeviceError for anything else.
    """
    if type(device).__module__ == "torch" and type(device).__name__ == "device":
        device = str(device)  # what `x.device` is
    if device is None or (isinstance(device, str) and device == CPU):
        return CPU
    found = _CUDA.fullmatch(device) if isinstance(device, str) else None
    if found is None:
        raise DeviceError(
            f'device={device!r} is no device that layoutkit knows; it is "cpu", "cuda" or one of '
            'several GPUs, such as "cuda:1"'
        )
    if found[1] is not None:
        return name_of(int(found[1]))
    return name_of(0 if _current is None else _current())


def name_of(ordinal: int) -> str:
    """The name of a GPU."""
    return f"cuda:{ordinal}"


def ordinal_of(device: str) -> int:
    """The ordinal of a GPU that has a canonical name."""
    return int(device.removeprefix("cuda:"))


def follow(current: Callable[[], int] | None) -> None:
    """Let "cuda" be the GPU that `current` names; None: the first one."""
    global _current
    _current = current


DType: TypeAlias = np.dtype[Any]

CASTINGS = ("safe", "same_kind", "unsafe", "saturate")

_ACCEPTED = (
    "bool, ints, floats, complex, bfloat16 and float8 (ml_dtypes), datetime64, timedelta64 "
    "and structured dtypes"
)
_NUMERIC = "buifc"  # In the order of NumPy's same_kind: a cast may go right, not left.
_MEANING = {
    "safe": "nothing is lost",
    "same_kind": "narrower, of the same kind",
    "unsafe": "cut off and wrapped, as NumPy's astype",
    "saturate": "rounded half to even and clipped to the range, NaN to 0",
}


@dataclass(frozen=True)
class ArraySpec:
    """Axes, shape, dtype and device of an array: what goes in, or what will come out.

    `axes` is the text of a layout and `dtype` anything that `as_dtype` takes; they are kept
    in one form (no blanks, native byte order, "cuda:0" for "cuda"), so that equal specs compare
    equal.

    >>> spec = ArraySpec("b c h w", (64, 3, 224, 224), "float32")
    >>> print(spec)
    float32 bchw (64, 3, 224, 224) on cpu
    >>> spec.size, spec.nbytes
    (9633792, 38535168)

    Raises PatternError, ShapeError, DtypeError or DeviceError for a part that is none.
    """

    axes: str
    shape: tuple[int, ...]
    dtype: DType
    device: str = "cpu"

    def __post_init__(self) -> None:
        # A side of a pattern may be in names only because of the other: text would not say so.
        layout = self.axes if isinstance(self.axes, Layout) else parse_layout(self.axes)
        shape, dtype = as_shape(self.shape), as_dtype(self.dtype)
        check_rank(layout, shape)
        check_movable(dtype)
        device = canonical(self.device)
        parts = {"axes": str(layout), "shape": shape, "dtype": dtype, "device": device}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, layout: Layout, shape: tuple[int, ...], dtype: DType, device: str) -> ArraySpec:
        """The spec of a layout that was read."""
        return cls(layout, shape, dtype, device)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements, without gaps between them."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.axes} {self.shape} on {self.device}"


def as_dtype(dtype: object) -> DType:
    """The NumPy dtype, in native byte order, for anything that names one.

    Those of torch are known by their names, without it.

    >>> as_dtype("float32"), as_dtype(">i4") == np.dtype("int32"), as_dtype("bfloat16").itemsize
    (dtype('float32'), True, 2)

    Raises DtypeError for anything else, and for None, which NumPy takes for float64.
    """
    if dtype is None:
        raise DtypeError(f"None is not a dtype; give one of {_ACCEPTED}")
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    try:
        found: DType = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError):  # SyntaxError: text such as "f4,("
        found = _from_ml_dtypes(dtype)
    return _native(found)


def check_movable(dtype: DType) -> None:
    """Raise DtypeError unless elements of `dtype` can be moved as plain bytes.

    >>> check_movable(np.dtype("float32"))
    >>> check_movable(np.dtype("O"))
    Traceback (most recent call last):
    layoutkit.errors.DtypeError: elements of dtype object cannot be moved; convert them first...
    """
    plain = dtype.kind in _NUMERIC + "Mm" or dtype.fields is not None or _is_ml(dtype)
    if dtype.hasobject or not plain:
        raise DtypeError(
            f"elements of dtype {dtype} cannot be moved; convert them first to one of {_ACCEPTED}"
        )


def kind_of(dtype: DType) -> str:
    """NumPy's letter for the kind of a dtype, also where ml_dtypes gives it none.

    "b" bool, "u" unsigned, "i" signed, "f" floating, "c" complex, "M" date, "m" time span,
    "V" structured.

    >>> kind_of(np.dtype("uint8")), kind_of(as_dtype("bfloat16")), kind_of(as_dtype("int4"))
    ('u', 'f', 'i')
    """
    if not _is_ml(dtype):
        return dtype.kind
    if "complex" in dtype.name:
        return "c"
    return dtype.name[0] if dtype.name.startswith(("int", "uint")) else "f"


def integer_bounds(dtype: DType) -> tuple[int, int]:
    """The range of an integer dtype, also of ml_dtypes' int4 and the like."""
    bits = int(dtype.name.lstrip("uint"))
    if kind_of(dtype) == "u":
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1


def can_cast(source: DType, target: DType, casting: str) -> bool:
    """Whether the casting rule allows the cast, in NumPy's words and "saturate".

    >>> can_cast(np.dtype("float32"), as_dtype("bfloat16"), "same_kind")
    True
    >>> can_cast(np.dtype("float32"), np.dtype("uint8"), "same_kind")
    False
    >>> can_cast(np.dtype("float32"), np.dtype("uint8"), "saturate")
    True

    Dates and structured dtypes are only moved: to themselves, in either byte order.
    Raises ArgumentError where `casting` is no such word.
    """
    check_casting(casting)
    if _native(source) == _native(target):
        return True
    kinds = kind_of(source), kind_of(target)
    if kinds[0] not in _NUMERIC or kinds[1] not in _NUMERIC:
        return False
    if casting == "safe":
        return _is_safe(source, target)
    return casting != "same_kind" or _NUMERIC.index(kinds[0]) <= _NUMERIC.index(kinds[1])


def check_cast(source: DType, target: DType, casting: str) -> None:
    """Raise DtypeError, with the words that would allow it, where `can_cast` says no.

    >>> check_cast(np.dtype("int64"), np.dtype("float32"), "same_kind")
    >>> check_cast(np.dtype("float32"), np.dtype("uint8"), "same_kind")
    Traceback (most recent call last):
    layoutkit.errors.DtypeError: float32 to uint8 is not allowed by casting="same_kind"...
    """
    if can_cast(source, target, casting):
        return
    words = [word for word in reversed(CASTINGS) if can_cast(source, target, word)]
    fix = " or ".join(f'casting="{word}" ({_MEANING[word]})' for word in words)
    if not words:
        moved = source if kind_of(source) not in _NUMERIC else target
        fix = f"no dtype, or the same one: {moved} is only moved, never cast"
    raise DtypeError(f'{source} to {target} is not allowed by casting="{casting}"; use {fix}')


def check_casting(casting: str) -> None:
    """Raise ArgumentError unless `casting` is one of CASTINGS."""
    if not isinstance(casting, str) or casting not in CASTINGS:
        words = ", ".join(f'"{word}"' for word in CASTINGS)
        raise ArgumentError(f"casting is {casting!r}; it is one of {words}")


def _is_safe(source: DType, target: DType) -> bool:
    if _is_ml(target) and target.itemsize == 1 and kind_of(target) == "f":
        # NumPy says yes to any byte and to any other float8, and both lose values.
        return kind_of(source) == "b"
    return np.can_cast(source, target, "safe")


def _is_ml(dtype: DType) -> bool:
    return dtype.type.__module__ == "ml_dtypes"


def _native(dtype: DType) -> DType:
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def _from_ml_dtypes(name: object) -> DType:
    import ml_dtypes  # Here and not above: `import layoutkit` loads NumPy only.

    found = getattr(ml_dtypes, name, None) if isinstance(name, str) else None
    # The module also has functions and finfo, of which NumPy would make object dtypes.
    if not (isinstance(found, type) and issubclass(found, np.generic)):
        raise DtypeError(f"{name!r} is not a dtype; give one of {_ACCEPTED}")
    return np.dtype(found)
