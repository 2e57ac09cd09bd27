"""Video frames as planes of brightness and color (YUV 4:2:0): the formula of RGB, and the plan.

A decoder stores the brightness of every pixel (the plane y) and one pair of color differences for
2 x 2 pixels (the planes u and v). ITU-R BT.601 and BT.709 define the sums of red, green and blue
that these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from ..layout.parsing import Layout
from ..layout.pattern import Pattern
from ..spec import DType

if TYPE_CHECKING:
    from ..options import ConvertOptions

# The shares of red and blue in the brightness; green is the rest.
SHARES = {
    "bt601": (Fraction(299, 1000), Fraction(114, 1000)),
    "bt709": (Fraction(2126, 10000), Fraction(722, 10000)),
}
# The black and white of y, and the largest differences of u and v minus the smallest, in 8 bits.
RANGES = {"limited": (16, 235, 224), "full": (0, 255, 255)}
# The bits that 16-bit items with ten bits are shifted by.
SHIFTS = {"low": 0, "high": 6}
# The weight of the nearest sample of color, in even and odd columns, then rows, in quarters; the
# next sample has the rest. "left": as in MPEG-2 and later, "center": as in JPEG and MPEG-1.
SITINGS = {"left": (4, 2, 3, 3), "center": (3, 3, 3, 3), "topleft": (4, 2, 4, 2)}
NEAREST = 4, 4, 4, 4
WEIGHTS = 16  # the sum of the weights of a color
# Sums are 32-bit integers in units of 2**-SUM_BITS, within 2**10. A factor is two integers: the
# second one, in units of 2**-(SUM_BITS + REST_BITS), is multiplied separately and shifted. With
# these numbers, the sums of all 2**24 colors are rounded as exact ones are, which a test checks.
SUM_BITS = 21
REST_BITS = 10
# Of colors of 14 bits: weighted sums of samples, of 8 or 10 bits. Errors of sums are below 2**-19.
WIDE_REST_BITS = 14


@dataclass(frozen=True)
class FrameFormat:
    """The meaning of the numbers in planes, as `YUVFrames` describes it."""

    matrix: str
    color_range: str
    ten_bits: str | None = None  # "low" or "high", where ten bits are in items of 16; None: 8 bits
    siting: str | None = None  # of interpolated colors; None: the nearest sample

    @property
    def is_wide(self) -> bool:
        """True if colors are weighted sums of samples, or samples have ten bits."""
        return self.ten_bits is not None or self.siting is not None

    @property
    def shift(self) -> int:
        """The number of bits below the bits of a sample."""
        return 0 if self.ten_bits is None else SHIFTS[self.ten_bits]

    @property
    def weights(self) -> tuple[int, ...]:
        """The weights of the nearest sample of color, in even and odd columns, then rows."""
        return NEAREST if self.siting is None else SITINGS[self.siting]

    def coefficients(self) -> tuple[int, ...]:
        """Return the factors and terms of the sums as pairs of integers."""
        if not self.is_wide:
            return rgb_coefficients(self.matrix, self.color_range)
        bits = 8 if self.ten_bits is None else 10
        return rgb_coefficients(self.matrix, self.color_range, bits, WEIGHTS, WIDE_REST_BITS)


def rgb_coefficients(
    matrix: str, color_range: str, bits: int = 8, units: int = 1, rest_bits: int = REST_BITS
) -> tuple[int, ...]:
    """Return factors and terms (y, rv, gu, gv, bu, r, g, b) of red, green and blue, as pairs.

    red = y * Y + rv * V + r, green = y * Y + gu * U + gv * V + g and blue = y * Y + bu * U + b,
    from 0 to 255. The terms include 1/2: the integer part of a sum is the byte, rounded half up.
    Y has `bits` bits, and U and V are multiplied by `units`.
    """
    red, blue = SHARES[matrix]
    green = 1 - red - blue
    black, white, span = (Fraction(x << bits - 8) for x in RANGES[color_range])
    if color_range == "full":
        white = span = Fraction((1 << bits) - 1)
    y = Fraction(255, white - black)
    rv = 2 * (1 - red) * Fraction(255, span)
    bu = 2 * (1 - blue) * Fraction(255, span)
    gu = -bu * blue / green
    gv = -rv * red / green
    term = Fraction(1, 2) - y * black
    # Exact halves of blue ("bt601", "full") would be truncated by the shift without a unit more;
    # other sums of red and blue are further from halves.
    above = term + Fraction(1, 1 << SUM_BITS)
    neutral = 1 << bits - 1  # of u and v: gray
    terms = above - neutral * rv, term - neutral * (gu + gv), above - neutral * bu
    factors = y, *(x / units for x in (rv, gu, gv, bu))
    scaled = [round(x * 2 ** (SUM_BITS + rest_bits)) for x in (*factors, *terms)]
    return tuple(part for x in scaled for part in divmod(x, 1 << rest_bits))


@dataclass(frozen=True)
class FramePlan:
    """The conversion of one frame of a batch, which can be cut into bands of rows."""

    options: ConvertOptions  # from "hwc" to the axes of one frame
    leading: tuple[int, ...]  # the sizes of the axes before h, w, c
    result: tuple[int, ...]  # the sizes of the result, unfolded
    leading_axes: tuple[int, ...]  # the unfolded axis of the result of each leading axis
    # The axes of a frame in the result: the sizes of the axes in each fold (None: the number of
    # rows of a band), and the innermost of its unfolded axes, whose stride the fold has.
    groups: tuple[tuple[tuple[int | None, ...], int], ...]
    row_axis: int  # the unfolded axis of the rows

    def band_shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of a band of rows in the result."""
        return tuple(prod(rows if n is None else n for n in sizes) for sizes, _ in self.groups)


