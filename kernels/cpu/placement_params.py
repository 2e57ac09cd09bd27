"""The layout of the parameter blocks of placement.py, of 64-bit words.

The kernel "fit" computes the placements of samples. Its source is a table (samples, axes) of
sizes, its target the fields (5, samples, axes) of Placements in their order, without the flips. The
block is

    SAMPLES, AXES         the number of samples and their rank
    FIT                   a number of FITS: how a crop is scaled into its window
    SHORT_SIDE            for the fit "short_side": the size of the shorter side
    IS_FLOOR              flag: parts are centered by "floor", not "round"
    MAY_FILL              flag: windows may reach outside of samples

followed by arrays of AXES words

    WINDOW, IS_RESIZED    the size of the window, and a flag for axes along which crops are scaled
    CROPS, CROP_STEPS     the address of the sizes of crops (0: whole samples), and the bytes
                          between the sizes of two samples
    OFFSETS, OFFSET_STEPS the address of the first positions of crops (0: they are centered), and
                          the bytes between the positions of two samples

The kernels "draw" and "crop" draw random values, int64 (values, samples). The source of both is a
table (samples, axes) of sizes. The block of "draw" is

    SAMPLES, AXES         as above
    POSITIONS             the address of the positions of samples
    KEYS, KEY_STEP, NEXT_KEY    the address of the keys, and the bytes between the keys of two
                          samples and of two values
    DRAWN_OFFSETS, DRAWN_FLIPS  the number of offsets and of flips, the rows of the target
    WORDS, RATIOS         the addresses of 64 random bits for each sample, and of the logarithms of
                          the ratios (samples, tries) of random crops, which are written; or 0
    RATIO                 the logarithms of the bounds of the ratio, two float64

followed by the axis and the size of the window of each offset. The block of "crop" is

    SAMPLES, AXES         as above
    C_WORDS, C_RATIOS     the addresses of the bits that "draw" wrote, and of the ratios
    C_HEIGHT, C_WIDTH     the vertical and the horizontal axis
    C_SCALE               the bounds of the share of the area, two float64

Its target has four rows: the first positions of crops, vertical and horizontal, and their sizes.
The sizes are 0 where no try is inside of the sample.
"""

from __future__ import annotations

SAMPLES, AXES = range(2)

FIT, SHORT_SIDE, IS_FLOOR, MAY_FILL, FIT_WORDS = range(2, 7)
WINDOW, IS_RESIZED, CROPS, CROP_STEPS, OFFSETS, OFFSET_STEPS, AXIS_ARRAYS = range(7)
FITS = ("crop", "stretch", "cover", "pad", "short_side")
CROP, STRETCH, COVER, PAD, SHORT = range(len(FITS))

POSITIONS, KEYS, KEY_STEP, NEXT_KEY, DRAWN_OFFSETS, DRAWN_FLIPS, WORDS, RATIOS = range(2, 10)
RATIO, DRAW_WORDS = 10, 12

C_WORDS, C_RATIOS, C_HEIGHT, C_WIDTH, C_SCALE = range(2, 7)
