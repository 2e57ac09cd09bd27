"""The layout of the block of the kernel "xla" (xla.py)."""

(
    VERSION,
    RUN,
    BOARD,
    THREADS,
    JOB,
    JOB_UNALIGNED,
    SRC_OFFSET,
    DST_OFFSET,
    MADVISE,
    ADVICE,
    NBYTES,
) = range(11)
WORDS = 11