def plan_frame(options: ConvertOptions, shape: tuple[int, ...], dtype: DType) -> FramePlan | None:
    """Return the plan of one frame, or None if frames are first converted to bytes (..., h, w, c).

    That is necessary for frames that are split on the left or padded, for rows that are not the
    outermost axis of a frame in their fold, and for constants along other axes than w and c.
    """
    move, _, _ = options.infer_result(shape, dtype)
    source = move.source.groups
    if options.padding is not None or max(map(len, source)) > 1:
        return None
    leading, inner = "".join(source[:-3]), "".join(source[-3:])
    frame_groups = [group.lstrip(_others(group, inner)) for group in move.target.groups]
    letters = "".join(frame_groups)
    is_band = all(inner[0] not in group[1:] for group in frame_groups)
    if not is_band or sorted(letters) != sorted(inner):
        return None
    if not _has_constants_within(options, inner[1:], move.source):
        return None
    pattern = Pattern(
        Layout(source[-3:], move.source.names),
        Layout(tuple(filter(None, frame_groups)), move.target.names),
        options.pattern.text,
    )
    axes = move.target_axes
    sizes = dict(zip(axes, move.target_sizes, strict=True)) | {inner[0]: None}
    if any(letter not in axes for letter in leading):
        return None
    return FramePlan(
        replace(options, pattern=pattern, sizes={}),
        shape[:-3],
        move.target_sizes,
        tuple(map(axes.index, leading)),
        tuple((tuple(sizes[x] for x in g), axes.index(g[-1])) for g in pattern.target.groups),
        axes.index(inner[0]),
    )


def _others(group: str, inner: str) -> str:
    return "".join(letter for letter in group if letter not in inner)


def _has_constants_within(options: ConvertOptions, letters: str, source: Layout) -> bool:
    """Return True if the formula's constants are numbers, or along one of these axes."""
    formula = options.formula
    names = [source.name(letter) for letter in letters]
    return formula is None or not formula.per_channel or formula.axis in names
