"""`ArraySpec` (axes, shape, dtype and device of an array), dtypes, casting rules and device names.

Dtypes of ml_dtypes (bfloat16, float8) are recognized by their module. ml_dtypes is imported only
for a name, such as "bfloat16", that NumPy does not know.

Devices are "cpu", and the GPUs of CUDA as "cuda" and "cuda:1". A name does not need a GPU, so that
a plan or an ArraySpec can be made anywhere; `layoutkit.cuda.runtime` checks that the device exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ._utils.spelling import find_similar
from ._utils.validation import check_choice, show
from .errors import ArgumentError, DeviceError, DtypeError
from .layout.parsing import Layout, parse_layout
from .layout.pattern import as_shape, check_rank

CPU = "cpu"

_CUDA = re.compile(r"cuda(?::(\d{1,4}))?", re.ASCII)
current_gpu: Callable[[], int] | None = None  # returns the current GPU, if CuPy is in use


def normalize_device(device: Any) -> str:
    """Return the normalized name of a device: "cpu" or "cuda:<ordinal>"; None is the CPU.

    A `torch.device` is converted to its name. "cuda" is the current device of CuPy if CuPy is in
    use already, else the first one. The device does not have to exist.

    >>> normalize_device("cuda:1"), normalize_device("cuda"), normalize_device(None)
    ('cuda:1', 'cuda:0', 'cpu')

    Raises DeviceError for anything else.
    """
    if type(device).__module__ == "torch" and type(device).__name__ == "device":
        device = str(device)  # what `x.device` is
    if device is None or (isinstance(device, str) and device == CPU):
        return CPU
    match = _CUDA.fullmatch(device) if isinstance(device, str) else None
    if match is None:
        known = 'it must be "cpu", "cuda" or one of several GPUs, such as "cuda:1"'
        meant = _find_similar_device(str(device))
        cure = known if meant is None else f'did you mean "{meant}"?'
        raise DeviceError(f"device={show(device)} is not a device that layoutkit knows; {cure}")
    if match[1] is not None:
        return device_name(int(match[1]))
    return device_name(0 if current_gpu is None else current_gpu())


def _find_similar_device(name: str) -> str | None:
    """Return the device that other libraries call "GPU:1", 1 or "CPU", None for other names."""
    plain = name.lower().replace("gpu", "cuda")
    plain = f"cuda:{plain}" if plain.isdigit() else plain
    return plain if plain == CPU or _CUDA.fullmatch(plain) else None


def device_name(ordinal: int) -> str:
    """Return the name of a GPU."""
    return f"cuda:{ordinal}"


def device_ordinal(device: str) -> int:
    """Return the ordinal of a GPU from its normalized name."""
    return int(device.removeprefix("cuda:"))


def set_current_device_fn(current: Callable[[], int] | None) -> None:
    """Make "cuda" the GPU whose ordinal `current` returns, or the first one for None."""
    global current_gpu
    current_gpu = current


DType: TypeAlias = np.dtype[Any]

CASTINGS = ("safe", "same_kind", "unsafe", "saturate")

_ACCEPTED = (
    "bool, ints, floats, complex, bfloat16 and float8 (ml_dtypes), datetime64, timedelta64, bytes "
    "and text of a fixed length (S5, U5), void and structured dtypes"
)
_NUMERIC = "buifc"  # NumPy's same_kind allows casts to the right, not to the left.
_MEANING = {
    "safe": "nothing is lost",
    "same_kind": "narrower, of the same kind",
    "unsafe": "as NumPy's astype",
}
_MEANING_TO_INTEGER = {
    "unsafe": "cut off and wrapped, as NumPy's astype",
    "saturate": "rounded half to even and clipped to the range, NaN to 0",
}


@dataclass(frozen=True)
class ArraySpec:
    """Axes, shape, dtype and device of an input or a result.

    `axes` is the text of a layout and `dtype` anything that `as_dtype` accepts; they are normalized
    (no blanks, native byte order, "cuda:0" for "cuda"), so that equal specs compare equal.

    >>> spec = ArraySpec("b c h w", (64, 3, 224, 224), "float32")
    >>> print(spec)
    float32 bchw (64, 3, 224, 224) on cpu
    >>> spec.size, spec.nbytes
    (9633792, 38535168)

    Raises PatternError, ShapeError, DtypeError or DeviceError for an invalid field.
    """

    axes: str
    shape: tuple[int, ...]
    dtype: DType
    device: str = "cpu"

    def __post_init__(self) -> None:
        # A Layout is accepted because a side of a pattern may consist of names only because the
        # other side does, which its text alone does not show.
        layout = self.axes if isinstance(self.axes, Layout) else parse_layout(self.axes)
        shape = as_shape(self.shape)
        dtype = as_dtype(self.dtype)
        check_rank(layout, shape)
        check_supported_dtype(dtype)
        device = normalize_device(self.device)
        parts = {"axes": str(layout), "shape": shape, "dtype": dtype, "device": device}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, layout: Layout, shape: tuple[int, ...], dtype: DType, device: str) -> ArraySpec:
        """Return the spec of a parsed layout."""
        return cls(layout, shape, dtype, device)  # type: ignore[arg-type]

    @classmethod
    def unchecked(
        cls, layout: Layout, shape: tuple[int, ...], dtype: DType, device: str
    ) -> ArraySpec:
        """Return the spec of fields that were validated and normalized before."""
        spec = cls.__new__(cls)
        vars(spec).update(axes=str(layout), shape=shape, dtype=dtype, device=device)
        return spec

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the elements, without gaps between them."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.axes} {self.shape} on {self.device}"


def as_dtype(dtype: object) -> DType:
    """Return the NumPy dtype, in native byte order, for anything that names one.

    Dtypes of torch are recognized by their names, without importing torch.

    >>> as_dtype("float32"), as_dtype(">i4") == np.dtype("int32"), as_dtype("bfloat16").itemsize
    (dtype('float32'), True, 2)

    Raises DtypeError for anything else, and for None, which NumPy would read as float64.
    """
    return _native(_read_dtype(dtype))


def _read_dtype(dtype: object) -> DType:
    """Return the NumPy dtype for anything that names one; raise DtypeError for anything else."""
    if dtype is None:
        raise DtypeError(f"None is not a dtype; give one of {_ACCEPTED}")
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    try:
        result: DType = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError):  # SyntaxError: text such as "f4,("
        result = _from_ml_dtypes(dtype)
    return result


def as_result_dtype(dtype: object) -> DType:
    """Return the dtype of results that `dtype=` asks for.

    >>> as_result_dtype("int16")
    dtype('int16')

    Raises DtypeError for anything that `as_dtype` refuses, elements that cannot be moved, and for a
    dtype whose byte order is not the machine's, in which results are.
    """
    result = _read_dtype(dtype)
    check_supported_dtype(result)
    if not result.isnative:
        raise DtypeError(
            f"dtype={str(result)!r} has another byte order than this machine, in which results "
            f"are; give dtype={str(_native(result))!r}, or an out= of that byte order"
        )
    return result


def check_supported_dtype(dtype: DType) -> None:
    """Raise DtypeError unless elements of `dtype` can be copied as plain bytes.

    >>> check_supported_dtype(np.dtype("float32"))
    >>> check_supported_dtype(np.dtype("O"))
    Traceback (most recent call last):
    layoutkit.errors.DtypeError: elements of dtype object cannot be moved; convert them first...
    """
    is_plain = dtype.kind in _NUMERIC + "Mm" or dtype.fields is not None or _is_ml(dtype)
    is_fixed = dtype.kind in "SUV" and dtype.itemsize > 0 and dtype.subdtype is None
    if dtype.hasobject or not (is_plain or is_fixed):
        raise DtypeError(
            f"elements of dtype {dtype} cannot be moved; convert them first to one of {_ACCEPTED}"
        )


def dtype_kind(dtype: DType) -> str:
    """Return NumPy's `dtype.kind`, also for dtypes of ml_dtypes, whose `kind` is "V".

    "b" bool, "u" unsigned, "i" signed, "f" floating, "c" complex, "M" date, "m" time span,
    "S" bytes, "U" text, "V" void or structured.

    >>> [dtype_kind(as_dtype(name)) for name in ("uint8", "bfloat16", "int4")]
    ['u', 'f', 'i']
    """
    if dtype.kind in "bui" or not _is_ml(dtype):
        return dtype.kind
    if "complex" in dtype.name:
        return "c"
    return dtype.name[0] if dtype.name.startswith(("int", "uint")) else "f"


def is_wide(kind: str, itemsize: int) -> bool:
    """Return True for the kind and item size of a dtype that has values which float32 rounds.

    These are integers of at least 4 bytes and floats of at least 8. Formulas of these sources and
    sums with these parts are computed in float64.

    >>> is_wide("i", 4), is_wide("u", 2), is_wide("f", 4), is_wide("f", 8)
    (True, False, False, True)
    """
    return itemsize > 4 or (itemsize == 4 and kind in "iu")


def integer_bounds(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest value of an integer dtype, also of ml_dtypes' int4."""
    bits = int(dtype.name.lstrip("uint"))
    if dtype_kind(dtype) == "u":
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1


