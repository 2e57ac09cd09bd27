"""The parameter block of a kernel: what the launcher writes and the kernels read.

A block is an array of 64-bit words, followed by tables and coefficients, which are named by
their word index. It begins with the loops of the walk over work units:

    word 0                number of loops, outermost first
    words 1 + 4*i ...     count, source step, output step, coefficient step of loop i, in bytes

and goes on, from word `HEAD`, with

    R_*             axis r, contiguous in the output: its loop, length, block length, number of
                    the last block (which takes all that is left), table, period and step
    Q_*             the same for axis q, contiguous in the source, whose table is of a whole block
    PITCH           bytes between rows of the scratch area
    OUTS, COEFS     tables: output offset and coefficient offset of each row of a block
    BOUNDS          the two that items are clipped to, of as many bytes as they have then
    FACTOR, TERM    the coefficients
    PACE            bytes between neighbours in an output run (gather)
    JOINED          1 where the rows of a block follow each other in the output and in the scratch
                    area without a gap, so that they are finished as one

This module imports nothing: the launcher must not load Numba, and kernels need no launcher.
"""

MAX_LOOPS = 12
HEAD = 1 + 4 * MAX_LOOPS
RUN_LOOP, RUN_TOTAL, RUN_BLOCK, RUN_LAST, RUN_TABLE, RUN_PERIOD, RUN_STEP = range(HEAD, HEAD + 7)
ROWS_LOOP, ROWS_TOTAL, ROWS_BLOCK, ROWS_LAST, ROWS_TABLE = range(HEAD + 7, HEAD + 12)
PITCH, OUT_OFFSETS, COEF_OFFSETS, BOUNDS, FACTOR, TERM, OUT_STRIDE, ROWS_CONTIGUOUS = range(
    HEAD + 12, HEAD + 20
)
WORDS = HEAD + 20

LANE = 16  # bytes of a 128-bit lane, the widest unit in which all CPUs shuffle freely
LINE = 64  # bytes of a cache line
SCRATCH = 32768  # bytes a staged block may use: two thirds of a first-level cache of 48 KB
