"""Intrinsics for vector and memory instructions that Numba does not provide.

Addresses are `uintp` and every load or store states its own alignment: 1 unless the caller
has proved more, since arrays may be unaligned and an aligned instruction on an unaligned
address crashes the process. Vectors are built from 16-byte lanes. The same IR becomes AVX-512,
AVX2, SSE or NEON: only the number of lanes, a literal, differs.

A streaming (non-temporal) store writes a full aligned vector past the caches. `fence()` must follow
before another thread is notified of the data.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .params import LANE

I64 = ir.IntType(64)
# Registers of 16 bytes that a part of a tile is moved in on AArch64, which has 32.
PART = 16


def address(b: Any, base: Any, offset: int, type_: Any) -> Any:
    """Return a pointer to `type_` at `base + offset` bytes."""
    moved = b.add(base, ir.Constant(I64, offset)) if offset else base
    return b.inttoptr(moved, type_.as_pointer())


def vload(b: Any, base: Any, offset: int, type_: Any, align: int = 1) -> Any:
    value = b.load(address(b, base, offset, type_))
    value.align = align
    return value


def nbytes(vector: Any) -> int:
    floats = {ir.HalfType: 2, ir.FloatType: 4, ir.DoubleType: 8}
    item = floats.get(type(vector.element)) or vector.element.width // 8
    return int(vector.count * item)


def is_for_x86(b: Any) -> bool:
    return "x86" in b.module.triple


def vstore(b: Any, value: Any, base: Any, offset: int = 0, streaming: int = 0) -> None:
    """Store a vector; `streaming`: past the caches, at an address that must be aligned.

    AArch64 streams pairs of registers only, and would divide a single one into halves.
    """
    store = b.store(value, address(b, base, offset, value.type))
    store.align = nbytes(value.type) if streaming else 1
    if streaming and (is_for_x86(b) or nbytes(value.type) > LANE):
        store.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


def prefetch(b: Any, base: Any, offset: int, level: int = 1) -> None:
    """Prefetch the line of an address into the L1 or L2 cache; an invalid address is ignored."""
    byte = ir.IntType(8)
    word = ir.IntType(32)
    read, locality, data = word(0), word(4 - level), word(1)
    name = "llvm.prefetch.p0"
    function = b.module.globals.get(name)
    if function is None:
        arguments = [byte.as_pointer(), word, word, word]
        function = ir.Function(b.module, ir.FunctionType(ir.VoidType(), arguments), name)
    b.call(function, [address(b, base, offset, byte), read, locality, data])


def shuffle(b: Any, x: Any, y: Any, mask: list[int]) -> Any:
    constant = ir.Constant(ir.VectorType(ir.IntType(32), len(mask)), mask)
    return b.shuffle_vector(x, y, constant)


def undef_like(x: Any) -> Any:
    return ir.Constant(x.type, ir.Undefined)


def concat(b: Any, parts: list[Any]) -> Any:
    """Concatenate vectors of one type; their number must be a power of two."""
    while len(parts) > 1:
        mask = list(range(2 * parts[0].type.count))
        parts = [shuffle(b, x, y, mask) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


@intrinsic
def i64_at(typingctx: Any, base: Any, index: Any) -> Any:
    """Load the index-th 64-bit word from address `base`."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        pointer = b.add(args[0], b.shl(args[1], ir.Constant(I64, 3)))
        return vload(b, pointer, 0, I64, 8)

    return types.intp(types.uintp, types.intp), codegen


@intrinsic(prefer_literal=True)
def stack(typingctx: Any, nbytes: Any) -> Any:
    """Allocate `nbytes` (a literal) on the kernel's stack, 64-byte aligned; return the address."""
    size = nbytes.literal_value

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        with b.goto_entry_block():  # Numba's own function would zero the memory
            block = b.alloca(ir.ArrayType(ir.IntType(8), size))
        block.align = 64
        return b.ptrtoint(block, I64)

    return types.uintp(nbytes), codegen


@intrinsic
def i64_put(typingctx: Any, base: Any, index: Any, value: Any) -> Any:
    """Write `value` to the index-th 64-bit word from address `base`."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        pointer = b.add(args[0], b.shl(args[1], ir.Constant(I64, 3)))
        b.store(args[2], address(b, pointer, 0, I64)).align = 8
        return context.get_dummy_value()

    return types.void(types.uintp, types.intp, types.intp), codegen


@intrinsic
def fence(typingctx: Any) -> Any:
    """Make earlier streaming stores visible before later stores."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if is_for_x86(b):
            name = "llvm.x86.sse.sfence"
            b.call(b.module.declare_intrinsic(name, (), ir.FunctionType(ir.VoidType(), [])), [])
        else:
            b.fence("release")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic(prefer_literal=True)