def can_cast(source: DType, target: DType, casting: str) -> bool:
    """Return True if the casting rule, one of NumPy's or "saturate", allows the cast.

    >>> can_cast(np.dtype("float32"), as_dtype("bfloat16"), "same_kind")
    True
    >>> can_cast(np.dtype("float32"), np.dtype("uint8"), "same_kind")
    False
    >>> can_cast(np.dtype("float32"), np.dtype("uint8"), "saturate")
    True

    "saturate" allows what "same_kind" does, and casts of real numbers to any other real dtype.
    Dates, text, void and structured dtypes are never cast, except to the other byte order.
    Raises ArgumentError if `casting` is not a casting rule.
    """
    check_casting(casting)
    if _native(source) == _native(target):
        return True
    kinds = dtype_kind(source), dtype_kind(target)
    if kinds[0] not in _NUMERIC or kinds[1] not in _NUMERIC:
        return False
    if casting == "safe":
        return _is_safe(source, target)
    if casting == "unsafe" or (casting == "saturate" and kinds[0] != "c"):
        return True
    return _NUMERIC.index(kinds[0]) <= _NUMERIC.index(kinds[1])


def check_cast(source: DType, target: DType, casting: str) -> None:
    """Raise DtypeError, with the rules that would allow the cast, if `can_cast` returns False.

    >>> check_cast(np.dtype("int64"), np.dtype("float32"), "same_kind")
    >>> check_cast(np.dtype("float32"), np.dtype("uint8"), "same_kind")
    Traceback (most recent call last):
    layoutkit.errors.DtypeError: float32 to uint8 is not allowed by casting="same_kind"...
    """
    if can_cast(source, target, casting):
        return
    rules = [rule for rule in reversed(CASTINGS) if can_cast(source, target, rule)]
    meanings = _MEANING
    if dtype_kind(target) in "ui":
        meanings = _MEANING | _MEANING_TO_INTEGER
    fix = " or ".join(f'casting="{rule}" ({meanings[rule]})' for rule in rules if rule in meanings)
    if not rules:
        moved = source if dtype_kind(source) not in _NUMERIC else target
        fix = f"no dtype, or the same one: {moved} is only moved, never cast"
    raise DtypeError(f'{source} to {target} is not allowed by casting="{casting}"; use {fix}')


