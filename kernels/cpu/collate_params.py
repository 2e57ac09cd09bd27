"""The tables of a batch of windows: what Python writes, lay.py completes and each.py carries out.

All are of 64-bit words. A *sheet* is what is said of all samples:

    OBJECTS, DTYPE        NumPy's arrays and the dtype that they have to have; or 0 and
    STARTS, SIZES, STRIDES, FORM    addresses, sizes and strides, FORM bytes from sample to sample
    OUT, END              where the output begins and ends, if samples may overlap it
    KINDS, KNOWN          what is known of windows that lie alike: how many kinds, and their table
    FOUND, COPIES         what is wrong with samples (of UNKNOWN to NEAR), and how many are copied
    COUNT, AXES, HEADER   how many samples there are, their rank, and the bytes of an object before
                          what is NumPy's
    CHANNEL, FIRST, APART, MOST     the axis of channels, the first that is taken, how far the next
                          is, and how many there have to be; CHANNEL is -1 where all are taken
    FILLED, COPIED, BYTES whether windows may reach outside, whether all are copied, bytes of a copy
    STEP                  bytes from sample to sample in the output
    TABLE, ROWS, STATES, ARENA      what is written: entries, rows, states and parameters

and behind them lists of AXES words

    CORNERS, CORNER_STEPS where the corners of windows stand, 0 for windows in the middle, and the
                          bytes from sample to sample
    FLIPS, FLIP_STEPS     the same for whether they are reversed
    WINDOW, GIVEN, PACKED the size of a window, whether it was asked for, and the bytes from place
                          to place of a copy of a window

A *kind* is CODE, PARAMETERS, WORDS (how many), UNITS, SOURCE and OUTPUT offsets, PATCHES and PATCH,
then for each axis the step that it was planned for, and how long others have to be that it serves,
-1 where it serves none. A *patch* is the index of a parameter (-1: the source offset), an axis, and
how many bytes the parameter grows by for each byte of its step.

A *row* is what is known of one window: TARGET, where it is copied to; ORIGIN of its sample; then
for each axis where the window begins, the sample's size and stride, and the window's step.

An *entry* is what there is to do: a kernel, its parameters, source, bytes from the output's first
element, units, and the row of a window that has to be copied before, or 0.
"""

(
    OBJECTS, DTYPE, STARTS, SIZES, STRIDES, FORM, OUT, END, KINDS, KNOWN, FOUND, COPIES,
    COUNT, AXES, HEADER, CHANNEL, FIRST, APART, MOST, FILLED, COPIED, BYTES, STEP,
    TABLE, ROWS, STATES, ARENA,
) = range(27)  # fmt: skip
EACH_TIME = 12  # words that are others in each batch
SHEET = 27
CORNERS, CORNER_STEPS, FLIPS, FLIP_STEPS, WINDOW, GIVEN, PACKED, LISTS = range(8)

CODE, PARAMETERS, WORDS, UNITS, SOURCE, OUTPUT, PATCHES, PATCH = range(8)
KIND = 8  # and two words for each axis
PATCH_WORDS = 3

TARGET, ORIGIN = range(2)
BEGINS, LENGTHS, GAPS, STEPS = range(4)  # of AXES words each, behind TARGET and ORIGIN
ROW = 2

E_CODE, E_PARAMETERS, E_SOURCE, E_OUTPUT, E_UNITS, E_BEFORE = range(6)
ENTRY = 6

# What is wrong: a window that lies as none before, one that reaches outside, a sample of another
# rank, dtype or size; and a sample that lies where the output is.
UNKNOWN = 1
OUTSIDE = 2
ODD = 4
NEAR = 8

# What is said of all copies: rank, bytes of an item, what is outside of samples (a window of it),
# the axis of channels, where these are taken from a list (else -1), and the list; then the window.
C_AXES, C_ITEM, C_PAINT, C_CHANNEL, C_CHANNELS = range(5)
COPY = 5
