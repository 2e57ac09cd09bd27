"""The layout of the tables of a batch of windows.

The caller writes the sheet; the kernel "windows" of collate.py writes rows and entries; the kernel
"each" executes the entries. The kernel "headers" reads the sheet up to OBJECT_HEADER. All tables
have 64-bit words. The *sheet* holds the arguments:

    OBJECTS, DTYPE        addresses of the NumPy arrays and their expected dtype; or OBJECTS is 0,
    STARTS, SIZES, STRIDES, FORM    and the addresses of these tables are used; FORM is the number
                          of bytes between the sizes (and strides) of two samples
    OUT, END              addresses: samples with an element at OUT or later, and one before END,
                          may overlap the output; END is 0 if no sample can
    KINDS, KNOWN          the number of window plans, and the address of their table
    ERRORS, MOVED_COUNT   results: error bits of all samples, and the number of moved windows
    COUNT, AXES, OBJECT_HEADER      the number of samples, their rank, and the bytes of a Python
                          object that precede NumPy's fields
    CHANNEL, FIRST_CHANNEL, CHANNEL_STEP, MIN_CHANNELS    the channel axis (-1: all channels are
                          selected), the first selected channel, the step to the next one, and the
                          minimum number of channels
    MAY_PAD, MOVE_ALL     flags: windows may reach outside of samples; all windows are moved
    STEP                  bytes between samples in the output
    IS_FLOOR              flag: windows without an offset are centered by "floor", not "round"
    TABLE, ROWS, STATES, ARENA      addresses of the results: entries, rows, states (the number of
                          the window's kind, MOVED, or minus its error bits) and changed parameters

followed by arrays of AXES words

    OFFSETS, CORNER_STEPS addresses of the windows' offsets (0: centered windows), and the bytes
                          between samples
    FLIPS, FLIP_STEPS     addresses of the flags for reversed windows, and the bytes between samples
    POSITIONS, POSITION_STEPS       addresses of tables of the index in the sample of each position
                          (-1: it is filled), for windows that are moved (0: the positions are
                          neighbors, from the offset on), and the bytes between samples
    WINDOW, HAS_SIZE      the size of a window, and a flag for sizes that the caller specified

A *kind* is a window plan, for windows of certain strides: CODE, PARAMETERS, WORDS (the number of
parameters), UNITS, SOURCE and OUTPUT offsets, PATCHES and PATCH (number and address); then for each
axis the stride that it was planned for; then for each axis the minimum absolute value of other
strides of the same sign for which it is valid, or -1. A *patch* is the index of a parameter (-1:
the source offset), an axis, and the bytes that the parameter grows by for each byte of stride.

A *row* describes one window: ORIGIN, the address of its sample; then, with AXES words each,
WINDOW_OFFSETS, SAMPLE_SIZES, GAPS (the strides of the sample), WINDOW_STRIDES (of a moved window:
1, or -1 if it is reversed) and TABLES (the addresses of its tables of positions, or 0).

An *entry* is one launch: a kernel, its parameters, source, bytes from the output's first element,
units, and 0; or the row of a window that is moved, and the parameters of moves. The source is then
the address of the scratch areas: the address of the first area, the bytes of an area, the number of
areas, and one flag per area. A thread claims an area while it moves boxes.

The parameters of moves are the same for all windows of one size. They begin with

    M_AXES, M_ITEM        the rank of samples, and the bytes of an item
    M_CHANNEL             the channel axis, or -1
    M_FILL, M_TURNED      the address of a window of fill values, and the bytes to a window whose
                          channels are reversed
    M_BOXES               boxes of a window
    M_RUN                 the number of offsets that the table at the beginning of an area holds;
                          a box follows the table
    M_LAUNCHES            conversion kernels of a box; 0: boxes are moved to the output
    M_FLIP, M_FLIPPED     an axis that is not reversed by the moves, but by other conversion
                          kernels, and their number; -1: the moves reverse all axes
    M_IGNORES, M_MASK, M_LOW, M_SPAN    1: fill values replace items whose bits & mask are from low
                          to low + span, as unsigned numbers

followed for each axis by the size of the window, of a box, the number of boxes, and the strides of
the memory that a box is moved to, of the output, and of the fill values; then for each launch by
its code, parameters and units, and the offsets of its source and output. The launches of windows
that are reversed along M_FLIP follow the others.
"""

(
    OBJECTS, DTYPE, STARTS, SIZES, STRIDES, FORM, OUT, END, KINDS, KNOWN, ERRORS, MOVED_COUNT,
    COUNT, AXES, OBJECT_HEADER, CHANNEL, FIRST_CHANNEL, CHANNEL_STEP, MIN_CHANNELS, MAY_PAD,
    MOVE_ALL, STEP, IS_FLOOR, TABLE, ROWS, STATES, ARENA,
) = range(27)  # fmt: skip
PER_BATCH_WORDS = 12  # words that differ between batches
SHEET_WORDS = 27
(
    OFFSETS, CORNER_STEPS, FLIPS, FLIP_STEPS, POSITIONS, POSITION_STEPS, WINDOW, HAS_SIZE,
    AXIS_ARRAYS,
) = range(9)  # fmt: skip

CODE, PARAMETERS, WORDS, UNITS, SOURCE, OUTPUT, PATCHES, PATCH = range(8)
KIND = 8  # plus two words per axis
PATCH_WORDS = 3

ORIGIN = 0
ROW = 1  # words before the arrays of AXES words
WINDOW_OFFSETS, SAMPLE_SIZES, GAPS, WINDOW_STRIDES, TABLES, ROW_ARRAYS = range(6)

E_CODE, E_PARAMETERS, E_SOURCE, E_OUTPUT, E_UNITS, E_MOVED_ROW = range(6)
ENTRY = 6

# Error bits: no plan for the window's strides; the window reaches outside of its sample; the sample
# has another rank, dtype or size; the sample overlaps the output.
NO_PLAN = 1
OUT_OF_BOUNDS = 2
MISMATCH = 4
OVERLAPS_OUTPUT = 8

MOVED = 1 << 30  # the state of a window that is moved

(
    M_AXES, M_ITEM, M_CHANNEL, M_FILL, M_TURNED, M_BOXES, M_RUN, M_LAUNCHES, M_FLIP, M_FLIPPED,
    M_IGNORES, M_MASK, M_LOW, M_SPAN,
) = range(14)  # fmt: skip
MOVES = 14  # words before the axes
X_WINDOW, X_BOX, X_COUNT, X_TARGET, X_OUTPUT, X_FILL = range(6)
EXTENT = 6  # words of an axis
LAUNCH = 5  # words of a launch
