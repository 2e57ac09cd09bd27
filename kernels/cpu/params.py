"""The layout of a kernel's parameter block, which the launcher writes and the kernel reads.

A parameter block is an array of 64-bit words, followed by tables and coefficients, which are
referred to by their word index. It begins with the loops over work units:

    word 0                number of loops, outermost first
    words 1 + 4*i ...     count, source step, output step, coefficient step of loop i, in bytes

and continues, from word `HEAD`, with

    RUN_*           the run, contiguous in the output: its loop, length, block length, number of
                    the last block (which includes the remainder), and the table of the source
                    offsets of one period with the source step from one period to the next
    ROWS_*          the rows beside the run: their loop, length, block length, number of the last
                    block, and a table of one byte offset per row of a block, in the memory that
                    the microkernel writes to (the source, if it has no microkernel)
    PITCH           bytes between rows of the scratch area
    OUT_OFFSETS, COEF_OFFSETS   tables: output offset and coefficient offset of each row of a block
    BOUNDS          the clip bounds, in the dtype that items have when they are clipped
    FACTOR, TERM    the coefficients
    OUT_STRIDE      bytes between neighbors of a run in the memory that the microkernel writes to
    ROWS_CONTIGUOUS 1 if the rows of a block follow each other without a gap in the output and in
                    the scratch area, so that the epilogue handles them as one row
    HALO            positions that a block moves beyond its end, so that every row can be stored up
                    to the end of a cache line, from which the next block continues
    SRC_BYTES       bytes from the source address to the end of the last item that is read
    RUN_REACH       the largest source offset of a position of a block, or more
    PREFETCH        1 if the source of the next block is prefetched into the L2 cache, else 0

This module imports nothing: the launcher must not load Numba, and kernels need no launcher.
"""

MAX_LOOPS = 12
HEAD = 1 + 4 * MAX_LOOPS
RUN_LOOP, RUN_TOTAL, RUN_BLOCK, RUN_LAST, RUN_TABLE, RUN_PERIOD, RUN_STEP = range(HEAD, HEAD + 7)
ROWS_LOOP, ROWS_TOTAL, ROWS_BLOCK, ROWS_LAST, ROWS_TABLE = range(HEAD + 7, HEAD + 12)
PITCH, OUT_OFFSETS, COEF_OFFSETS, BOUNDS, FACTOR, TERM = range(HEAD + 12, HEAD + 18)
OUT_STRIDE, ROWS_CONTIGUOUS, SRC_BYTES, HALO, RUN_REACH = range(HEAD + 18, HEAD + 23)
PREFETCH = HEAD + 23
WORDS = HEAD + 24

LANE = 16  # bytes of a 128-bit lane, the widest unit within which every CPU shuffles at full speed
HALF_LANE = LANE // 2
LINE = 64  # bytes of a cache line
SCRATCH = 32768  # bytes a staged block may use: two thirds of a first-level cache of 48 KB
# A line of output that begins within the last row is converted past the end of the row.
SCRATCH_AREA = SCRATCH + 8 * LINE
