"""The constants that plan launches, in one table; for another GPU, change them here.

A comment has the unit and the reason, and the origin:

    GPU        every GPU since Turing; with "H100", that GPU only
    struct     a size in `walk.cuh`, `accumulate.cu` or `samples.cuh`, chosen
    chosen     by a model, before a GPU was measured (2026-11-21 to 2026-11-25)
    measured   faster on an H100 than without it (2026-11-26)
    fitted     to the measured speeds of 370 conversions by up to four kernels each, on an H100
               (2026-11-26, `tests/gpu/compare_kernels.py`)
    counted    in the machine code (2026-11-25)
    boxes      fitted to the measured speeds of 350 boxes of `permute.cu` (same GPU and day)
"""

# ---- the GPU -----------------------------------------------------------------------------

WORD = 16  # bytes that a thread reads or writes at once: GPU
WARP = 32  # threads: GPU
SECTOR = 32  # bytes that memory transfers at once: GPU
BANK = 4  # bytes of a word of shared memory: GPU
LINE = 128  # bytes of a cache line, and of one row of all banks: GPU
BLOCK_BYTES = 48 << 10  # shared memory of a block: GPU
PROCESSOR_BYTES = 227 << 10  # shared memory of a multiprocessor: H100
RESERVED_BYTES = 1 << 10  # further shared memory of each block: H100
COPIED_BYTES = 11.5  # bytes that a multiprocessor copies in a cycle: H100
ISSUED_INSTRUCTIONS = 128  # that the threads of a multiprocessor issue in a cycle: H100

# ---- launches ----------------------------------------------------------------------------

THREADS = 256  # of a block: chosen
MAX_COUNT = 1 << 31  # kernels divide smaller numbers only: struct
MAX_LOOPS = 12  # nested loops: outer loops, and loops of fused axes and items: struct
FAST_SHARE = 0.92  # of a copy's speed: no other kernels are considered: fitted
FEW_TILES = 64  # with fewer tiles, no shape fills a GPU, so all arrays have one: chosen
GROUP = 32  # tiles that are next to each other on both sides move together: measured
CHUNK = {1: 4, 2: 4, 4: 4, 8: 2, 16: 1}  # groups of pixels of a thread, by item size: chosen
FULL = 8  # chunks of an image; with fewer, the last one wastes too much: chosen

# ---- tiles of transpose.cu ---------------------------------------------------------------

TILE_BYTES = 16384  # 64 per thread, all in flight at once; eight tiles fit any GPU: chosen
MOST_TILE_BYTES = TILE_BYTES * 5 // 4  # of a tile that is fuller if it is slightly larger: chosen
PADDED_BYTES = 2 * TILE_BYTES  # of a tile with padded rows; a block has BLOCK_BYTES: chosen
USUAL = {1: 128, 2: 64, 4: 64, 8: 32, 16: 32}  # tile length along an axis, by item size: chosen
FUSED_TILES = 8  # an axis of fewer tiles is lengthened, as its last is rarely full: chosen
# Factors of the score by which a shape of tiles is selected.
FEWER_BLOCKS = 0.8  # for larger tiles: they need more registers and more rounds: chosen
RELUCTANCE = 0.96  # for unusual shapes: each has to be compiled: chosen
LOST_BYTES = 10  # bytes that a row costs beyond its own: 7 % of 128 bytes, 23 % of 32: chosen
ROOM_POWER = 0.5  # of the share of TILE_BYTES that a tile fills: chosen
# Speeds relative to a copy.
FULL_TIME = 1.04  # the time of full tiles: fitted
READ_LOST = 7  # bytes that each row that is read costs beyond its own: fitted
READ_CUT = 15  # further bytes if it begins or ends within a sector: fitted
WRITE_LOST = 12  # bytes that each row that is written costs beyond its own: fitted
WRITE_CUT = 136  # further bytes if it begins or ends within a sector: fitted
EMPTY_POWER = 0.3  # partly empty tiles lose less time than space: fitted
OVERLAP_POWER = 0.2  # so do tiles that overlap: fitted
APART_SHARE = 0.75  # if an axis has gaps: fitted
NARROW_SHARES = {1: 1.0, 2: 0.93, 4: 0.87, 8: 0.8, 16: 0.55}  # by widest / written word: fitted
NARROW_READ_SHARE = 0.92  # if long rows are read in narrow words: fitted
SINGLE_SHARE = 0.82  # if single bytes are read and written: fitted
SPREAD_SHARE = 0.7  # if adjacent threads read narrow words of different rows: fitted
IDLE_POWER = 0.3  # of the share of threads that are used if the output has short rows: fitted

# ---- chunks of lines.cu ------------------------------------------------------------------

