"""Video frames as decoders store them: planes of brightness and color, 12 bits a pixel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from ._utils import late
from ._utils.validation import show
from .converter import convert
from .errors import ArgumentError, DeviceError, DtypeError, ShapeError
from .memory import Array
from .planning.yuv import RANGES, SHARES, SHIFTS, SITINGS, FrameFormat
from .spec import CPU

# The position of ten bits in the items of a buffer; None: 8 bits. The first two have pairs.
BUFFER_FORMATS = {"nv12": None, "p010": "high", "i420": None, "i010": "low"}
PAIRED = ("nv12", "p010")
CHROMA = ("nearest", "bilinear")


class YUVFrames:
    """Frames of video as planes, an input of `convert` and a Converter like an array of RGB.

    `shape` is (..., h, w, 3) and `dtype` uint8. A conversion computes red, green and blue, rounds
    them to bytes, and applies its formula, in one pass over the planes. It returns the same bits as
    a conversion of the RGB bytes, `numpy.asarray(frames)`.

    Rounding: with 8 bits and "nearest", each byte is its exact sum, rounded half up. Otherwise, it
    differs from the exact sum by at most 1/2 + 2**-19. Sums follow ITU-R BT.601 and BT.709.

    Planes may be arrays of any library on the CPU, with any strides, such as rows with padding or
    in reverse order. They are not copied: a conversion reads their memory at that time. Results are
    of the library of `y`.

    Parameters
    ----------
    y : array (..., h, w)
        The brightness, uint8, or uint16 with `ten_bits`.
    u, v : arrays (..., (h + 1) // 2, (w + 1) // 2)
        The color differences, of the dtype of y. Without `v`, `u` holds pairs of both, as in NV12:
        an array (..., (h + 1) // 2, (w + 1) // 2, 2), or with the last two axes in one.
    matrix : {"bt601", "bt709"}
        The standard of the colors: usually "bt709" for video of 720 and more rows, else "bt601".
        Decoders report it, such as PyAV by `frame.colorspace`.
    color_range : {"limited", "full"}
        "limited": y is from 16 to 235, as in most video. "full": from 0 to 255, as in JPEG.
    ten_bits : {"low", "high"}, optional
        The position of samples of ten bits in uint16: "low" as in yuv420p10le (I010), or "high" as
        in P010. Other bits are ignored. RGB has 8 bits.
    chroma : {"nearest", "bilinear"}
        "nearest": each color sample is used for 2 x 2 pixels. "bilinear": colors are interpolated
        between samples, and continue those at the edges.
    siting : {"left", "center", "topleft"}, optional
        The positions of color samples, for "bilinear". "left", the default: at every second column
        and between two rows, as in MPEG-2, H.264 and H.265. "center": between two columns and two
        rows, as in MPEG-1 and JPEG. "topleft": at every second column and row, as in BT.2020.

    Raises
    ------
    ShapeError, DtypeError
        The planes are not of these sizes or of these dtypes.
    DeviceError
        A plane is on a GPU.
    ArgumentError
        An option has another value, `siting` is given without "bilinear", or a plane is not an
        array.

    >>> import numpy as np
    >>> from layoutkit import convert
    >>> y, uv = np.full((8, 4, 6), 235, np.uint8), np.full((8, 2, 3, 2), 128, np.uint8)
    >>> frames = YUVFrames(y, uv, matrix="bt709")
    >>> frames.shape
    (8, 4, 6, 3)
    >>> x = convert(frames, "bhwc->bchw", dtype="float32", scale=1 / 255)
    >>> x.shape, float(x.min())
    ((8, 3, 4, 6), 1.0)
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        y: Any,
        u: Any,
        v: Any = None,
        *,
        matrix: str,
        color_range: str = "limited",
        ten_bits: str | None = None,
        chroma: str = "nearest",
        siting: str | None = None,
    ) -> None:
        self.format = _check_format(matrix, color_range, ten_bits, chroma, siting)
        self.like = y  # an array of the library of results
        self.y = self._as_plane(y, "y")
        if self.y.ndim < 2:
            raise ShapeError(f"y has shape {self.y.shape}; give planes (..., h, w)")
        *leading, h, w = self.y.shape
        shape = (*leading, -(-h // 2), -(-w // 2))
        if v is None:
            self.u, self.v = _split_pairs(self._as_plane(u, "uv"), shape, self.y.shape)
        else:
            self.u, self.v = self._as_plane(u, "u"), self._as_plane(v, "v")
            for name, plane in (("u", self.u), ("v", self.v)):
                _check_shape(name, plane, shape, self.y.shape)

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        pixel_format: str,
        *,
        matrix: str,
        color_range: str = "limited",
        chroma: str = "nearest",
        siting: str | None = None,
    ) -> Self:
        """Return the frames of one array (..., h * 3 / 2, w), with the color below the brightness.

        PyAV, OpenCV and cameras use such arrays. `pixel_format` is "nv12" (rows of pairs of u and
        v) or "i420" (also called yuv420p: all of u, then all of v, whose rows follow without
        padding); with ten bits, "p010" or "i010" (yuv420p10le). Memory is shared, not copied.

        >>> import numpy as np
        >>> buffer = np.full((4, 6, 8), 128, np.uint8)
        >>> YUVFrames.from_buffer(buffer, "i420", matrix="bt601", color_range="full")
        YUVFrames of shape (4, 4, 8, 3), matrix="bt601", color_range="full"

        Raises the errors of the constructor, and ShapeError if h or w is odd: give the planes then.
        """
        if not isinstance(pixel_format, str) or pixel_format not in BUFFER_FORMATS:
            raise ArgumentError(
                f'pixel_format={show(pixel_format)}; it must be "nv12" or "i420", which is also '
                'called yuv420p, or "p010" or "i010", also called yuv420p10le; give other orders '
                "of planes as YUVFrames(y, u, v)"
            )
        options: dict[str, Any] = {
            "matrix": matrix,
            "color_range": color_range,
            "ten_bits": BUFFER_FORMATS[pixel_format],
            "chroma": chroma,
            "siting": siting,
        }
        array = _as_array(buffer, "buffer")
        if array.ndim < 2 or array.shape[-2] % 3 or array.shape[-1] % 2:
            raise ShapeError(
                f"buffer has shape {array.shape}; a buffer is (..., h * 3 / 2, w) for even h and "
                "w; give planes of odd sizes as YUVFrames(y, u, v)"
            )
        *leading, rows, w = array.shape
        h = rows // 3 * 2
        y, color = array[..., :h, :], array[..., h:, :]
        if pixel_format in PAIRED:
            frames = cls(y, color, **options)
        else:
            if color.strides[-2:] != (w * array.itemsize, array.itemsize) and color.size:
                raise ArgumentError(
                    f"buffer has strides {array.strides}, and rows of {pixel_format} follow "
                    "without padding; give numpy.ascontiguousarray(buffer), or planes as "
                    "YUVFrames(y, u, v)"
                )
            u, v = np.moveaxis(color.reshape(*leading, 2, h // 2, w // 2), -3, 0)
            frames = cls(y, u, v, **options)
        frames.like = buffer
        return frames

    @property
    def matrix(self) -> str:
        return self.format.matrix

    @property
    def color_range(self) -> str:
        return self.format.color_range

    def _as_plane(self, x: Any, name: str) -> Array:
        """Return the NumPy array that shares the memory of a plane; DtypeError for other dtypes."""
        array = _as_array(x, name)
        if self.format.ten_bits is None and array.dtype != np.uint8:
            raise DtypeError(
                f"{name} is {array.dtype}; give planes of 8 bits, uint8, or planes of ten bits, "
                'uint16, with ten_bits="low" (yuv420p10le) or "high" (P010)'
            )
        if self.format.ten_bits is not None and array.dtype != np.uint16:
            raise DtypeError(f"{name} is {array.dtype}; give planes of ten bits as uint16")
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.y.shape, 3)

    @property
    def ndim(self) -> int:
        return self.y.ndim + 1

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        form = self.format
        options = f'matrix="{form.matrix}", color_range="{form.color_range}"'
        if form.ten_bits is not None:
            options += f', ten_bits="{form.ten_bits}"'
        if form.siting is not None:
            options += f', chroma="bilinear", siting="{form.siting}"'
        return f"YUVFrames of shape {self.shape}, {options}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the RGB bytes, a new array of the shape of the frames."""
        if copy is False:
            raise ValueError("RGB bytes are computed from planes, so they are always new memory")
        rgb: Array = np.asarray(convert(self, "...hwc->...hwc"))
        return rgb if dtype is None else rgb.astype(dtype, copy=False)


def _check_format(
    matrix: Any, color_range: Any, ten_bits: Any, chroma: Any, siting: Any
) -> FrameFormat:
    """Return the format of planes; raise ArgumentError if an option has another value."""
    options: list[tuple[str, Any, Iterable[str]]] = [
        ("matrix", matrix, SHARES),
        ("color_range", color_range, RANGES),
        ("chroma", chroma, CHROMA),
    ]
    options += [("ten_bits", ten_bits, SHIFTS)] if ten_bits is not None else []
    options += [("siting", siting, SITINGS)] if siting is not None else []
    for name, value, known in options:
        if not isinstance(value, str) or value not in known:
            choices = " or ".join(f'"{choice}"' for choice in known)
            raise ArgumentError(f"{name}={show(value)}; it must be {choices}")
    if chroma == "nearest" and siting is not None:
        raise ArgumentError(
            f'siting="{siting}" has no effect on chroma="nearest"; omit it, or give '
            'chroma="bilinear"'
        )
    return FrameFormat(
        matrix, color_range, ten_bits, None if chroma == "nearest" else siting or "left"
    )


def _as_array(x: Any, name: str) -> Array:
    """Return the NumPy array that shares the memory of a plane or buffer."""
    dispatch = late.load("dispatch")
    device = dispatch.adapter_for_any(x).device(x, name)
    if device != CPU:
        raise DeviceError(
            f"{name} is on {device}, and planes are converted on the CPU; move them there, or "
            "let the decoder convert to RGB, which `convert` accepts on a GPU"
        )
    array: Array = dispatch.as_array(x, name)
    return array


def _split_pairs(
    pairs: Array, shape: tuple[int, ...], y_shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return the planes u and v of an array of pairs."""
    *leading, h, w = shape
    if pairs.shape == (*shape, 2):
        return pairs[..., 0], pairs[..., 1]
    _check_shape("uv", pairs, (*leading, h, 2 * w), y_shape)
    return pairs[..., ::2], pairs[..., 1::2]


def _check_shape(name: str, plane: Array, shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    if plane.shape != shape:
        raise ShapeError(
            f"{name} has shape {plane.shape}, but y of shape {y_shape} needs {shape}: half of the "
            "rows and columns, rounded up"
        )
