"""A model of a launch's time on an H100, computed without a GPU.

Clock and copy speed are those of an H100 that ran the benchmark (2026-11-26), and so are the costs
of parts of sectors and of pages; docs/gpu.md compares the predictions with its measurements.

The machine code that NVRTC makes for sm_90 gives the registers of a thread, the rounds of loads
that it waits for, and its instructions. Blocks that run on the CPU, whole and ragged ones as the
kernel takes them, give the addresses that the threads of each warp touch at once: accesses, banks
of shared memory, sectors of device memory.

The blocks of a multiprocessor take turns at three resources: memory, the issue of instructions, and
the pipe to shared memory and the first cache. `share` is the throughput of that closed queueing
network (mean value analysis), relative to a copy of as many bytes.

The kernels that collate have loops whose turns depend on the samples, and `permute` has loops whose
turns depend on the box. Their machine code is executed instruction by instruction (`sass`), which
counts what warps issue, loops and branches included. A round of loads of sectors that the block has
loaded before costs `HIT` cycles.

What is simplified: sectors that are stored count once for each warp access, and several times if a
block stores a part of them; those that are loaded count once in all traced blocks (the first cache
and the L2 cache hold them for neighbours). Pages of device memory count once for each block. The
rounds of loads are those of blocks without ragged edges, and ragged blocks issue as many more
instructions than whole ones as they have more accesses. Loops over the axes of a nest (`gather`)
are counted for one turn. The cut between shared memory and cache is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod

import cuda_shim
import numpy as np
from any_shapes import coverage_rows
from cuda_moves import planned, planned_collate, planned_in_place, planned_padded, planned_sum
from nvrtc import Compiled
from sass import Block, Code

from layoutkit.bench.device import device_rows
from layoutkit.kernels.cuda.boxes import RESERVED_BYTES, SHARED_BYTES
from layoutkit.kernels.cuda.launch import MAX_PARTS, source
from layoutkit.kernels.cuda.tiling import LINE, SECTOR, pack_loops
from layoutkit.spec import as_dtype

# Of an H100: multiprocessors, clock (Hz), bytes a second of a copy, read and written.
PROCESSORS = 132
CLOCK = 1.98e9
COPY = 3.0e12
BYTES_PER_CYCLE = COPY / CLOCK / PROCESSORS  # of one multiprocessor: 11.5
PARTIAL = 3.4  # more sectors' time of a sector of which a block stores only a part
# A block that accesses a page of device memory takes the time of these more bytes: fitted to the
# measurements of 119 kernels, of conversions and of sums.
PAGE = 1024
PAGE_READ, PAGE_WRITTEN = 12, 29
WARPS = 64
REGISTERS = 65536
SCHEDULERS = 4  # each issues one instruction a cycle
EXECUTED = {"collate", "resize", "permute"}  # families with loops that are not one turn
START, LATENCY = 700, 800  # cycles of a block: its start and end, and each round of loads
HIT = 40  # cycles of a round of loads that the first cache serves
BANKS = 32


@dataclass(frozen=True)
class Cost:
    """The demands of a launch, in units of the time of a copy of as many bytes."""

    registers: int
    blocks: int  # of one multiprocessor at once
    parts: int  # of a block, which wait for memory on their own
    rounds: int  # of loads that each of them waits for
    cycles: float  # of one multiprocessor, for a copy of the bytes of a block
    memory: float  # sectors that are read and written, over the bytes of a copy
    issue: float
    pipe: float  # to shared memory and the first cache
    conflicts: float  # times that an access to shared memory is repeated, on average
    ragged: float  # accesses of a block, over those of a whole block
    hits: float = 0  # rounds of loads that the first cache serves

    def __str__(self):
        return (
            f"memory {self.memory:.2f}, issue {self.issue:.2f}, pipe {self.pipe:.2f}, "
            f"conflicts {self.conflicts:.2f}, ragged {self.ragged:.2f}, {self.blocks} blocks of "
            f"{self.parts} parts, {self.rounds:.0f} rounds, {self.hits:.0f} of the cache, "
            f"{self.registers} registers"
        )

    @property
    def share(self):
        """The speed relative to a copy."""
        idle = (START + LATENCY * self.rounds + HIT * self.hits) / (self.cycles / self.parts)
        customers = self.blocks * self.parts
        return min(1.0, throughput(customers, idle, (self.memory, self.issue, self.pipe)))


def throughput(customers, idle, demands):
    """Return how many customers a closed queueing network serves per unit of time.

    Exact mean value analysis: an arriving customer finds at each resource the mean queue of a
    network with one customer less.
    """
    queues = [0.0] * len(demands)
    for number in range(1, customers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        served = number / (idle + sum(times))
        queues = [served * time for time in times]
    return served


def cost(launch, out, sources, shifts, read=None):
    """Return the Cost of a launch of `cuda_moves.planned`; `read`: bytes, if not all sources."""
    read = sum(x.nbytes for x in sources) if read is None else read
    if launch.family in EXECUTED:
        return cost_of_executed(launch, out, sources, shifts, read)
    kernel = replace(launch, params=b"", grid=1, coefficients=b"")
    registers, shared, code = _compiled(kernel, _straight(launch, len(sources)))
    warps = launch.block // 32
    in_code = warps * sum(bool(re.match("LDG|STG|LDS|STS", operation)) for operation, _ in code)
    chosen = _chosen(launch)
    log, is_global = _traced(launch, out, sources, shifts, chosen)
    work = _work(log, is_global, _accesses(log))
    # Instructions of ragged blocks are to those of a whole one as their accesses.
    ragged = work.accesses / len(chosen) / min(in_code, work.whole)
    issued = ragged * len(chosen) * warps * len(code)
    rounds, parts = rounds_of(code, warps)
    blocks = resident_blocks(registers, shared, launch.block)
    demands = _demands(work, issued, len(chosen), 1 + read / out.nbytes)
    return Cost(registers, blocks, parts, rounds, *demands, float(work.conflicts), float(ragged))


def cost_of_executed(launch, out, sources, shifts, read):
    """Return the Cost of a launch by executing the machine code of some blocks."""
    compiled = Compiled(launch, 90)
    blocks = executed(compiled, launch, out, sources, shifts, _chosen(launch))
    work = _work(*_log_of(blocks))
    warps = launch.block // 32
    _, parts = rounds_of(blocks[0].instructions(0), warps)
    rounds, hits = np.mean([rounds_of_block(block, warps) for block in blocks], 0).round().tolist()
    registers, shared = resources(compiled.log)
    issued = sum(block.issued for block in blocks)
    demands = _demands(work, issued, len(blocks), 1 + read / out.nbytes)
    resident = resident_blocks(registers, shared, launch.block)
    return Cost(registers, resident, parts, rounds, *demands, float(work.conflicts), 1.0, hits)


def _demands(work, issued, blocks, bytes_per_stored):
    """Return the cycles of a block's copy; memory, issue and pipe in units of that copy."""
    # Every byte of the output is stored once, so stores tell the share of the work.
    traffic = bytes_per_stored * work.stored
    cycles = traffic / BYTES_PER_CYCLE
    numbers = (
        cycles / blocks,
        work.sectors * SECTOR / traffic,
        issued / SCHEDULERS / cycles,
        work.pipe / cycles,
    )
    return [float(number) for number in numbers]


