"""A model of a launch's time on an H200, computed without a GPU. Nothing here was measured.

It puts two things together that are exact. The machine code that NVRTC makes for sm_90 says how
many instructions a thread issues, how many registers it has and what it loads before it uses the
first of it. And one whole block, run on the CPU, says which addresses the threads of each warp
touch at once: banks of shared memory, sectors of device memory.

    share    of a copy's speed that the model leaves: what is slowest of memory, instructions,
             shared memory and sectors written, if enough is under way
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from math import prod

import cuda_shim
import numpy as np
from cuda_moves import planned, planned_sum
from nvrtc import Compiled

from layoutkit.bench.device import device_rows
from layoutkit.kernels.cuda.launch import MAX_PARTS, source
from layoutkit.spec import as_dtype

# Of an H200: multiprocessors, clock (Hz), bytes a second of a copy, read and written.
PROCESSORS = 132
CLOCK = 1.755e9
COPY = 4.3e12
BYTES_PER_CYCLE = COPY / CLOCK / PROCESSORS  # of one multiprocessor: 18.6
WARPS = 64
REGISTERS = 65536
SHARED = 227 << 10
RESERVED = 1 << 10
# Bytes that must be in flight in one multiprocessor: half of the traffic is reads, which take
# 0.9 us, and half of the blocks write meanwhile.
UNDER_WAY = 40_000
SECTOR = 32
BANKS = 32


@dataclass(frozen=True)
class Cost:
    """The time of a launch, in units of the time of a copy of as many bytes."""

    registers: int
    blocks: int  # of one multiprocessor at once
    instructions: int  # of a thread
    under_way: float  # bytes in a multiprocessor
    issue: float
    shared: float  # time of the pipe to shared memory and the first cache
    conflicts: float  # times that an access to shared memory is repeated, the worst instruction
    sectors: float  # touched by stores, over those that hold what is written

    @property
    def share(self):
        """The speed relative to a copy."""
        slowest = max(1.0, self.issue, self.shared, (1 + self.sectors) / 2)
        return min(1.0, self.under_way / UNDER_WAY) / slowest


def cost(launch, out, sources, shifts):
    """Return the Cost of a launch of `cuda_moves.planned`."""
    compiled = Compiled(launch, 90)
    warps = launch.block // 32
    registers = int(re.search(r"Used (\d+) registers", compiled.log)[1])
    shared = int((re.search(r"(\d+) bytes smem", compiled.log) or [0, 0])[1])
    blocks = min(
        WARPS // warps,
        REGISTERS // (-(-registers // 8) * 8 * launch.block),
        SHARED // (shared + RESERVED),
    )
    code = _instructions(Compiled(launch, 90, _straight(launch, len(sources))).listing)
    touched = _traced(launch, out, sources, shifts)
    # A block's share of the work, and what it has under way: at most what it reads.
    read = sum(x.nbytes for x in sources) / launch.grid
    written = out.nbytes / launch.grid
    cycles = (read + written) / BYTES_PER_CYCLE
    lent = min(read, _under_way(code) * launch.block)
    stores = [t for t in touched if t.is_global and t.is_write]
    return Cost(
        registers, blocks, len(code), blocks * lent,
        warps * len(code) / 4 / cycles,
        sum(t.cycles for t in touched) / cycles,
        max((t.repeated for t in touched if not t.is_global), default=1.0),
        sum(t.sectors for t in stores) * SECTOR / max(1, sum(t.nbytes for t in stores)),
    )  # fmt: skip


# ---- machine code ------------------------------------------------------------------------


def whole_only(text):
    """Return the text of a family without the code for ragged edges."""
    return re.sub(r"else\s+(move|Box)<false>.*?\);", "", text, flags=re.DOTALL)


def _straight(launch, sources):
    """Return the text of a family as straight-line code, without the code for ragged edges.

    Of a sum the parts of this one are written one after the other, and it is known along which
    axes they are read.
    """
    text = whole_only(source(launch.family))
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


def _under_way(code):
    """Return the maximum bytes that a thread loads from device memory before it uses any."""
    waited = {}
    most = 0
    for operation, operands in code:
        names = re.findall(r"\bR(\d+)", operands)
        if operation.startswith("LDG") and "CONSTANT" not in operation:
            width = int((re.search(r"\.(\d+)$|\.(\d+)\.", operation) or [0, 32])[1] or 32) // 8
            width = 1 if ".U8" in operation else 2 if ".U16" in operation else max(4, width)
            waited[int(names[0])] = width
            most = max(most, sum(waited.values()))
            continue
        for name in map(int, names):
            for first, width in list(waited.items()):
                if first <= name < first + max(1, width // 4):
                    del waited[first]
    return most


# ---- addresses ---------------------------------------------------------------------------

_MOVED = re.compile(r"(reinterpret_cast<(?:const )?T \*>\()(memory|item)(\)\[i\] =)")
_TRACE = """
#define KEPT __attribute__((section("shim")))
struct Touch { unsigned long long from, address; unsigned thread, bytes, write, unused; };
extern "C" {
KEPT Touch *touches;
KEPT unsigned touched, room, from_block;
}
__attribute__((noinline)) void touch(const void *at, unsigned bytes, unsigned write) {
    unsigned long long from = (unsigned long long)__builtin_return_address(0);
    if (touched < room)
        touches[touched++] = {from, (unsigned long long)at, threadIdx.x, bytes, write, 0};
}
"""


@dataclass
class Touched:
    """The memory accesses of one warp by one instruction."""

    is_global: bool
    is_write: bool
    places: list  # (address, bytes)
    lanes: list  # the number of each one's thread in its warp

    @property
    def nbytes(self):
        return sum(size for _, size in self.places)

    @property
    def sectors(self):
        """The number of sectors of device memory."""
        return len(
            {at // SECTOR for first, size in self.places for at in (first, first + size - 1)}
        )

    @property
    def _ideal(self):
        return max(size for _, size in self.places) / 4

    @property
    def cycles(self):
        """The cycles of the pipe to shared memory and the first cache, 128 bytes each."""
        if self.is_global:
            lines = {at // 128 for at, _ in self.places}
            return max(len(lines), self.nbytes / 128)
        return max(1, self._ideal) * self.repeated

    @property
    def repeated(self):
        """The number of serialized accesses to shared memory due to bank conflicts."""
        size = max(size for _, size in self.places)
        together = max(1, 128 // max(4, size))  # lanes that are served at once
        groups = defaultdict(lambda: defaultdict(set))
        for lane, (at, bytes_) in zip(self.lanes, self.places, strict=True):
            for word in range(at // 4, (at + bytes_ - 1) // 4 + 1):
                groups[lane // together][word % BANKS].add(word)
        worst = [max(map(len, words.values())) for words in groups.values()]
        return sum(worst) / len(worst)


def _traced(launch, out, sources, shifts):
    """Return the memory accesses of the warps of one block, from a run on the CPU."""
    text = whole_only(source(launch.family)).replace("blockIdx.x", "(blockIdx.x + from_block)")
    text = text.replace(
        "reinterpret_cast<T *>(item)[i] = reinterpret_cast<const T *>(memory)[i];",
        "{ touch(memory + i * BYTES, BYTES, 0); "
        "reinterpret_cast<T *>(item)[i] = reinterpret_cast<const T *>(memory)[i]; }",
    ).replace(
        "reinterpret_cast<T *>(memory)[i] = reinterpret_cast<const T *>(item)[i];",
        "{ touch(memory + i * BYTES, BYTES, 1); "
        "reinterpret_cast<T *>(memory)[i] = reinterpret_cast<const T *>(item)[i]; }",
    )
    # What all threads of a warp do, or none, so that it is known who does it together.
    text = text.replace("if (by) high.template read<BYTES>(second)",
                        "high.template read<BYTES>(by ? second : first)")  # fmt: skip
    library = ctypes.CDLL(
        str(cuda_shim.compiled(launch.family, launch.defines, "plain", _TRACE + text))
    )
    fields = [("from", "u8"), ("address", "u8"), ("thread", "u4"), ("bytes", "u4"), ("write", "u8")]
    log = np.zeros(1 << 18, np.dtype(fields))
    ctypes.c_void_p.in_dll(library, "touches").value = log.ctypes.data
    ctypes.c_uint.in_dll(library, "room").value = len(log)
    ctypes.c_uint.in_dll(library, "touched").value = 0
    spans = [np.lib.array_utils.byte_bounds(array) for array in (out, *sources)]
    pointers = [
        a.__array_interface__["data"][0] + s for a, s in zip((out, *sources), shifts, strict=True)
    ]
    constants = np.frombuffer(launch.coefficients or b"\0", np.uint8)
    pointers.insert(1, constants.ctypes.data)
    pointers += [0] * (launch.pointers - len(pointers))
    words = (ctypes.c_uint64 * launch.pointers)(*pointers)
    library.run.restype = ctypes.c_char_p
    # The first block behind the middle that has no edges: others touch nothing here.
    for block in range(launch.grid // 2, launch.grid):
        ctypes.c_uint.in_dll(library, "from_block").value = block
        wrong = library.run(launch.params, words, 1, launch.block, 0, 0, 0)
        assert not wrong, wrong
        touched = ctypes.c_uint.in_dll(library, "touched").value
        if touched:
            break
    log = log[:touched]
    outside = [(low, high) for low, high in spans]
    # Threads of a warp are together where they come from the same place in the code as often.
    warps = defaultdict(list)
    often = defaultdict(int)
    for place, address, thread, size, write in log.tolist():
        often[place, thread] += 1
        warps[thread // 32, place, often[place, thread]].append((thread, address, size, write))
    found = []
    for places in warps.values():
        places.sort()
        first = places[0][1]
        is_global = any(low <= first < high for low, high in outside)
        lanes = [place[0] % 32 for place in places]
        found.append(
            Touched(is_global, bool(places[0][3]), [place[1:3] for place in places], lanes)
        )
    return found


# ---- rows --------------------------------------------------------------------------------


def cost_of(row):
    """Return the launch of a row of the benchmark, and its Cost."""
    if row.kind == "accumulate":
        parts = [(_untouched(row.shape(of), row.dtype), of) for of in row.sources]
        out = _untouched(row.shape(row.target), row.to_dtype)
        launch, out, arrays, shifts = planned_sum(parts, row.target, out)
        return launch, cost(launch, out, arrays, shifts)
    (layout,) = row.sources
    x = _untouched(row.shape(layout), row.dtype)
    out = _untouched(row.shape(row.target), row.to_dtype)
    dtype = as_dtype(row.to_dtype)
    _, [(launch, _, shifts)] = planned(x, row.pattern, out, dtype=dtype, **row.formula)
    return launch, cost(launch, out, [x], shifts)


def _untouched(shape, dtype):
    """Return memory that is allocated lazily by the system and aligned to 256 bytes."""
    size = prod(shape) * as_dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    return memory[-memory.ctypes.data % 256 :][:size].view(as_dtype(dtype)).reshape(shape)


def main():
    """Print the Costs of the GPU benchmark's rows of the named kinds."""
    kinds = sys.argv[1:] or ("move", "fused", "accumulate")
    for row in device_rows():
        if row.kind in kinds and row.group != "huge":
            launch, found = cost_of(row)
            print(f"{found.share:4.2f} of {row.at_least}  {row.name}: {launch.family}, {found}")


if __name__ == "__main__":
    main()