def check_casting(casting: str) -> None:
    """Raise ArgumentError unless `casting` is one of CASTINGS."""
    check_choice("casting", casting, CASTINGS, ArgumentError)


def _is_safe(source: DType, target: DType) -> bool:
    if dtype_kind(source) in "fc" and dtype_kind(target) in "ui":
        return False  # np.can_cast returns True from float8 to int4
    if _is_ml(target) and target.itemsize == 1 and dtype_kind(target) == "f":
        # np.can_cast returns True for any one-byte dtype, although values are lost.
        return dtype_kind(source) == "b"
    return np.can_cast(source, target, "safe")


def _is_ml(dtype: DType) -> bool:
    return dtype.type.__module__ == "ml_dtypes"


def _native(dtype: DType) -> DType:
    return dtype if dtype.isnative else dtype.newbyteorder("=")


# Names of dtypes in PyTorch and other libraries.
_SPELLINGS = {
    "fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16",
    "half": "float16", "float": "float32", "double": "float64", "f32": "float32",
    "f16": "float16", "f64": "float64", "long": "int64", "byte": "uint8", "short": "int16",
    "i16": "int16", "i32": "int32", "i64": "int64", "u16": "uint16", "u32": "uint32",
} | {name: name for name in (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16",
)}  # fmt: skip


def _find_similar_dtype(name: str) -> str | None:
    """Return the dtype that other libraries call so, or that a typo means, None for other names."""
    digits = re.sub(r"\D", "", name)  # no guess replaces a size
    known = [word for word in _SPELLINGS if len(word) > 4 and re.sub(r"\D", "", word) == digits]
    return _SPELLINGS.get(name) or _SPELLINGS.get(find_similar(name, known) or "")


def _from_ml_dtypes(name: object) -> DType:
    import ml_dtypes  # late: `import layoutkit` imports NumPy only

    scalar_type = getattr(ml_dtypes, name, None) if isinstance(name, str) else None
    # The module also has functions and finfo, which NumPy would accept as object dtypes.
    if not (isinstance(scalar_type, type) and issubclass(scalar_type, np.generic)):
        close = _find_similar_dtype(str(name).rpartition(".")[2].lower())
        hint = f'did you mean "{close}"? Accepted are' if close else "give one of"
        raise DtypeError(f"{show(name)} is not a dtype; {hint} {_ACCEPTED}")
    return np.dtype(scalar_type)