def resident_blocks(registers, shared, threads):
    """Return the blocks that one multiprocessor has at once."""
    return min(
        WARPS // (threads // 32),
        REGISTERS // (-(-registers // 8) * 8 * threads),
        SHARED_BYTES // (shared + RESERVED_BYTES),
    )


def resources(log):
    """Return the registers and the bytes of shared memory that the assembler says."""
    registers = int(re.search(r"Used (\d+) registers", log)[1])
    return registers, int((re.search(r"(\d+) bytes smem", log) or [0, 0])[1])


# ---- machine code ------------------------------------------------------------------------


@cache
def _compiled(launch, straight):
    """Return the registers and the shared memory of a kernel, and its straight-line code."""
    code = _instructions(Compiled(launch, 90, straight).listing)
    return *resources(Compiled(launch, 90).log), code


def whole_only(text):
    """Return the text of a family without the code for ragged edges."""
    text = re.sub(r"else\s+(move|Box)<false>.*?\);", "", text, flags=re.DOTALL)
    return re.sub(r"\n +copy_bytes\(.*?\);", ";", text, flags=re.DOTALL)


def _straight(launch, sources):
    """Return the text of a family as straight-line code, without the code for ragged edges.

    Of a sum the parts of this one are written one after the other, and it is known along which
    axes they are read.
    """
    text = whole_only(source(launch.family))
    if launch.family == "runs":  # the words of a thread
        text = re.sub(r"#pragma unroll 1(?=\n    for \(int turn)", "#pragma unroll", text)
    if launch.family == "accumulate":
        axes = ", ".join(map(str, _axes_of(launch, sources)))
        for before, after in (
            ("struct Spot {", f"constexpr int KNOWN[] = {{{axes}}};\nstruct Spot {{"),
            ("(int)params.parts", str(sources)),
            ("#pragma unroll 1", "#pragma unroll"),
            ("params.walk[array].axis", "(array == OUTPUT ? LAST : KNOWN[array])"),
            ("params.walk[part].axis == LAST", "KNOWN[part] == LAST"),
        ):
            assert before in text
            text = text.replace(before, after)
    return text


