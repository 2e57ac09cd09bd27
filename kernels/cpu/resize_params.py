"""The layout of the tables of a batch of resized windows, in 64-bit words.

A *tap table* has, for each position of the result along an axis, the source positions (taps) that
contribute to it and their weights, in the dtype of the sums: float32, or float64 if the samples
are. It begins with PITCH, the number of bytes between the weights of two positions, and an unused
word; then, for each position, the first tap and the number of taps (0: the position is outside of
the image and is filled); then the weights of each position, in whole groups of TAP_GROUP. A GPU
reads such a group, or the two words of a position, at once: all begin at multiples of 16 bytes.

The kernel "taps" writes tap tables. Its requests have the address of the table, PITCH, the number
of positions of the table, the size of the source, the size that it is scaled to, the first scaled
position of the table, and flags: the filter, ANTIALIAS, REVERSED, and DOUBLE for float64 weights.

The kernel "resize" resamples blocks of result rows and columns. Its parameter block begins with the
words PLANES to WORDS, which are followed by

    for each outer axis    its size, its stride in the output, its step in the fill values, and the
                           number and the stride of positions that are folded within: of n
                           positions, position i is i // n strides and i % n folded strides away
    for each group         the first source element of a column, the number of elements (up to 4)
    for each launch        code, parameters and units of a conversion kernel, and the offsets of its
                           source and output

Its call block, passed as the source, begins with the words C_AREAS to CALL; then it has one row per
sample: the address of the first element, the bytes from FILL to the fill values of the sample,
GATHERED, the number of columns of the crop (CROPPED), and the address of the tap table and the
stride of every outer axis, of the rows, and of the columns. If GATHERED is not 0, only source
columns with taps are summed: GATHERED of them, from the first tap on, for each result column. They
are a word of up to 16 bytes. Several call blocks may share scratch areas: the block of areas has
the address of the first one, the bytes of an area, and the number of areas; then one flag per area.

A scratch area has the band of summed rows (`band_bytes`), the block of source columns, the block of
result rows, offset and weight (TAP bytes) of every tap of the outer axes, the weights of the taps
of a row, and a gathered piece of their source rows (`gathered_bytes` each). If elements are
ignored, the band and the block of source columns are followed by one of the sums of valid weights.
"""

from .params import LINE

REQUEST = 7  # words of a request to the kernel "taps"
T_TABLE, T_PITCH, T_COUNT, T_SIZE, T_SCALED, T_FIRST, T_FLAGS = range(REQUEST)
NEAREST, BILINEAR, BICUBIC, LANCZOS, AREA = range(5)
FILTER_BITS = 7
ANTIALIAS = 8
REVERSED = 16
DOUBLE = 32
HEAD = 2  # words of a tap table before its positions
POSITION = 2  # words of a position
TAP_GROUP = 4  # weights

(
    PLANES,  # indices of the last outer axes that a unit includes
    LANES,  # rows of a block
    SAMPLE_STEP, ROW_STEP,  # in the output
    AXES,  # outer axes
    WIDTH,  # columns of a block
    INNER,  # elements of a source column
    INNER_OUT,  # elements of a result column
    FILL,  # the address of the fill values of a column, then of one with flipped channels
    GROUPS, LAUNCHES,  # their numbers
    IGNORED,  # the value of ignored elements, in the dtype of the sums
    IS_NUMBER,  # 0 if it is NaN, else 1
    LEAST,  # results whose valid weights have no larger sum are filled
    WORDS,
) = range(15)  # fmt: skip
AXIS = 5  # words of an outer axis
GROUP = 2  # words of a group
LAUNCH = 5  # words of a launch

(
    C_AREAS,  # the address of the block of areas
    C_ROOM,  # source elements of a block of columns that fit an area
    C_UNITS,  # per sample
    C_BLOCKS,  # per index of the outer axes
    C_PLACES,  # the address of the first row, the first column and the output offset of each block
    C_ROWS, C_COLUMNS,  # of the result
    CALL,
) = range(8)  # fmt: skip
PLACE = 3  # words of a block
AREAS = 3  # words of a block of areas before the flags
SAMPLE = 4  # words of a sample before its axes
GATHERED, CROPPED = 2, 3  # indices of two of these words
UNLIMITED = 1 << 40  # source columns, more than any sample has

SUMS = {"all": 1, "valid": 2}  # sums of an element: its own, and the one of its valid weights
VECTOR = 16  # lanes: the rows of a block, and the elements that are loaded together
WIDE = 4  # vectors of a row that are resampled together
HALVED = 1, 3, 4  # bytes of columns that the kernel "halve" writes
HALVED_BYTES = 64  # the least number of bytes of its rows
HALVING_TAPS = 2, 4  # taps of its rows and columns
TAP = 16  # bytes of the offset and the weight of a tap of the outer axes

# Elements of a row that are summed before they are transposed. Few are best if the rows of a block
# are within NEAR_BYTES, whose pages fit the first TLB of a CPU; then the next block is prefetched.
NEAR_SPAN = 64
FAR_SPAN = 512
NEAR_BYTES = 256 << 10


def band_pitch(span: int, item: int) -> int:
    """Return the pitch in bytes of rows of sums: no power of two, whose rows evict each other."""
    return span * item + LINE


def gathered_bytes(item: int) -> int:
    """Return the size of a gathered piece of a source row, of items of `item` bytes."""
    return band_pitch(FAR_SPAN, item)


def band_bytes(item: int) -> int:
    """Return the size of the band of a block's summed rows, of items of `item` bytes."""
    return VECTOR * band_pitch(FAR_SPAN, item)