def move_item(typingctx: Any, src: Any, dst: Any, itemsize: Any) -> Any:
    """Copy one item of `itemsize` (a literal: 1, 2, 4, 8, 16) bytes."""
    type_ = ir.IntType(8 * itemsize.literal_value)

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(vload(b, args[0], 0, type_), address(b, args[1], 0, type_)).align = 1
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, itemsize), codegen


@intrinsic(prefer_literal=True)
def move_vector(typingctx: Any, src: Any, dst: Any, nbytes: Any, streaming: Any) -> Any:
    """Copy `nbytes` (a literal, 16 to 64) from `src` to `dst`; `streaming`: past the caches."""
    type_ = ir.VectorType(ir.IntType(8), nbytes.literal_value)
    flag = streaming.literal_value

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        vstore(b, vload(b, args[0], 0, type_), args[1], 0, flag)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp, nbytes, streaming), codegen


def lane_type(itemsize: int, lanes: int) -> Any:
    """Return the type of a vector of `lanes` lanes; 16-byte items are pairs of 64-bit words."""
    word = min(itemsize, 8)
    return ir.VectorType(ir.IntType(8 * word), lanes * LANE // word)


def unpack(b: Any, x: Any, y: Any, per_lane: int, high: int) -> Any:
    """Interleave the low (or high) halves of each lane of x and y."""
    n = x.type.count
    half = per_lane // 2
    mask = []
    for lane in range(0, n, per_lane):
        for i in range(half):
            mask += [lane + high * half + i, n + lane + high * half + i]
    return shuffle(b, x, y, mask)


def transpose_lanes(b: Any, rows: list[Any]) -> list[Any]:
    """Transpose the k x k square in every lane of k vectors: log2(k) rounds of unpacking.

    One round interleaves row i and row i + k/2: items ab.. and cd.. become acbd... After log2(k)
    rounds the item at (row i, column j) has moved to (row j, column i).
    """
    k = len(rows)
    for _ in range(k.bit_length() - 1):
        pairs = [(rows[i], rows[i + k // 2]) for i in range(k // 2)]
        rows = [unpack(b, x, y, k, high) for x, y in pairs for high in (0, 1)]
    return rows


@intrinsic(prefer_literal=True)
def prefetch_line(typingctx: Any, base: Any, level: Any) -> Any:
    """Prefetch a line into the cache of `level` (1 or 2); an invalid address is ignored."""
    number = level.literal_value

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        prefetch(b, args[0], 0, number)
        return context.get_dummy_value()

    return types.void(types.uintp, level), codegen


def add_floats(b: Any, value: Any, base: Any, offset: int, size: int) -> Any:
    """Return the sum of a vector and the vector at an address, both of floats of `size` bytes."""
    element = ir.FloatType() if size == 4 else ir.DoubleType()
    floats = ir.VectorType(element, nbytes(value.type) // size)
    return b.fadd(vload(b, base, offset, floats), b.bitcast(value, floats))


@intrinsic(prefer_literal=True)
def transpose_tile(
    typingctx: Any,
    src: Any,
    src_offsets: Any,
    dst: Any,
    dst_offsets: Any,
    skip: Any,
    itemsize: Any,
    lanes: Any,
    depth: Any,
    squares: Any,
    streaming: Any,
    pitch: Any,
    added: Any,
) -> Any:
    """Transpose a tile of (depth * lanes * k) x (squares * k) items, k = 16 / itemsize.

    Row i of the source begins at src + src_offsets[i], row j of the output at dst + dst_offsets[j];
    the items of each row are contiguous. Both tables hold 64-bit byte offsets. Each lane has its
    own k rows, so that no item crosses a lane: lane l of vector i is filled from row l*k + i.
    `depth` vectors are adjacent in each output row and stored one after the other. The first `skip`
    rows of the output are not stored. With a `pitch` other than 0 (a literal), row i begins at
    src + i * pitch, and `src_offsets` is not read. With `added` other than 0 (a literal), items are
    floats of that size, and the values of the output are added to them.
    """
    literals = (itemsize, lanes, depth, squares, streaming, pitch, added)
    size, L, D, S, flag, step, float_size = (v.literal_value for v in literals)
    k = LANE // size

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, src_table, target, dst_table, skipped = args[:5]
        piece = lane_type(size, 1)
        addresses: dict[int, Any] = {}

        def source_row(number: int) -> Any:
            if number not in addresses:
                near = ir.Constant(I64, number * step)
                offset = near if step else vload(b, src_table, 8 * number, I64, 8)
                addresses[number] = b.add(source, offset)
            return addresses[number]

        def move_part(depths: range, squares: range) -> None:
            parts = {(d, s): [[None] * L for _ in range(k)] for d in depths for s in squares}
            for d, lane, i in product(depths, range(L), range(k)):
                row = source_row((d * L + lane) * k + i)
                for s in squares:
                    parts[d, s][i][lane] = vload(b, row, LANE * s, piece)
            tiles = {at: transpose_lanes(b, [concat(b, p) for p in parts[at]]) for at in parts}
            for s, j in product(squares, range(k)):
                number = s * k + j
                with b.if_then(b.icmp_signed("<=", skipped, ir.Constant(I64, number)), likely=True):
                    row = b.add(target, vload(b, dst_table, 8 * number, I64, 8))
                    values = [tiles[d, s][j] for d in depths]
                    if not is_for_x86(b):
                        values = [concat(b, values)]
                    for d, value in zip(depths, values):  # noqa: B905
                        if float_size:
                            value = add_floats(b, value, row, LANE * L * d, float_size)
                        vstore(b, value, row, LANE * L * d, flag)

        if is_for_x86(b):  # streamed lines must be stored at once
            move_part(range(D), range(S))
        else:  # a whole tile has 64 registers
            together = min(D, PART // k)
            for first, s in product(range(0, D, together), range(S)):
                move_part(range(first, first + together), range(s, s + 1))
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 4, types.intp, *literals), codegen


@intrinsic(prefer_literal=True)
def transpose_short_rows(
    typingctx: Any,
    src: Any,
    src_offsets: Any,
    dst: Any,
    dst_offsets: Any,
    count: Any,
    itemsize: Any,
    lanes: Any,
    most: Any,
    streaming: Any,
    pitch: Any,
) -> Any:
    """Transpose rows of `count` <= `most` <= k items: a tile that stores `count` output rows only.

    As transpose_tile with depth 1, but 16 bytes of each source row are read, however short it is.
    """
    literals = (itemsize, lanes, most, streaming, pitch)
    size, L, limit, flag, step = (v.literal_value for v in literals)
    k = LANE // size

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, src_table, target, dst_table, rows = args[:5]
        piece = lane_type(size, 1)
        parts: list[list[Any]] = [[None] * L for _ in range(k)]
        for lane, i in product(range(L), range(k)):
            number = lane * k + i
            near = ir.Constant(I64, number * step)
            offset = near if step else vload(b, src_table, 8 * number, I64, 8)
            parts[i][lane] = vload(b, b.add(source, offset), 0, piece)
        outputs = transpose_lanes(b, [concat(b, part) for part in parts])
        for j, value in enumerate(outputs[:limit]):
            with b.if_then(b.icmp_signed("<", ir.Constant(I64, j), rows), likely=True):
                offset = vload(b, dst_table, 8 * j, I64, 8)
                vstore(b, value, b.add(target, offset), 0, flag)
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 4, types.intp, *literals), codegen


@intrinsic(prefer_literal=True)
def transpose_short_runs(
    typingctx: Any,
    src: Any,
    src_offsets: Any,
    dst: Any,
    dst_offsets: Any,
    count: Any,
    itemsize: Any,
    lanes: Any,
    most: Any,
) -> Any:
    """Transpose `count` <= `most` <= k source rows of lanes * k items to output rows of `count`.

    16 bytes are stored for each output row, however short it is, in the order of the rows. Each
    lane has its own k columns of the source.
    """
    literals = (itemsize, lanes, most)
    size, L, limit = (v.literal_value for v in literals)
    k = LANE // size

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, src_table, target, dst_table, rows = args[:5]
        type_ = lane_type(size, L)
        last = b.sub(rows, ir.Constant(I64, 1))
        inputs = [ir.Constant(type_, ir.Undefined)] * k
        for i in range(limit):  # rows beyond the last one are the last one again
            number = ir.Constant(I64, i)
            index = b.select(b.icmp_signed("<", number, last), number, last)
            offset = vload(b, b.add(src_table, b.shl(index, ir.Constant(I64, 3))), 0, I64, 8)
            inputs[i] = vload(b, b.add(source, offset), 0, type_)
        outputs = transpose_lanes(b, inputs)
        n = type_.count // L
        for lane, j in product(range(L), range(k)):
            value = shuffle(b, outputs[j], outputs[j], list(range(lane * n, lane * n + n)))
            offset = vload(b, dst_table, 8 * (lane * k + j), I64, 8)
            vstore(b, value, b.add(target, offset))
        return context.get_dummy_value()

    return types.void(*[types.uintp] * 4, types.intp, *literals), codegen