def _axes_of(launch, sources):
    """Return the axes along which a launch reads the parts of a sum (last in its parameters)."""
    defined = {name: int(value) for name, value in launch.defines if value.isdigit()}
    words = defined["PER_WORD"]
    turns = defined["PLACES"] // (defined["THREADS"] * words)
    size = -(-(16 + 12 * turns + 4 * words) // 8) * 2
    walks = np.frombuffer(launch.params, np.uint32)[-(MAX_PARTS + 1) * size :].reshape(-1, size)
    return walks[:sources, 1].tolist()


def _instructions(listing):
    """Return (operation, destination registers, source registers) up to the kernel's last EXIT."""
    found = []
    for line in listing.splitlines():
        match = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", line)
        if match:
            found.append((match[1], match[2]))
    last = max(i for i, (operation, _) in enumerate(found) if operation.startswith("EXIT"))
    return [one for one in found[: last + 1] if not one[0].startswith("NOP")]


def rounds_of(code, warps):
    """Return how often a thread waits for loads, and the parts of a block that wait alone.

    All loads that were issued before a wait arrive in one round. Without barriers each warp waits
    on its own. If loads are pending at a barrier, a block has two parts: one loads, one computes.
    """
    # The registers of loads that are not used yet, before and after a wait.
    flying, arrived = [], []
    barriers = []
    rounds = 0
    for operation, operands in code:
        names = {int(name) for name in re.findall(r"\bR(\d+)", operands)}
        if operation.startswith("LDG") and "CONSTANT" not in operation:
            width = int((re.search(r"\.(64|128)\b", operation) or [0, 32])[1]) // 32
            first = int(re.search(r"\bR(\d+)", operands)[1])
            flying.append(range(first, first + width))
        elif operation.startswith("BAR"):
            barriers.append(bool(flying or arrived))
        else:
            if any(names.intersection(load) for load in flying):
                flying, arrived = [], flying + arrived
                rounds += 1
            arrived = [load for load in arrived if not names.intersection(load)]
    return rounds, 2 if any(barriers) else 1 if barriers else warps


# ---- addresses ---------------------------------------------------------------------------

MOST_BLOCKS, LEAST_BLOCKS = 64, 16  # that are traced
MOST_BOXES = 12  # of a sum, whose threads do more
LOOP_WORDS = 10  # of 32 bits, of a `Loop`, whose count is the first
MOST_TOUCHES = 1 << 22  # of one trace
_FIELDS = [("place", "u8"), ("address", "u8"), ("thread", "u4"), ("block", "u4"), ("turn", "u4"),
           ("bytes", "u2"), ("write", "u2")]  # fmt: skip
_TRACE = """
#define KEPT __attribute__((section("shim")))
struct Touch {
    unsigned long long place, address;
    unsigned thread, block, turn;
    unsigned short bytes, write;
};
extern "C" {
KEPT Touch *touches;
KEPT unsigned touched, room, block;
}
KEPT unsigned outer_turn[1024], inner_turn[1024];
static void mark_first(unsigned turn) { outer_turn[threadIdx.x] = turn; }
static void mark_turn(unsigned turn) { inner_turn[threadIdx.x] = turn; }
__attribute__((noinline)) void touch(const void *at, unsigned bytes, unsigned write) {
    const unsigned turn = outer_turn[threadIdx.x] * 1024 + inner_turn[threadIdx.x];
    if (touched < room)
        touches[touched++] = {(unsigned long long)__builtin_return_address(0),
                              (unsigned long long)at, threadIdx.x, block, turn,
                              (unsigned short)bytes, (unsigned short)write};
}
"""
_HOOKS = (
    (r"reinterpret_cast<const (\w+) \*>\(memory\)\[i\]",
     r"(touch(memory + i * sizeof(\1), sizeof(\1), 0), \g<0>)"),
    (r"reinterpret_cast<(\w+) \*>\(memory\)\[i\] =",
     r"touch(memory + i * sizeof(\1), sizeof(\1), 1), \g<0>"),
    (r"\*reinterpret_cast<const (\w+) \*>\((src \+ i \* step)\)",
     r"(touch(\2, sizeof(\1), 0), \g<0>)"),
    # Turns tell which accesses of threads that skip some of them belong together.
    (r"(for \(int (first|turn) = \w+; )", r"\1mark_\2(\2), "),
    # A second word is read by all threads of a warp or by none.
    (r"if \(by\) (high\.template read<BYTES>)\(second\)", r"\1(by ? second : first)"),
    (r"\bblockIdx\.x\b", "block"),
)  # fmt: skip


def _chosen(launch):
    """Return the blocks to trace: some turns of the outer loops, or blocks spread over one."""
    turn = launch.grid
    # Blocks next to each other read the same sectors.
    together = {"collate": MOST_BOXES, "resize": MOST_BOXES, "runs": MOST_BLOCKS}.get(launch.family)
    if together:
        return list(range(turn // 2, min(turn, turn // 2 + together)))
    if launch.family != "accumulate":
        turn //= _outer_iterations(launch)
    begin = launch.grid // turn // 2 * turn
    most = MOST_BLOCKS if launch.family != "accumulate" else MOST_BOXES
    if turn > most:
        # Steps of the golden ratio meet no period of the tiles.
        golden = (5**0.5 - 1) / 2
        return sorted({begin + int(i * golden % 1 * turn) for i in range(most)})
    turns = -(-LEAST_BLOCKS // turn)
    return list(range(begin, min(launch.grid, begin + turns * turn)))


def _outer_iterations(launch):
    """Return the iterations of the `Loops outer` at the beginning of a launch's parameters."""
    return prod(
        np.frombuffer(launch.params[8 : len(pack_loops([]))], np.uint32)[::LOOP_WORDS].tolist()
    )


@cache
def _log():
    return np.empty(MOST_TOUCHES, np.dtype(_FIELDS))


def _traced(launch, out, sources, shifts, chosen):
    """Return the memory accesses of blocks, from a run on the CPU, and which are global."""
    text = source(launch.family)
    for pattern, replacement in _HOOKS:
        text = re.sub(pattern, replacement, text)
    path = cuda_shim.compiled(launch.family, launch.defines, "plain", _TRACE + text)
    library = ctypes.CDLL(str(path))
    log = _log()
    ctypes.c_void_p.in_dll(library, "touches").value = log.ctypes.data
    ctypes.c_uint.in_dll(library, "room").value = len(log)
    touched, block = (ctypes.c_uint.in_dll(library, name) for name in ("touched", "block"))
    touched.value = 0
    constants = np.frombuffer(launch.coefficients or b"\0", np.uint8)
    pointers = _pointers(launch, (out, *sources), shifts, constants)
    words = (ctypes.c_uint64 * launch.pointers)(*pointers)
    library.run.restype = ctypes.c_char_p
    for number in chosen:
        block.value = number
        wrong = library.run(launch.params, words, 1, launch.block, 0, 0, 0)
        assert not wrong, wrong
    assert touched.value < len(log), "more touches than there is room for"
    found = log[: touched.value]
    is_global = np.zeros(len(found), bool)
    for low, high in map(np.lib.array_utils.byte_bounds, (out, *sources)):
        is_global |= (found["address"] >= low) & (found["address"] < high)
    return found, is_global


def _pointers(launch, arrays, shifts, constants):
    """Return the words of a launch's `Pointers`."""
    pointers = [a.__array_interface__["data"][0] + s for a, s in zip(arrays, shifts, strict=True)]
    pointers.insert(1, constants.ctypes.data)
    return pointers + [0] * (launch.pointers - len(pointers))


# ---- machine code that is executed -------------------------------------------------------


def executed(compiled, launch, out, sources, shifts, chosen):
    """Return blocks of a launch whose machine code was executed; they have written `out`."""
    _, shared = resources(compiled.log)
    constants = np.frombuffer(launch.coefficients or b"\0", np.uint8)
    regions = [(constants.ctypes.data, constants)]
    for low, high in map(np.lib.array_utils.byte_bounds, (out, *sources)):
        memory = (ctypes.c_uint8 * (high - low)).from_address(low)
        regions.append((low, np.ctypeslib.as_array(memory)))
    pointers = _pointers(launch, (out, *sources), shifts, constants)
    arguments = launch.params + np.array(pointers, np.uint64).tobytes()
    code = Code(compiled.listing)
    return [
        Block(code, launch.block, number, arguments, shared, regions).run() for number in chosen
    ]


def _log_of(blocks):
    """Return accesses of threads as `_traced` does, and the number of the warp's access of each."""
    accesses = [(number, one) for number, block in enumerate(blocks) for one in block.accesses]
    log = np.empty(sum(len(one.threads) for _, one in accesses), np.dtype(_FIELDS))
    is_global = np.empty(len(log), bool)
    access = np.empty(len(log), np.int64)
    begin = 0
    for number, (block, one) in enumerate(accesses):
        part = slice(begin, begin + len(one.threads))
        log["thread"][part], log["address"][part] = one.threads, one.addresses
        log["block"][part], log["bytes"][part], log["write"][part] = block, one.size, one.is_write
        is_global[part] = one.is_global
        access[part] = number * 32 + one.threads // 32
        begin = part.stop
    return log, is_global, np.unique(access, return_inverse=True)[1]


def rounds_of_block(block, warps):
    """Return the rounds of loads of a block, and those that the first cache serves.

    Between barriers they are those of the warp with the most.
    """
    cached = _cached_loads(block)
    every = _most_rounds(block, warps, ())
    missed = _most_rounds(block, warps, cached)
    return missed, every - missed


def _cached_loads(block):
    """Return the (place in the path, warp) of loads of sectors that the block has loaded before."""
    seen, cached = set(), set()
    for one in block.accesses:
        if not one.is_global:
            continue
        for warp in np.unique(one.threads // 32).tolist():
            addresses = one.addresses[one.threads // 32 == warp]
            ends = addresses // SECTOR, (addresses + one.size - 1) // SECTOR
            sectors = {*np.concatenate(ends).tolist()}
            if sectors <= seen and not one.is_write:
                cached.add((one.step, warp))
            seen |= sectors
    return cached


def _most_rounds(block, warps, cached):
    segments = [_segments(block.instructions(warp, cached)) for warp in range(warps)]
    return sum(
        max(rounds_of(one, 1)[0] for one in beside) for beside in zip(*segments, strict=True)
    )


def _segments(code):
    """Split instructions after each barrier."""
    ends = [i + 1 for i, (operation, _) in enumerate(code) if operation.startswith("BAR")]
    return [code[i:j] for i, j in zip([0, *ends], [*ends, len(code)], strict=True)]


@dataclass(frozen=True)
class Work:
    """The sums over traced blocks."""

    accesses: int  # of warps to memory
    whole: int  # accesses of the block with the fewest, of those that store the most
    pipe: float  # cycles of the pipe to shared memory and the first cache
    sectors: float  # of device memory, and the time of others, in sectors
    stored: int  # bytes
    conflicts: float


def _work(log, is_global, access):
    """Return the Work of accesses of threads; `access`: the number of the warp's access of each."""
    size = log["bytes"].astype(np.int64)
    address = log["address"].astype(np.int64)
    stores = is_global & (log["write"] == 1)
    loads = is_global & (log["write"] == 0)
    global_bytes = np.bincount(access[is_global], size[is_global])
    lines = _distinct(access[is_global], address[is_global] // LINE, len(global_bytes))
    waves, groups = wavefronts(*(x[~is_global] for x in (access, log["thread"], address, size)))
    blocks = np.empty(access.max() + 1, np.int64)
    blocks[access] = np.unique(log["block"], return_inverse=True)[1]
    accesses = np.bincount(blocks)
    stored = np.bincount(blocks[access[stores]], size[stores], len(accesses))
    written = _distinct(access[stores], address[stores] // SECTOR).sum()
    partial = _partial(blocks[access[stores]], address[stores] // SECTOR, size[stores])
    read = len(np.unique(address[loads] // SECTOR))
    block = blocks[access]
    pages = [
        _distinct(block[x], address[x] // PAGE, blocks.max() + 1).sum() for x in (loads, stores)
    ]
    opened = (PAGE_READ * pages[0] + PAGE_WRITTEN * pages[1]) / SECTOR
    return Work(
        len(blocks),
        accesses[stored == stored.max()].min(),
        np.maximum(lines, global_bytes / LINE).sum() + waves,
        written + read + PARTIAL * partial + opened,
        int(size[stores].sum()),
        waves / groups if groups else 1.0,
    )


def _accesses(log):
    """Return for each access of a thread the number of its warp's access.

    Threads of a warp are together at a place in the code in the same turn of its loops, or, in
    loops of their own, as often.
    """
    _, place = np.unique(log["place"], return_inverse=True)
    one = np.unique(log["block"], return_inverse=True)[1]
    for more, room in ((log["thread"], 1024), (place, 1024), (log["turn"], 1 << 20)):
        assert more.max(initial=0) < room
        one = one * room + more
    order = np.argsort(one, kind="stable")
    ordered = one[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    often = np.empty(len(one), np.int64)
    often[order] = np.arange(len(one)) - np.repeat(first, np.diff(first, append=len(one)))
    assert often.max(initial=0) < 4096
    thread = 1 << 30  # places and turns
    warp = one // thread // 32 * thread + one % thread
    return np.unique(warp * 4096 + often, return_inverse=True)[1]


def _partial(block, sector, size):
    """Return the number of sectors of which a block stores only a part."""
    if not len(block):
        return 0
    near = sector - sector.min()
    _, part = np.unique(block * (int(near.max()) + 1) + near, return_inverse=True)
    return int((np.bincount(part, size) < SECTOR).sum())


def _distinct(access, places, length=0):
    """Return the number of distinct places of each access."""
    if not len(access):
        return np.zeros(length)
    near = places - places.min()
    room = int(near.max()) + 1
    return np.bincount(np.unique(access * room + near) // room, minlength=length)


def wavefronts(access, thread, address, size):
    """Return the cycles of accesses to shared memory, and what they would be without conflicts.

    128 bytes of threads next to each other are served at once, if they lie in different banks.
    """
    if not len(access):
        return 0, 0
    words = np.maximum(1, size // 4)
    group = np.repeat(access * 4 + thread % 32 // (32 // words), words)
    word = np.repeat(address // 4 - (np.cumsum(words) - words), words) + np.arange(words.sum())
    word -= word.min() // BANKS * BANKS
    distinct = np.unique(group << 20 | word % BANKS << 15 | word // BANKS)
    banks, times = np.unique(distinct >> 15, return_counts=True)
    groups, begin = np.unique(banks >> 5, return_index=True)
    return int(np.maximum.reduceat(times, begin).sum()), len(groups)


# ---- rows --------------------------------------------------------------------------------

KINDS = "move", "fused", "accumulate"


PHOTO = 375, 500, 3
WINDOWS = [
    (f"hwc->{to}", dtype, PHOTO, 224, {})
    for to, dtype in product(("bchw", "bhwc", "chwb"), ("float32", "bfloat16", "uint8"))
]
WINDOWS += [("hwc->bchw", "float32", (375, 500, 4), 224, {"channels": (0, 1, 2)})]
BILINEAR, BICUBIC = {"resize": "bilinear"}, {"resize": "bicubic"}
BGR = {"channels": (2, 1, 0)}
RESIZES = [
    ("hwc->bchw", "float32", PHOTO, 224, BILINEAR), ("hwc->bchw", "bfloat16", PHOTO, 224, BILINEAR),
    ("hwc->bchw", "uint8", PHOTO, 224, BILINEAR), ("hwc->bhwc", "uint8", PHOTO, 224, BILINEAR),
    ("hwc->chwb", "float32", PHOTO, 224, BILINEAR),
    ("hwc->bchw", "float32", (1080, 1920, 3), 224, BILINEAR),
    ("hwc->bchw", "float32", (224, 224, 3), 384, BICUBIC),
    ("hwc->bhwc", "uint8", (224, 224, 3), 384, BILINEAR),
    ("hwc->bchw", "float32", PHOTO, 224, {**BILINEAR, **BGR}),
]  # fmt: skip


def cost_of_windows(pattern, dtype, shape, size, options, count=64):
    """Return the Cost of collating windows of uint8 images, normalized unless they stay so.

    They are centers, or resized images, of `size` by `size` pixels.
    """
    samples = [np.zeros(shape, np.uint8)] * count
    formula = {} if dtype == "uint8" else {"scale": 1 / 255, "mean": [1, 2, 3], "std": [4, 5, 6]}
    keywords = {"h": size, "w": size, "dtype": as_dtype(dtype), **formula, **options}
    planned_launch = planned_collate(samples, pattern, **keywords)
    read = count * (prod(shape) if "resize" in options else size * size * shape[-1])
    return cost(*planned_launch, read=read)


def planned_row(row):
    """Return the launch of a row of the benchmark, its output, its sources and their shifts."""
    sources = [_untouched(row.shape(of), row.dtype) for of in row.sources]
    out = _untouched(row.result_shape, row.to_dtype)
    if row.kind == "accumulate":
        return planned_sum(list(zip(sources, row.sources, strict=True)), row.target, out)
    (x,) = sources
    if row.kind == "collate":
        samples = [*np.moveaxis(x, row.sources[0].index("b"), 0)]
        pattern = row.pattern.replace("b", "", 1)
        return planned_in_place(x, samples, pattern, out, **row.keywords)
    _, [(launch, _, shifts)] = planned(x, row.pattern, out, **row.keywords)
    return launch, out, [x], shifts


def cost_of(row):
    """Return the launch of a row of the benchmark, and its Cost."""
    planned_launch = planned_row(row)
    read = row.bytes_read if row.kind == "collate" else None
    return planned_launch[0], cost(*planned_launch, read=read)


def costs_of_padded(row):
    """Yield the launches of a row with `pad_to=`, of x and of each border, and their Costs."""
    x = _untouched(row.shape(row.sources[0]), row.dtype)
    out = _untouched(row.result_shape, row.to_dtype)
    for launch, *rest in planned_padded(x, row.pattern, out, **row.keywords):
        read = x.nbytes if rest[1][0] is x else 0  # the fill values stay in the cache
        yield launch, cost(launch, *rest, read=read)


def costs_of_options(row):
    """Yield the launches of a row with `channels=`, `clip=` or `pad_to=`, and their Costs."""
    if row.group == "pad":
        yield from costs_of_padded(row)
    else:
        yield cost_of(row)


def _untouched(shape, dtype):
    """Return memory that is allocated lazily by the system and aligned to 256 bytes."""
    size = prod(shape) * as_dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    return memory[-memory.ctypes.data % 256 :][:size].view(as_dtype(dtype)).reshape(shape)


def main():
    """Print the shares of rows, the lowest first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose names match")
    parser.add_argument("--random", type=int, metavar="N", help="N rows of any shape instead")
    parser.add_argument("--seed", type=int, default=0, help="of the random rows")
    parser.add_argument("--options", action="store_true", help="padding, channels, bounds instead")
    parser.add_argument("--windows", action="store_true", help="collated windows instead")
    parser.add_argument("--resize", action="store_true", help="resized images instead")
    options = parser.parse_args()
    if options.windows or options.resize:
        for row in RESIZES if options.resize else WINDOWS:
            pattern, dtype, shape, size, keywords = row
            how = keywords.get("resize", "cropped")
            priced = cost_of_windows(*row)
            print(f"{priced.share:4.2f}  {pattern}, {dtype}, {shape} to {size}, {how}: {priced}")
        return
    if options.options:
        for row in device_rows():
            for launch, priced in costs_of_options(row) if row.kind == "options" else ():
                print(f"{priced.share:4.2f}  {row.name}: {launch.family}, {priced}")
        return
    rows = [row for row in device_rows() if row.kind in KINDS and row.group != "huge"]
    if options.random:
        rows = coverage_rows(options.random, options.seed)
    found = [(*cost_of(row), row) for row in rows if re.search(options.only, row.name)]
    for launch, priced, row in sorted(found, key=lambda one: one[1].share):
        print(f"{priced.share:4.2f} of {row.at_least}  {row.name}: {launch.family}, {priced}")


if __name__ == "__main__":
    main()
