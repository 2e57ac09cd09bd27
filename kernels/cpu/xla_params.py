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
    SRC_TYPE,
    SRC_COUNT,
    DST_TYPE,
    DST_COUNT,
    ERROR,
) = range(16)
WORDS = 16
MINIMUM_ALIGNMENT = 16  # bytes; of all arrays of XLA on the CPU