MOST_LINE_BYTES = 28672  # of a chunk, if rows of smaller ones were less than a sector: chosen
LEAST_ROW_BYTES = 64  # of a row in a chunk: chosen
LONG_ROW = 512  # bytes of a row that is worth gaps in the line: chosen
MOST_BESIDE = 4  # rows that a warp moves at once; more would be partial sectors: chosen
STRETCHES = (1, 2, 4, *range(8, 129, 8))  # of a row in a chunk, to try: chosen
SMALL_IMAGE = 4 * TILE_BYTES  # bytes; a chunk has several smaller images: chosen
TINY_IMAGE = TILE_BYTES // 4  # the same if the rows of images are not multiples of a bank: chosen
MOST_PIXEL = 64  # bytes of a pixel that is read in one piece to select some channels: chosen
MERGE_TIME = 1.06  # time of lines that are written, relative to a copy: fitted
BESIDE_TIME = 1.14  # the same of lines from several rows at once: fitted

# ---- gather.cu ---------------------------------------------------------------------------

TURNS = 4, 8  # accesses in flight per thread: of at least 8 bytes, or of fewer: chosen
LEAST_TURNS = 4  # of a thread along a loop that is nearer in the source than others: chosen
GATHERED_SHARE = 0.9  # the speed if whole lines are read, relative to a copy: fitted
LINE_TIME = 24  # bytes of device memory in the time in which a warp accesses a line: chosen
LEAST_LINES = 5  # accesses in the time of the instructions for an item of each thread: chosen

# ---- runs.cu -----------------------------------------------------------------------------

RUN_WORDS = 4 * THREADS  # words of the output that a block writes: chosen
ALIGNED = 4  # bytes: "gather" moves runs at such addresses in words as wide: fitted
RUN_SHARE = 0.95  # the speed of long runs, relative to a copy: fitted
RUN_LOST = 4.5  # what the speed is less for a run, divided by the bytes of the run: fitted
LONG_RUN = 160  # bytes from which on boxes of "permute" are not faster: fitted

# ---- boxes of permute.cu -----------------------------------------------------------------

MOST_BOX_BYTES = 36 << 10  # of shared memory; a multiprocessor holds six boxes: chosen
MOST_BOX_LOOPS = 6  # of rows and runs: chosen
MOST_BLOCKS = 8  # of a multiprocessor, whose number of threads is limited: GPU
TRIED_BOXES = 8  # whose conflicts are counted: those that touch the fewest sectors: chosen
PITCHES = 8  # distances of rows in shared memory to try: chosen
WRITERS = (8, 16, 32, 64, 128, 256)  # threads that write a run, to try: chosen
SECTORS = 1.05  # sectors of boxes with long rows and runs, relative to a copy: boxes
ROW_LOST = 20  # bytes that each row costs beyond its own: boxes
ROW_CUT = 30  # further bytes if it begins or ends within a sector: boxes
PIPE_SHARE = 0.65  # of the accesses to shared memory that limits the speed: boxes
SMOOTH_MAXIMUM = 4  # exponent of the mean of the demands: the largest one dominates: boxes
BLOCKS_POWER = 0.1  # of the share of MOST_BLOCKS that fit: boxes
# Numbers of instructions.
INSTRUCTIONS_PER_THREAD = 120  # of a thread, besides words and runs: counted
INSTRUCTIONS_PER_WORD_READ = 40  # of a word of a row: counted
INSTRUCTIONS_PER_RUN = 30  # of a run that is written: counted
INSTRUCTIONS_PER_OUTER_LOOP = 7  # of a run, for each loop around it: counted
INSTRUCTIONS_PER_END_ITEM = 40  # of an item before the first or after the last word: counted

# ---- boxes of accumulate.cu --------------------------------------------------------------

MAX_PARTS = 16  # arrays that one launch adds: struct
MAX_AXES = 8  # loops of a sum: struct
COLUMN = 16  # bytes of a column of a line of shared memory, whose columns are permuted: chosen
STRETCH = 128  # bytes that boxes move together along an axis: chosen
LEAST_SUM_ROW = 8  # items along the last axis: 32 lanes with four or more along another: chosen
BOX_BYTES = 16384  # of a box in its largest part, 64 per thread: chosen
SUM_BYTES = 32768  # of the sums of a box, 128 per thread, in registers: chosen
MAX_SUM_TURNS = 8  # words per thread; more, and parameters of 16 parts exceed 4 KB: struct

# ---- tiles of collate.cu -----------------------------------------------------------------

TILE_ITEMS = 4096  # of the output, 16 for each thread: chosen
MOST_LINES = 64  # of a tile: chosen
MOST_POSITIONS = 256  # of a line: chosen
FEW_CHANNELS = 8  # channels of a pixel in a line; more are a line of their own: chosen

# ---- tiles of resize.cu, one for each warp -----------------------------------------------

SUM_THREADS = 128  # of a block: chosen
FEW_SUMS = 64  # channels of a pixel in a line if an axis is resized: chosen
MOST_SUMS = 1856  # of lines that a warp has in shared memory; half of it for float64: chosen
MOST_SUMMED = 8  # channels of a thread: chosen
SUM_LINES = 16, 8  # of a tile: many, if there are MANY_TILES, or few: chosen
MANY_TILES = 4096  # tiles enough for all multiprocessors: chosen
SUM_POSITIONS = 8  # of a line, if the tile has many lines: chosen
STAGE_BYTES = 4096  # of a warp, for items before they are written: chosen
