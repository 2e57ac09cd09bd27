"""The layout of the tables of the kernel "yuv", in 64-bit words.

The parameter block has the words WIDTH to WORDS, the coefficients of `planning/yuv.py`, and for
each conversion kernel of a band its code, parameters and units, and the offsets of its source and
output.

The call block, passed as the source, has the address of the first scratch area, the bytes of an
area, and the number of areas; then one flag per area; then for each frame the addresses of the
planes y, u and v, and the offset of its result in the output.

A scratch area has rows of y, u and v that are not contiguous (`row_bytes` each), and the red,
green and blue bytes of a band. With role "wide", it has instead WIDE_ROWS rows of 16-bit items
(`wide_row_bytes` each): y, u and v of all pixels, and two rows of samples of color and their sum.
"""

from .params import LINE

(
    WIDTH, HEIGHT,  # of a frame
    ROWS,  # of a band
    BANDS,  # of a frame
    Y_ROW, Y_STEP, U_ROW, U_STEP, V_ROW, V_STEP,  # strides of rows and columns
    OUT_ROW,  # the stride of rows in the output
    LAUNCHES,  # their number
    ITEM, SHIFT,  # bytes of an item, and the number of bits below its sample
    EVEN_COLUMN, ODD_COLUMN, EVEN_ROW, ODD_ROW,  # weights of the nearest sample, in quarters
    WORDS,
) = range(19)  # fmt: skip
COEFFICIENTS = 16
LAUNCH = 5  # words of a launch
AREAS = 3  # words of the call block before the flags
FRAME = 4  # words of a frame
PIXELS = 32  # pixels that are computed together


def row_bytes(width: int) -> int:
    """Return the size of a row of a plane in a scratch area."""
    return -(-(width + PIXELS) // LINE) * LINE


WIDE_ROWS = 6


def wide_row_bytes(width: int) -> int:
    """Return the size of a row of 16-bit items in a scratch area, with a line on both sides."""
    return -(-2 * (width + PIXELS) // LINE) * LINE + 2 * LINE
